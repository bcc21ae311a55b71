"""The file of webhooks: what it may say, and how it is told what it may not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import get_args

import pytest

from tests.docs.pages import blocks, rows, section
from tests.web.webhooks import sent
from tests.web.webhooks.test_signatures import signed
from vigil.errors import Mistake, Trouble
from vigil.web.webhooks.file import Source, read_webhooks
from vigil.web.webhooks.mapping import WebhookDelivery
from vigil.web.webhooks.signatures import SCHEMES

SECRET = "It's a Secret to Everybody"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("SHORT", "short")


def written(folder, text, name="webhooks.toml"):
    (folder / name).write_text(text)
    return folder / name


def test_every_source_can_be_said_in_a_line_or_two(tmp_path):
    text = "\n".join(
        f'[webhooks.{source}]\nsource = "{source}"\nsecret = "env:HOOK_SECRET"\n{more}'
        for source, more in {
            "alertmanager": "",
            "grafana": 'timestamp_header = "X-Time"',
            "github": "",
            "pagerduty": "",
            "cloud_events": 'scheme = "bearer"',
            "plain": 'scheme = "hmac"\nheader = "X-Sign"',
            "own": 'event = "x.{body.y}"\nscheme = "basic"\nuser = "ci"',
        }.items()
    )
    found = read_webhooks(written(tmp_path, text))
    assert {name: each.signing.scheme for name, each in found.items()} == {
        "alertmanager": "bearer",
        "grafana": "grafana",
        "github": "github",
        "pagerduty": "pagerduty",
        "cloud_events": "bearer",
        "plain": "hmac",
        "own": "basic",
    }
    assert found["grafana"].signing.timestamp_header == "x-time"


def test_a_webhook_may_be_called_as_the_event_that_it_is(tmp_path):
    text = (
        '[webhooks."deploy.finished"]\nsource = "plain"\nscheme = "bearer"\n'
        'secret = "env:HOOK_SECRET"'
    )
    webhook = read_webhooks(written(tmp_path, text))["deploy.finished"]
    headers = {"authorization": f"Bearer {SECRET}", "webhook-id": "7"}
    delivery = WebhookDelivery(headers=headers, body=b'{"version": "2.7"}')
    assert webhook.problem(delivery, now=NOW) == ""
    (event,) = webhook.events(delivery)
    assert (event.name, event.id) == ("deploy.finished", "deploy.finished/7")


def test_a_webhook_without_a_secret_takes_tokens_alone(tmp_path):
    file = written(tmp_path, '[webhooks.am]\nsource = "alertmanager"')
    webhook = read_webhooks(file)["am"]
    delivery = WebhookDelivery(headers={}, body=json.dumps(sent.ALERTMANAGER).encode())
    assert "token" in webhook.problem(delivery, now=NOW)
    assert len(webhook.events(delivery)) == 2


def test_the_ids_of_a_source_are_its_own(tmp_path):
    text = '[webhooks.east]\nsource = "plain"\n[webhooks.west]\nsource = "plain"'
    found = read_webhooks(written(tmp_path, text))
    delivery = WebhookDelivery(headers={"webhook-id": "7"}, body=b"{}")
    ids = {each.events(delivery)[0].id for each in found.values()}
    assert ids == {"east/7", "west/7"}
    nameless = found["east"].events(WebhookDelivery(headers={}, body=b"{}"))
    assert nameless[0].id == ""


def test_a_secret_may_be_in_a_file_beside_it_and_change(tmp_path):
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n")
    text = '[webhooks.gh]\nsource = "github"\nsecret = "file:secret.txt"'
    webhook = read_webhooks(written(tmp_path, text))["gh"]
    other = "a secret of another day"

    def sent_with(secret):
        header = {"x-hub-signature-256": f"sha256={signed(b'{}', secret)}"}
        return webhook.problem(WebhookDelivery(headers=header, body=b"{}"), now=NOW)

    assert sent_with(SECRET) == ""
    (tmp_path / "secret.txt").write_text(other)
    assert sent_with(SECRET) != ""
    assert sent_with(other) == ""
    (tmp_path / "secret.txt").write_text("")
    assert sent_with("") != ""
    (tmp_path / "secret.txt").unlink()
    with pytest.raises(Trouble, match=r"webhook gh: secret: .*secret.txt: No such file"):
        sent_with(other)


def test_it_may_be_yaml_or_json_too(tmp_path):
    yaml = "webhooks:\n  gh:\n    source: github\n    secrets: [env:HOOK_SECRET]\n"
    assert list(read_webhooks(written(tmp_path, yaml, "hooks.yaml"))) == ["gh"]
    assert read_webhooks(written(tmp_path, '{"webhooks": {}}', "hooks.json")) == {}


GH = '[webhooks.gh]\nsource = "github"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "webhooks.toml: not TOML: "),
        ("", "webhooks.toml: webhooks: write it; there is no default"),
        ('[webhooks.x]\nsource = "gitlab"', "webhooks.toml: webhooks.x.source: write "),
        (
            GH + 'sekret = "env:X"',
            "webhooks.toml: webhooks.gh.sekret: there is no such field; did you mean secret?",
        ),
        (GH + f'secret = "{SECRET}"', "webhooks.toml: webhooks.gh: secret: write `env:NAME`"),
        (GH + 'secret = "env:ABSENT"', "the environment variable ABSENT is not set"),
        (GH + 'secret = "file:absent"', "absent: No such file or directory"),
        (GH + 'secret = "env:SHORT"', "secret: shorter than 16 characters"),
        (GH + 'secret = "env:SHORT"\nsecrets = ["env:SHORT"]', "secret or secrets, not both"),
        (GH + f"secrets = {['env:HOOK_SECRET'] * 9}", "secrets: 9, the limit is 8"),
        (GH + 'scheme = "github"', "secret: write `env:NAME` or `file:PATH`"),
        (GH + 'secret = "env:HOOK_SECRET"\nuser = "x"', "user: only the scheme basic takes it"),
        (GH + 'event = "x"', "event: only the source own takes it"),
        ('[webhooks.x]\nsource = "own"', "event: write it, as the source is own"),
        ('[webhooks.x]\nsource = "own"\nevent = "{y}"', "event: {y} is no placeholder"),
        (
            '[webhooks.x]\nsource = "plain"\nsecret = "env:HOOK_SECRET"',
            "scheme: say how plain signs with the secret",
        ),
        (
            '[webhooks.x]\nsource = "plain"\nsecret = "env:HOOK_SECRET"\nscheme = "hmac"',
            "header: write it, as the scheme is hmac",
        ),
        (
            '[webhooks.x]\nsource = "standard"\nsecret = "env:HOOK_SECRET"',
            "secret: a secret is whsec_",
        ),
        ('[webhooks."a b"]\nsource = "plain"', "webhooks.a b: it cannot be called so"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_the_field(tmp_path, text, says):
    with pytest.raises(Mistake) as raised:
        read_webhooks(written(tmp_path, text))
    assert says in str(raised.value)
    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_trouble(tmp_path):
    with pytest.raises(Trouble, match="No such file"):
        read_webhooks(tmp_path / "webhooks.toml")
    with pytest.raises(Mistake, match="is of no known format"):
        read_webhooks(written(tmp_path, "", "webhooks.ini"))


GUIDE = "docs/guides/webhooks.md"


def test_the_files_of_the_guide_can_be_read(tmp_path, monkeypatch):
    for name in ("ALERTMANAGER_TOKEN", "GITHUB_WEBHOOK_SECRET", "DEPLOY_SECRET", "CI_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "github-old").write_text(SECRET)
    names = [sorted(read_webhooks(written(tmp_path, each.text))) for each in blocks(GUIDE, "toml")]
    assert names == [["alertmanager", "deploy.finished", "github"], ["ci"]]


def test_the_guide_has_every_source_and_every_scheme():
    sources = [row[0] for row in rows(section(GUIDE, "## Sources"))]
    schemes = [row[0] for row in rows(section(GUIDE, "## Signatures"))]
    assert sources == [f"`{each}`" for each in get_args(Source)]
    assert schemes == [f"`{each}`" for each in SCHEMES]

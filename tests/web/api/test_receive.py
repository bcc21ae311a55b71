"""`POST /events/{name}`: events of programs, and deliveries of webhooks."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from streams.errors import Unavailable
from streams.layout import Stream
from streams.ports.domain_events import DomainEvent
from tests.web.api.conftest import AWAY, ROLE, SCOPES, TOKEN, api_on, asking
from tests.web.webhooks import sent
from tests.web.webhooks.test_signatures import signed
from vigil.web.webhooks.file import read_webhooks

SECRET = "It's a Secret to Everybody"

HOOKS = """
[webhooks.alerts]
source = "alertmanager"
secret = "env:HOOK_SECRET"

[webhooks.gh]
source = "github"
secret = "env:HOOK_SECRET"

[webhooks.pd]
source = "pagerduty"
secret = "env:HOOK_SECRET"

[webhooks.grafana]
source = "grafana"
secret = "env:HOOK_SECRET"

[webhooks.cloud]
source = "cloud_events"

[webhooks."deploy.finished"]
source = "plain"
scheme = "hmac"
header = "X-Sign"
secret = "env:HOOK_SECRET"
"""

BEARER = {"authorization": f"Bearer {SECRET}"}
JSON = {"content-type": "application/json"}
PROGRAM = {TOKEN: "t1", ROLE: "operator", SCOPES: "events:publish"}


@pytest.fixture
async def hooks(client, tmp_path, monkeypatch):
    """What sends to webhooks, as nobody that Vigil knows."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (tmp_path / "webhooks.toml").write_text(HOOKS)
    app = api_on(client, read_webhooks(tmp_path / "webhooks.toml"))
    async with asking(app) as sending:
        yield sending


async def events(ports) -> list[DomainEvent]:
    page = await ports.domain_events.page(after=0)
    return [each for each in page if isinstance(each, DomainEvent)]


async def test_a_group_of_alerts_is_published_once_however_often_it_is_sent(ports, hooks):
    first = await hooks.post("/events/alerts", json=sent.ALERTMANAGER, headers=BEARER)
    again = await hooks.post("/events/alerts", json=sent.ALERTMANAGER, headers=BEARER)
    found = await events(ports)
    assert (first.status_code, again.status_code) == (200, 200)
    assert [each["is_new"] for each in first.json()["events"]] == [True, True]
    assert [each["is_new"] for each in again.json()["events"]] == [False, False]
    assert [each.name for each in found] == ["alert.firing", "alert.resolved"]
    assert found[0].id == "alerts/1a30ba71cca2921f/2026-11-29T09:08:45.828Z/firing"
    assert found[0].payload["labels"]["instance"] == "https://pay.example"


def signed_by(name, body):
    """Return the headers with which a source signs a body."""
    match name:
        case "gh":
            return {**sent.GITHUB_HEADERS, "x-hub-signature-256": f"sha256={signed(body)}"}
        case "pd":
            return {**JSON, "x-pagerduty-signature": f"v1={signed(body)}"}
        case "grafana":
            return {**JSON, "x-grafana-alerting-signature": signed(body)}
        case _:
            return {**JSON, "x-sign": signed(body), "webhook-id": "d-7"}


SIGNED = {
    "gh": (sent.GITHUB, "github.issues.opened"),
    "pd": (sent.PAGERDUTY, "pagerduty.incident.triggered"),
    "grafana": (sent.GRAFANA, "alert.firing"),
    "deploy.finished": ({"version": "2.7"}, "deploy.finished"),
}


@pytest.mark.parametrize("name", SIGNED)
async def test_what_is_signed_is_published_once_and_what_was_changed_never(ports, hooks, name):
    said, event = SIGNED[name]
    body = json.dumps(said).encode()
    headers = signed_by(name, body)
    for _ in range(2):
        answer = await hooks.post(f"/events/{name}", content=body, headers=headers)
        assert answer.status_code == 200
    changed = await hooks.post(f"/events/{name}", content=body + b" ", headers=headers)
    unsigned = await hooks.post(f"/events/{name}", content=body, headers=JSON)
    assert (changed.status_code, unsigned.status_code) == (401, 401)
    assert changed.json()["detail"] == f"webhook {name}: no signature of it fits"
    assert [each.name for each in await events(ports)] == [event]


async def test_a_program_with_a_token_may_send_to_any_webhook(ports, hooks):
    headers = {**PROGRAM, "content-type": "application/cloudevents+json"}
    body = json.dumps(sent.CLOUD_EVENT).encode()
    answer = await hooks.post("/events/cloud", content=body, headers=headers)
    assert answer.status_code == 200
    assert [each.id for each in await events(ports)] == ["cloud//hosts/web-7/C234-1234-1234"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {ROLE: "admin"},
        {**PROGRAM, SCOPES: "read"},
        {**PROGRAM, ROLE: "viewer"},
        {"authorization": "Bearer something-else-entirely"},
    ],
    ids=["nobody", "session", "other scope", "other role", "other secret"],
)
async def test_nobody_else_may_send_to_a_webhook(ports, hooks, headers):
    for name in ("cloud", "alerts"):
        answer = await hooks.post(f"/events/{name}", json=sent.ALERTMANAGER, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["type"] == "urn:vigil:problem:unsigned"
    assert await events(ports) == []


async def test_who_cannot_be_recognized_now_comes_again(ports, hooks):
    headers = {**PROGRAM, AWAY: "nats://127.0.0.1:4222 does not answer"}
    for name in ("cloud", "disk.full"):
        answer = await hooks.post(f"/events/{name}", json=sent.CLOUD_EVENT, headers=headers)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["type"] == "urn:vigil:problem:server-away"
    signed_one = {**headers, **BEARER}
    answer = await hooks.post("/events/alerts", json=sent.ALERTMANAGER, headers=signed_one)
    assert answer.status_code == 200


async def test_a_name_that_no_webhook_has_takes_a_token(ports, hooks):
    nobody = await hooks.post("/events/disk.full", json={"host": "a"})
    program = await hooks.post("/events/disk.full", json={"host": "a"}, headers=PROGRAM)
    assert (nobody.status_code, program.status_code) == (401, 200)
    assert [each.payload for each in await events(ports)] == [{"host": "a"}]


async def test_nothing_is_published_of_a_delivery_in_which_something_cannot_be(ports, hooks):
    first, second = sent.ALERTMANAGER["alerts"]
    for bad in (
        {**second, "annotations": {"summary": "x" * 600_000}},
        {**second, "status": "perhaps"},
        {"status": "firing"},
    ):
        body = {**sent.ALERTMANAGER, "alerts": [first, bad]}
        answer = await hooks.post("/events/alerts", json=body, headers=BEARER)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("webhook alerts: ")
    assert await events(ports) == []


async def test_a_delivery_that_is_too_long_is_not_read(ports, hooks):
    answer = await hooks.post("/events/alerts", content=b" " * 1_048_577, headers=BEARER)
    assert answer.status_code == 413


async def test_a_server_that_goes_away_within_a_delivery_has_the_sender_come_again(
    ports, hooks, monkeypatch
):
    publish, published = type(ports.domain_events).publish, []

    async def once(self, name, payload, **kwargs):
        if published:
            raise Unavailable("events", detail="away")
        published.append(name)
        return await publish(self, name, payload, **kwargs)

    with monkeypatch.context() as broken:
        broken.setattr(type(ports.domain_events), "publish", once)
        answer = await hooks.post("/events/alerts", json=sent.ALERTMANAGER, headers=BEARER)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert await ports.log.head(Stream.EVENTS) == 1
    again = await hooks.post("/events/alerts", json=sent.ALERTMANAGER, headers=BEARER)
    assert [each["is_new"] for each in again.json()["events"]] == [False, True]
    assert len(await events(ports)) == 2


async def test_a_signature_of_another_day_is_refused(client, tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    text = '[webhooks.std]\nsource = "standard"\nsecret = "env:HOOK_SECRET"'
    (tmp_path / "webhooks.toml").write_text(text)
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }

    class Then:
        """A clock of the day on which that was signed."""

        def now(self):
            return datetime.fromtimestamp(1614265330, UTC)

    webhooks = read_webhooks(tmp_path / "webhooks.toml")
    body = b'{"test": 2432232314}'
    async with asking(api_on(client, webhooks)) as today:
        refused = await today.post("/events/std", content=body, headers=headers)
    async with asking(api_on(client, webhooks, clock=Then())) as then:
        believed = await then.post("/events/std", content=body, headers=headers)
    assert "is over 300 s from ours" in refused.json()["detail"]
    assert believed.status_code == 422  # It is believed, and has no `type`.
    assert "type" in believed.json()["detail"]

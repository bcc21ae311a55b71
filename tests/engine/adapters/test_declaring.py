"""Adapters that cannot work are refused where they are declared: which, and what of them."""

from __future__ import annotations

import pytest

from engine.errors import BadAdapter
from tests.engine.adapters.samples import failure_of
from vigil.adapters import Email, Slack, Subject, Webhook, env

HERE = "https://p.example"
URL = "not a URL that begins with https:// or http:// and a host"
NEITHER = "neither a text nor a function that returns one, but"


def email(host="mail.example", **options):
    return Email(host, **{"sender": "vigil@example.com", **options})


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (lambda: Webhook("example.com"), f"Webhook: url: {URL}"),
        (lambda: Webhook(None), f"Webhook: url: {NEITHER} None"),
        (lambda: Webhook(b"https://hush"), f"Webhook: url: {NEITHER} bytes"),
        (lambda: Webhook(HERE, secret=5), f"Webhook: secret: {NEITHER} int"),
        (
            lambda: Webhook(HERE, secret="hush"),
            "Webhook: secret: a secret is whsec_ and 24 to 64 bytes",
        ),
        (lambda: Webhook(HERE, headers={"A": 5}), f"Webhook: headers: 'A': {NEITHER} int"),
        (
            lambda: Webhook(HERE, headers=[1]),
            "Webhook: headers: not a dict of name to value, but list",
        ),
        (
            lambda: Webhook(HERE, headers={5: "a"}),
            "Webhook: headers: 5 is not the name of a header",
        ),
        (
            lambda: Webhook(HERE, tls=True),
            "Webhook: tls: True is neither an ssl.SSLContext nor None",
        ),
        (lambda: Slack("chat.example"), f"Slack: url: {URL}"),
        (lambda: Slack(None), f"Slack: url: {NEITHER} None"),
        (lambda: Subject(5), "Subject: subject: 5 is not a text"),
        (
            lambda: email("mail.example:587"),
            "Email: host: 'mail.example:587' has a port in it; that is an argument of its own",
        ),
        (lambda: email(None), "Email: host: None is not the name of a server"),
        (lambda: email(port="587"), "Email: port: '587' is not a whole number from 1 to 65,535"),
        (lambda: email(sender="no"), "Email: sender: 'no' is not an address"),
        (lambda: email(sender=None), "Email: sender: None is not an address"),
        (lambda: email(sender="a@x.org\nb@x.org"), "Email: sender: more than one line"),
        (lambda: email(to="no"), "Email: to: 'no' is not an address"),
        (lambda: email(to=["a@x.org", 5]), "Email: to: 5 is not an address"),
        (lambda: email(to=5), "Email: to: 5 is neither an address nor a list of them"),
        (
            lambda: email(username="a"),
            "Email: password: username and password come together",
        ),
        (lambda: email(username=5, password="a"), f"Email: username: {NEITHER} int"),
        (
            lambda: email(context="ca.pem"),
            "Email: context: 'ca.pem' is neither an ssl.SSLContext nor None",
        ),
    ],
)
def test_an_adapter_that_cannot_work_says_whose_argument_is_wrong(declared, said):
    with pytest.raises(BadAdapter) as refused:
        declared()
    assert str(refused.value) == said


@pytest.mark.parametrize("host", ["mail.example", "127.0.0.1", "::1"])
def test_a_server_is_named_by_its_host(host):
    email(host)


@pytest.mark.parametrize(
    ("declared", "whose"),
    [
        (lambda: Webhook(env("NOT_SET")), "Webhook: url"),
        (lambda: Webhook(HERE, secret=env("NOT_SET")), "Webhook: secret"),
        (lambda: Webhook(HERE, headers={"A": env("NOT_SET")}), "Webhook: headers: 'A'"),
        (lambda: Slack(env("NOT_SET")), "Slack: url"),
        (lambda: email(username="a", password=env("NOT_SET")), "Email: password"),
    ],
)
async def test_a_secret_that_is_missing_says_whose_it_is(declared, whose, monkeypatch):
    monkeypatch.delenv("NOT_SET", raising=False)
    payload = {"to": "ann@example.org", "subject": "s", "text": "t"}
    failure = await failure_of(declared(), payload)
    assert failure.error_class == "secret_missing"
    assert failure.detail == f"{whose}: the environment variable NOT_SET is not set"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"to": "ann", "subject": "s", "text": "t"}, "to: 'ann' is not an address"),
        ({"to": "a@x.org\n", "subject": "s", "text": "t"}, "to: more than one line"),
        ({"to": "a@x.org", "subject": "s\n", "text": "t"}, "subject: more than one line"),
    ],
)
async def test_a_payload_that_is_no_mail_says_which_field_is_wrong(payload, said):
    assert (await failure_of(email(), payload)).detail == said

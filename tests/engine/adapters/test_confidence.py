"""What was told in confidence stands in nothing that people read of a delivery."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from engine.adapter import DeliveryFailed
from engine.adapters.confidence import SHOWN_CHARS_MAX, Confidence
from tests.engine.adapters.mailbox import Server
from tests.engine.adapters.receiver import Receiver, answer
from tests.engine.adapters.samples import failure_of, free_port, output
from vigil.adapters import Email, Slack, Webhook

URL = "https://ann:pass%2Fword@pager.example:8443/hook/T0KEN-T0KEN-T0KEN?key=k3y-of-it#part"


def of_url(url=URL):
    confidence = Confidence("Webhook")
    confidence.told_url(url)
    return confidence


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"no such page: {URL}", "no such page: https://***@pager.example:8443***?***#***"),
        ("/hook/T0KEN-T0KEN-T0KEN: gone", "***: gone"),
        ("T0KEN-T0KEN-T0KEN is unknown", "*** is unknown"),
        ("k3y-of-it is unknown", "*** is unknown"),
        (r"\/hook\/T0KEN-T0KEN-T0KEN", "***"),
        (quote("/hook/T0KEN-T0KEN-T0KEN", safe=""), "***"),
        (f"Basic {base64.b64encode(b'ann:pass/word').decode()}", "Basic ***"),
        ("the hook of pager.example is busy", "the hook of pager.example is busy"),
    ],
)
def test_of_an_address_only_the_host_is_shown(said, shown):
    assert of_url().hide(said) == shown


@pytest.mark.parametrize("url", ["https://pager.example", "https://pager.example/", "https://p/v1"])
def test_what_is_too_short_to_be_a_secret_leaves_words_whole(url):
    assert of_url(url).hide("/ and /v1 stay") == "/ and /v1 stay"


@pytest.mark.parametrize("secret", ["Bearer h-u-s-h", "h-u-s-h", 'a"h-u-s-h\\', "hü-s-h"])
@pytest.mark.parametrize(
    "quoted", [str, json.dumps, quote, str.split], ids=lambda each: each.__name__
)
def test_a_secret_is_hidden_however_it_is_quoted(secret, quoted):
    confidence = Confidence("Webhook")
    assert confidence.told(lambda: secret, "headers") == secret
    if quoted is json.dumps:
        said = json.dumps(secret, ensure_ascii=False)
    else:
        said = quoted(secret) if quoted is not str.split else secret.split()[-1]
    assert "s-h" not in confidence.hide(f"bad header {said}!")


def test_text_that_no_utf8_can_say_is_hidden_like_other_text():
    confidence = Confidence("Webhook")
    confidence.told("hush-\udcff", "headers")
    assert confidence.hide("bad: hush-\udcff") == "bad: ***"


def test_a_secret_that_stands_across_the_cut_is_hidden_before_it():
    confidence = Confidence("Webhook")
    confidence.keep("secret" * 4)
    failure = DeliveryFailed("http_400", "x" * (SHOWN_CHARS_MAX - 6) + "secret" * 4)
    assert confidence.in_public(failure).detail == "x" * (SHOWN_CHARS_MAX - 6) + "***"


def test_what_is_to_be_done_about_a_failure_stays():
    failure = DeliveryFailed("http_429", "slow down", permanent=False, retry_after_s=7.0)
    shown = of_url().in_public(failure)
    assert (shown.error_class, shown.detail, shown.retry_after_s) == ("http_429", "slow down", 7.0)
    assert of_url().in_public(DeliveryFailed("x", permanent=True)).permanent


def test_a_receivers_name_for_a_delivery_keeps_the_path():
    confidence = of_url("https://pager.example/alerts?key=k3y-of-it")
    assert confidence.hide_in_name("/alerts/17?key=k3y-of-it") == "/alerts/17?***"


async def test_a_receiver_that_quotes_the_request_gives_nothing_away():
    key = "whsec_" + base64.b64encode(b"k" * 32).decode()
    echo = f"POST /services/T1/B1 Authorization: Bearer h-u-s-h, signed with {key}".encode()
    async with Receiver(answer(400, echo)) as receiver:
        hook = Webhook(
            lambda: receiver.url.replace("/hook", "/services/T1/B1"),
            secret=key,
            headers={"Authorization": lambda: "Bearer h-u-s-h"},
        )
        failure = await failure_of(hook)
        await hook.close()
    assert failure.detail == "POST *** Authorization: ***, signed with ***"
    assert (failure.__cause__, failure.__suppress_context__) == (None, True)


async def test_a_receiver_that_names_a_delivery_by_a_secret_gives_nothing_away():
    async with Receiver(answer(200, b'{"id": "for h-u-s-h: 7"}')) as receiver:
        hook = Webhook(receiver.url, headers={"X-Token": "h-u-s-h"})
        named = await hook.deliver(output("full"))
        await hook.close()
    assert named == "for ***: 7"


async def test_a_chat_that_quotes_the_address_gives_nothing_away():
    async with Receiver(answer(404, b"no_service at /services/T1/B1/x")) as receiver:
        slack = Slack(receiver.url.replace("/hook", "/services/T1/B1/x"))
        failure = await failure_of(slack)
        await slack.close()
    assert failure.detail == "no_service at ***"


async def test_a_mail_server_that_quotes_the_login_gives_nothing_away(server_tls, trusting):
    refusal = "550 ann@example.org: h-u-s-h of robot is no password"
    async with Server({"DATA": refusal}, starttls=server_tls) as mailbox:
        mail = Email(
            "127.0.0.1",
            mailbox.port,
            sender="vigil@example.com",
            username="robot",
            password=lambda: "h-u-s-h",
            context=trusting,
        )
        payload = {"to": "ann@example.org", "subject": "s", "text": "t"}
        failure = await failure_of(mail, payload)
    assert "h-u-s-h" not in failure.detail
    assert "robot" not in failure.detail


async def test_a_receiver_that_is_not_there_is_named_by_host_and_port_alone():
    port = free_port()
    failure = await failure_of(Webhook(f"http://ann:hush@127.0.0.1:{port}/hook/of/mine?key=hush"))
    assert failure.detail.startswith(f"127.0.0.1:{port}: ")
    assert "hush" not in failure.detail
    assert "/hook" not in failure.detail


@pytest.mark.parametrize(
    ("secret", "detail"),
    [
        (lambda: None, "Webhook: headers: 'X-Token': not a text, but NoneType"),
        (lambda: b"hush", "Webhook: headers: 'X-Token': not a text, but bytes"),
    ],
)
async def test_a_secret_that_is_no_text_says_whose_it_is(secret, detail):
    failure = await failure_of(Webhook("https://p.example", headers={"X-Token": secret}))
    assert (failure.error_class, failure.detail) == ("bad_secret", detail)

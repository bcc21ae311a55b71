"""Outputs as HTTP requests, to receivers that behave, and that do not."""

from __future__ import annotations

import base64
import json
import logging
from datetime import UTC, datetime

import pytest

from engine.adapters.http import ANSWER_BYTES_MAX, HttpClient
from engine.adapters.signature import keys_of, signed_headers
from tests.docs.pages import blocks
from tests.engine.adapters.conftest import NOW, FixedClock
from tests.engine.adapters.receiver import (
    Receiver,
    answer,
    never_end,
    nonsense,
    reset,
    reset_in_answer,
    silence,
    stop_in_answer,
)
from tests.engine.adapters.samples import KEY, failure_of, free_port, output
from vigil.adapters import Webhook, env

GUIDE = "docs/guides/adapters.md"
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER = "whsec_" + base64.b64encode(b"o" * 32).decode()


async def delivered(receiver, payload="full", **options):
    """Deliver `payload` to `receiver`, and return what it calls it."""
    hook = Webhook(receiver.url, **options)
    try:
        return await hook.deliver(output(payload))
    finally:
        await hook.close()


async def failed(receiver, **options):
    """Return how a delivery to `receiver` fails."""
    hook = Webhook(receiver.url, **options)
    try:
        return await failure_of(hook)
    finally:
        await hook.close()


async def test_the_body_is_the_payload_and_nothing_around_it():
    async with Receiver(answer(204)) as receiver:
        await delivered(receiver, {"b": [1, None], "a": "ü"})
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/hook")
    assert request.body == '{"a":"ü","b":[1,null]}'.encode()
    assert request.headers["content-type"] == "application/json"


async def test_every_attempt_has_the_same_key_and_a_number_of_its_own():
    async with Receiver(answer(503), answer(200)) as receiver:
        hook = Webhook(receiver.url, secret=SECRET)
        await failure_of(hook)
        await hook.deliver(output("full", attempt=2))
        await hook.close()
    said = [
        (each.headers["idempotency-key"], each.headers["webhook-id"], each.headers["vigil-attempt"])
        for each in receiver.requests
    ]
    assert said == [(KEY, KEY, "1"), (KEY, KEY, "2")]


async def test_headers_and_method_are_as_declared(monkeypatch):
    monkeypatch.setenv("PAGER_TOKEN", "Bearer t\n")
    async with Receiver(answer(200)) as receiver:
        await delivered(receiver, method="PUT", headers={"Authorization": env("PAGER_TOKEN")})
    (request,) = receiver.requests
    assert (request.method, request.headers["authorization"]) == ("PUT", "Bearer t")


@pytest.mark.parametrize(
    ("answering", "ref"),
    [
        (answer(200, b'{"id": "a-1"}', location="/a/1"), "a-1"),
        (answer(201, b'{"id": 7}'), "7"),
        (answer(201, b"created", location="/a/1"), "/a/1"),
        (answer(200, b'{"id": true}'), None),
        (answer(200, b'{"id": null}'), None),
        (answer(200, b"[1]"), None),
        (answer(204), None),
        (answer(200, b'{"id": "' + b"x" * 1000 + b'"}'), "x" * 512),
    ],
)
async def test_the_receiver_names_the_delivery_by_id_or_location(answering, ref):
    async with Receiver(answering) as receiver:
        assert await delivered(receiver) == ref


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
async def test_what_may_be_different_the_next_time_is_not_for_good(status):
    async with Receiver(answer(status, b"busy\n  now")) as receiver:
        failure = await failed(receiver)
    assert (failure.error_class, failure.permanent) == (f"http_{status}", False)
    assert failure.detail == "busy now"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422])
async def test_what_the_receiver_does_not_want_fails_for_good(status):
    async with Receiver(answer(status, b"no")) as receiver:
        failure = await failed(receiver)
    assert (failure.error_class, failure.permanent) == (f"http_{status}", True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status):
    async with Receiver(answer(200)) as other, Receiver(answer(status, location="")) as receiver:
        receiver.answers = [answer(status, location=other.url)]
        failure = await failed(receiver)
    assert (failure.error_class, failure.permanent) == (f"http_{status}", True)
    assert other.requests == []


async def test_the_receiver_says_when_to_try_again():
    async with Receiver(
        answer(429, retry_after="120"),
        answer(503, retry_after="Tue, 01 Jan 2030 00:01:30 GMT"),
        answer(503, retry_after="soon"),
    ) as receiver:
        hook = Webhook(receiver.url, clock=FixedClock())
        waits = [(await failure_of(hook)).retry_after_s for _ in range(3)]
        await hook.close()
    assert waits == [120.0, 90.0, None]


async def test_a_receiver_that_accepts_and_never_answers_times_out():
    async with Receiver(silence) as receiver:
        failure = await failed(receiver, timeout_s=0.2)
    assert (failure.error_class, failure.permanent) == ("delivery_timeout", False)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("answering", [reset, nonsense])
async def test_a_receiver_that_says_no_status_is_unavailable(answering):
    async with Receiver(answering) as receiver:
        failure = await failed(receiver)
    assert (failure.error_class, failure.permanent) == ("receiver_unavailable", False)


async def test_a_receiver_that_is_not_there_is_unavailable():
    failure = await failure_of(Webhook(f"http://127.0.0.1:{free_port()}/"))
    assert (failure.error_class, failure.permanent) == ("receiver_unavailable", False)


@pytest.mark.parametrize("answering", [reset_in_answer, stop_in_answer, never_end])
async def test_once_the_status_is_there_nothing_undoes_the_delivery(answering):
    async with Receiver(answering) as receiver:
        assert await delivered(receiver, timeout_s=5) is None


async def test_an_answer_is_read_as_far_as_it_is_of_use():
    async with Receiver(never_end) as receiver:
        client = HttpClient(timeout_s=5, tls=None)
        answered = await client.send("POST", receiver.url, body=b"", headers={})
        await client.close()
    assert len(answered.body) == ANSWER_BYTES_MAX


async def test_a_certificate_that_is_not_trusted_is_no_receiver(server_tls):
    async with Receiver(answer(200), tls=server_tls) as receiver:
        failure = await failed(receiver)
    assert (failure.error_class, failure.permanent) == ("tls_failed", False)
    assert receiver.requests == []


async def test_a_certificate_authority_of_ones_own_can_be_trusted(server_tls, trusting):
    async with Receiver(answer(200), tls=server_tls) as receiver:
        await delivered(receiver, tls=trusting)
    assert len(receiver.requests) == 1


async def test_deliveries_share_a_connection():
    async with Receiver(answer(200, b"{}")) as receiver:
        hook = Webhook(receiver.url)
        for _ in range(3):
            await hook.deliver(output("full"))
        await hook.close()
    assert (len(receiver.requests), receiver.connections) == (3, 1)


async def test_an_adapter_that_was_closed_delivers_again():
    async with Receiver(answer(200)) as receiver:
        hook = Webhook(receiver.url)
        for _ in range(2):
            await hook.deliver(output("full"))
            await hook.close()
    assert len(receiver.requests) == 2


@pytest.fixture
def verify():
    """What the guide has receivers do."""
    (block,) = [each for each in blocks(GUIDE, "python") if "# receiver.py" in each.text]
    said: dict[str, object] = {}
    exec(block.text, said)  # noqa: S102 - the guide's own words
    return said["verify"]


async def signed(secret):
    async with Receiver(answer(200)) as receiver:
        await delivered(receiver, {"n": 1}, secret=secret, clock=FixedClock())
    (request,) = receiver.requests
    return request


async def test_a_receiver_verifies_the_signature_as_the_guide_says(verify):
    request = await signed(SECRET)
    now_s = NOW.timestamp()
    assert verify(request.headers, request.body, secret=SECRET, now_s=now_s) == KEY
    with pytest.raises(ValueError, match="not signed"):
        verify(request.headers, request.body + b" ", secret=SECRET, now_s=now_s)
    with pytest.raises(ValueError, match="not signed"):
        verify(request.headers, request.body, secret=OTHER, now_s=now_s)
    with pytest.raises(ValueError, match="too old"):
        verify(request.headers, request.body, secret=SECRET, now_s=now_s + 301)


async def test_receivers_can_change_from_one_secret_to_another(verify):
    request = await signed(f"{OTHER} {SECRET}")
    for secret in (SECRET, OTHER):
        assert verify(request.headers, request.body, secret=secret, now_s=NOW.timestamp()) == KEY


def test_the_signature_is_that_of_the_convention():
    """The example of the specification's own libraries."""
    headers = signed_headers(
        keys_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=datetime.fromtimestamp(1614265330, UTC),
        body=b'{"test": 2432232314}',
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_without_a_secret_nothing_is_signed():
    async with Receiver(answer(200)) as receiver:
        await delivered(receiver)
    (request,) = receiver.requests
    assert not [name for name in request.headers if name.startswith("webhook-")]


async def test_a_secret_is_asked_for_each_time(monkeypatch, verify):
    monkeypatch.delenv("PAGER_SECRET", raising=False)
    async with Receiver(answer(200)) as receiver:
        hook = Webhook(receiver.url, secret=env("PAGER_SECRET"), clock=FixedClock())
        missing = await failure_of(hook)
        monkeypatch.setenv("PAGER_SECRET", SECRET)
        await hook.deliver(output("full"))
        await hook.close()
    assert (missing.error_class, missing.permanent) == ("secret_missing", False)
    (request,) = receiver.requests
    assert verify(request.headers, request.body, secret=SECRET, now_s=NOW.timestamp()) == KEY


@pytest.mark.parametrize(
    ("options", "error_class"),
    [
        ({"secret": lambda: "whsec_short"}, "bad_secret"),
        ({"headers": {"x-token": lambda: "a\r\nb: c"}}, "bad_header"),
        ({"headers": {"x-token": lambda: " a"}}, "bad_header"),
    ],
)
async def test_a_secret_that_cannot_work_is_not_said_in_the_failure(options, error_class):
    async with Receiver(answer(200)) as receiver:
        failure = await failed(receiver, **options)
    assert (failure.error_class, failure.permanent) == (error_class, True)
    assert "short" not in failure.detail
    assert receiver.requests == []


async def test_an_address_that_cannot_work_is_not_said_in_the_failure():
    failure = await failure_of(Webhook(lambda: "ftp://secret.example"))
    assert (failure.error_class, failure.permanent) == ("bad_url", True)
    assert "secret" not in failure.detail


async def test_no_address_is_logged(caplog):
    caplog.set_level(logging.INFO)
    async with Receiver(answer(200)) as receiver:
        await delivered(receiver)
    assert "/hook" not in caplog.text


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("pager.example", {}, "url"),
        ("ftp://pager.example", {}, "url"),
        ("https://", {}, "url"),
        ("https://pager.example:x/", {}, "url"),
        ("https://pager.example/a b", {}, "url"),
        ("https://pager.example/a\n", {}, "url"),
        ("https://p.example", {"method": "GET"}, "method"),
        ("https://p.example", {"timeout_s": 0}, "timeout_s"),
        ("https://p.example", {"timeout_s": True}, "timeout_s"),
        ("https://p.example", {"timeout_s": "1"}, "timeout_s"),
        ("https://p.example", {"secret": "hush"}, "whsec_"),
        ("https://p.example", {"secret": "whsec_c2hvcnQ="}, "bytes"),
        ("https://p.example", {"secret": "whsec_%"}, "base64"),
        ("https://p.example", {"secret": " "}, "empty"),
        ("https://p.example", {"headers": {"a b": "x"}}, "headers"),
        ("https://p.example", {"headers": {"Webhook-Id": "x"}}, "headers"),
        ("https://p.example", {"headers": {"Host": "x"}}, "headers"),
        ("https://p.example", {"headers": {"a": "x\ny"}}, "headers"),
        ("https://p.example", {"headers": {"a": "ü"}}, "headers"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(url, options, said):
    with pytest.raises(ValueError, match=said):
        Webhook(url, **options)


@pytest.mark.parametrize("payload", [None, 0, "", [], {}])
async def test_any_json_value_is_a_body(payload):
    async with Receiver(answer(200)) as receiver:
        await delivered(receiver, payload)
    assert json.loads(receiver.requests[0].body) == payload

"""Requests to services on loopback, which were allowed or not."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from engine.app.outputs import DeliveryFailed
from engine.app.tools import CallContext, ToolFailed
from engine.errors import BadTool
from engine.toolbox.addresses import allowed_addresses
from engine.toolbox.http import HttpRequests, http_request
from tests.engine.adapters.receiver import Receiver, answer, never_end, nonsense, reset, silence

LOOPBACK = ("127.0.0.0/8", "::1/128")

CTX = CallContext(
    actor_id="a", expectation_id="x", episode_id="e", step_no=1, idempotency_key="e:1"
)

JSON = answer(200, b'{"ok": true}', Content_Type="application/json")


def host_of(receiver: Receiver) -> str:
    return urlsplit(receiver.url).netloc


async def asked(receiver: Receiver, *, url: str = "", args: Any = None, **options) -> Any:
    allowed = {"hosts": [host_of(receiver)], "networks": LOOPBACK, **options}
    web = http_request(**allowed)
    return await web.call("request", {"url": url or receiver.url, **(args or {})}, CTX)


async def failed(receiver: Receiver, **options) -> ToolFailed:
    with pytest.raises(ToolFailed) as failure:
        await asked(receiver, **options)
    return failure.value


async def test_json_comes_decoded_with_status_and_headers():
    async with Receiver(JSON) as receiver:
        found = await asked(receiver)

    assert (found["status"], found["body"]) == (200, {"ok": True})
    assert found["headers"]["content-type"] == "application/json"
    (request,) = receiver.requests
    assert (request.method, request.path, request.body) == ("GET", "/hook", b"")


async def test_anything_else_comes_as_text():
    async with Receiver(answer(200, b"fine \xff")) as receiver:
        assert (await asked(receiver))["body"] == "fine \ufffd"


async def test_a_body_is_sent_as_json_with_the_idempotency_key():
    async with Receiver(JSON) as receiver:
        await asked(receiver, methods=["POST"], args={"method": "post", "body": {"n": 1}})

    (request,) = receiver.requests
    assert (request.method, request.body) == ("POST", b'{"n":1}')
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == "e:1"


def test_only_reading_has_no_side_effect():
    assert not http_request(hosts=["a.example"]).side_effect
    assert http_request(hosts=["a.example"], methods=["GET", "POST"]).side_effect
    assert http_request(hosts=["a.example"], methods=["PUT"], idempotent=True).idempotent


async def test_a_method_that_was_not_allowed_is_not_used():
    async with Receiver(JSON) as receiver:
        assert (await failed(receiver, args={"method": "POST"})).error_class == "method_not_allowed"
    assert receiver.requests == []


async def test_loopback_is_not_reached_unless_it_was_allowed():
    async with Receiver(JSON) as receiver:
        failure = await failed(receiver, networks=[])

    assert failure.error_class == "address_not_allowed"
    assert failure.detail == "127.0.0.1 leads to 127.0.0.1, which is not public"
    assert receiver.connections == 0


async def test_a_host_that_was_not_allowed_is_not_reached():
    async with Receiver(JSON) as receiver:
        assert (await failed(receiver, hosts=["a.example"])).error_class == "address_not_allowed"
    assert receiver.connections == 0


async def test_a_redirect_is_followed_to_an_allowed_host():
    async with Receiver(answer(302, Location="/other"), JSON) as receiver:
        assert (await asked(receiver))["body"] == {"ok": True}
    assert [each.path for each in receiver.requests] == ["/hook", "/other"]


async def test_a_redirect_to_another_host_is_not_followed():
    async with Receiver(JSON) as inner, Receiver(answer(302, Location=inner.url)) as outer:
        assert (await failed(outer)).error_class == "address_not_allowed"
    assert inner.connections == 0


async def test_secrets_do_not_go_with_a_redirect_to_another_host():
    async with Receiver(JSON) as inner, Receiver(answer(302, Location=inner.url)) as outer:
        await asked(
            outer,
            hosts=[host_of(outer), host_of(inner)],
            headers={"Authorization": lambda: "Bearer t0ken"},
            args={"_headers": {"X-Key": "k"}},
        )

    (first,), (second,) = outer.requests, inner.requests
    assert (first.headers["authorization"], first.headers["x-key"]) == ("Bearer t0ken", "k")
    assert not {"authorization", "x-key"} & second.headers.keys()


async def test_secrets_do_not_come_back_with_a_redirect_to_their_host():
    async with Receiver() as outer, Receiver() as inner:
        outer.answers = [answer(302, Location=inner.url), JSON]
        inner.answers = [answer(302, Location=f"{outer.url}?of=mallory")]
        await asked(
            outer,
            hosts=[host_of(outer), host_of(inner)],
            headers={"Authorization": lambda: "Bearer t0ken"},
        )

    assert ["authorization" in each.headers for each in outer.requests] == [True, False]


async def test_redirects_end():
    async with Receiver(answer(302, Location="/hook")) as receiver:
        assert (await failed(receiver)).error_class == "too_many_redirects"
    assert len(receiver.requests) == 6


async def test_a_request_goes_to_the_address_that_was_checked():
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])

    async def resolve(host: str, port: int) -> list[str]:
        return next(answers)

    async with Receiver(JSON) as receiver:
        port = urlsplit(receiver.url).port
        requests = HttpRequests(
            allowed=allowed_addresses([f"status.example:{port}"], LOOPBACK),
            methods=frozenset({"GET"}),
            headers={},
            timeout_s=10,
            bytes_max=1_000,
            resolve=resolve,
        )
        await requests.make("GET", f"http://status.example:{port}/", None, {}, "e:1")

    assert receiver.requests[0].headers["host"] == f"status.example:{port}"
    assert next(answers) == ["10.0.0.1"]


async def test_nobody_else_says_where_a_request_goes():
    async with Receiver(JSON) as receiver:
        await asked(receiver, args={"_headers": {"host": "evil.example"}})
        assert receiver.requests[0].headers["host"] == host_of(receiver)


async def test_a_certificate_is_checked_against_the_name(server_tls, trusting):
    async with Receiver(JSON, tls=server_tls) as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
        host = urlsplit(url).netloc
        assert (await asked(receiver, url=url, hosts=[host], tls=trusting))["status"] == 200
        assert (await failed(receiver, url=url, hosts=[host])).error_class == "tool_unavailable"


async def test_no_log_has_the_query_of_a_request(caplog):
    caplog.set_level("INFO")
    async with Receiver(JSON) as receiver:
        await asked(receiver, url=f"{receiver.url}?key=t0ken")

    assert receiver.requests[0].path == "/hook?key=t0ken"
    assert "t0ken" not in caplog.text


@pytest.mark.parametrize("body", [b"x" * 1_001, None])
async def test_no_more_is_read_than_is_allowed(body):
    async with Receiver(never_end if body is None else answer(200, body)) as receiver:
        assert (await failed(receiver, bytes_max=1_000)).error_class == "result_too_large"


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (401, "tool_auth_failed"),
        (403, "tool_auth_failed"),
        (404, "tool_not_found"),
        (409, "http_409"),
        (429, "tool_rate_limited"),
        (500, "tool_unavailable"),
        (503, "tool_unavailable"),
    ],
)
async def test_a_status_that_says_no_is_a_failure(status, error_class):
    async with Receiver(answer(status, b"no \n sir" + b"!" * 600)) as receiver:
        failure = await failed(receiver)

    assert failure.error_class == error_class
    assert failure.detail == f"{status}: no sir" + "!" * 494


@pytest.mark.parametrize(
    ("answering", "options", "error_class"),
    [
        (reset, {}, "tool_unavailable"),
        (nonsense, {}, "tool_unavailable"),
        (silence, {"timeout_s": 0.05}, "tool_timeout"),
    ],
)
async def test_no_answer_is_a_failure_with_a_class(answering, options, error_class):
    async with Receiver(answering) as receiver:
        assert (await failed(receiver, **options)).error_class == error_class


async def test_a_secret_that_is_missing_is_a_failure_of_its_own():
    def missing() -> str:
        raise DeliveryFailed("secret_missing", "TOKEN")

    async with Receiver(JSON) as receiver:
        failure = await failed(receiver, headers={"Authorization": missing})
    assert (failure.error_class, failure.detail) == ("secret_missing", "TOKEN")


@pytest.mark.parametrize("secret", ["t0ken\n", "t0ken\0", "t0ken\u00e9"])
async def test_a_secret_that_cannot_be_sent_is_not_told(secret):
    async with Receiver(JSON) as receiver:
        failure = await failed(receiver, headers={"Authorization": lambda: secret})

    assert failure.error_class == "tool_unavailable"
    assert failure.detail in {
        "127.0.0.1: LocalProtocolError",
        "127.0.0.1: UnicodeEncodeError",
    }
    assert failure.__cause__ is None
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hosts": []}, "hosts: [] is not a list of at least one host"),
        ({"methods": []}, "methods: [] are not some of DELETE, GET"),
        ({"methods": ["TRACE"]}, "methods: ['TRACE'] are not some of DELETE, GET"),
        ({"bytes_max": 0}, "bytes_max: 0 is not a whole number from 1 to 8,388,608"),
        ({"timeout_s": 0}, "timeout_s: 0 is not a number over 0"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(options, problem):
    with pytest.raises(BadTool) as refused:
        http_request(**{"hosts": ["a.example"], **options})
    assert problem in str(refused.value)


async def test_the_error_of_an_answer_that_quotes_a_header_is_without_it():
    body = b"x" * 492 + b" Bearer t0ken-of-ann and k3yk3y"
    async with Receiver(answer(400, body)) as receiver:
        failure = await failed(
            receiver,
            headers={"Authorization": lambda: "Bearer t0ken-of-ann"},
            args={"_headers": {"X-Key": "k3yk3y"}},
        )
    assert failure.detail.endswith("x *** and")


def test_the_headers_of_requests_are_secrets_but_for_what_everybody_knows():
    headers = {"X-Key": lambda: "k3yk3y", "Accept": "application/json"}
    web = http_request(hosts=["a.example"], headers=headers)
    assert set(web.secrets()) == {"k3yk3y"}


def test_a_header_that_this_node_lacks_is_no_secret():
    def missing():
        raise DeliveryFailed("secret_missing", "")

    assert not set(http_request(hosts=["a.example"], headers={"X-Key": missing}).secrets())

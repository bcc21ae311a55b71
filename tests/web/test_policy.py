"""Which requests are not even looked at, and what every answer says about itself."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from vigil.web.access.protect import Protected
from vigil.web.policy import BODY_BYTES_MAX, content_policy, local_path, why_foreign

FOREIGN = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://console.evil.example"},
    {"sec-fetch-site": "cross-site", "origin": "http://console"},
    {},
]
OURS = [
    {"sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
    {"origin": "http://console"},
    {"origin": "http://CONSOLE"},
]


def why(headers, *, method="POST", origin="", has_token=False):
    sent = {"host": "console", **headers}
    return why_foreign(method, sent, origin=origin, has_token=has_token)


@pytest.mark.parametrize("headers", FOREIGN)
def test_what_no_page_of_ours_has_sent_is_foreign(headers):
    assert why(headers) is not None


@pytest.mark.parametrize("headers", OURS)
def test_what_a_page_of_ours_has_sent_is_not(headers):
    assert why(headers) is None


@pytest.mark.parametrize("headers", FOREIGN)
def test_looking_changes_nothing_and_is_for_all(headers):
    assert why(headers, method="GET") is None


def test_a_program_with_a_token_need_not_say_where_it_comes_from():
    assert why({}, has_token=True) is None


def test_behind_a_proxy_the_address_that_people_know_counts():
    public = {"origin": "https://vigil.example"}

    assert why(public, origin="https://vigil.example") is None
    assert why({"origin": "http://console"}, origin="https://vigil.example") is not None


@pytest.mark.parametrize(
    "text",
    ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "", "x",
     "/\t/evil.example", "/a\nb"],
)  # fmt: skip
def test_only_pages_of_ours_are_led_to(text):
    assert local_path(text) == "/"


def test_a_page_of_ours_is_led_to_with_its_filters():
    assert local_path("/episodes?status=failed") == "/episodes?status=failed"


def test_the_policy_lets_a_page_run_its_own_script_alone():
    policy = content_policy("n0nce")

    assert "default-src 'none'" in policy
    assert "script-src 'nonce-n0nce' 'strict-dynamic'" in policy
    assert "unsafe" not in policy


async def read_all(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


def sending() -> httpx.AsyncClient:
    app = Protected(Starlette(routes=[Route("/", read_all, methods=["GET", "POST"])]))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://console")


async def test_a_foreign_request_is_refused_with_the_reason():
    async with sending() as client:
        answer = await client.post("/", headers={"sec-fetch-site": "cross-site"})

    assert answer.status_code == 403
    assert "another site" in answer.text


async def test_every_answer_says_what_browsers_may_do():
    async with sending() as client:
        answer = await client.get("/")

    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_body_that_is_too_long_is_not_read(is_chunked):
    async def chunks():
        for _ in range(BODY_BYTES_MAX // 65_536 + 1):
            yield b"x" * 65_536

    body = chunks() if is_chunked else b"x" * (BODY_BYTES_MAX + 1)
    async with sending() as client:
        answer = await client.post("/", content=body, headers={"sec-fetch-site": "same-origin"})

    assert answer.status_code == 413

"""Over HTTP: who is let in, with which token, and what the others are told."""

from __future__ import annotations

from contextlib import asynccontextmanager

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from engine.people.identity import Role
from streams.clock import SystemClock
from streams.memory import memory_ports
from tests.mcp.reaching import names, over_http, person, program
from vigil.client import Client
from vigil.errors import Mistake
from vigil.mcp.caller import ACT, READ, local_identity
from vigil.mcp.http import TOKEN_CHARS_MAX, asgi_app, is_loopback

URL = "http://vigil.example.com"
AT = f"{URL}/mcp"
LOCAL = "http://127.0.0.1:8090"

PEOPLE = {
    "vt_reader": program(READ, name="cleo"),
    "vt_actor": program(READ, ACT, name="cleo"),
    "vt_publisher": program("events:publish", name="cleo"),
    "vs_ann": person("ann", role=Role.ADMIN),
}
"""Token → who comes with it."""


class Identified:
    """Knows the people of a stack, and whom it was asked for."""

    def __init__(self) -> None:
        self.people = dict(PEOPLE)
        self.asked: list[str] = []

    async def __call__(self, text: str):
        self.asked.append(text)
        return self.people.get(text)


@asynccontextmanager
async def serving(*, url: str = URL, identify=None, local=None):
    client = Client.on(memory_ports(clock=SystemClock()), by="bo")
    app = asgi_app(client, url=url, identify=identify, local=local)
    async with app.router.lifespan_context(app):
        yield httpx2.ASGITransport(app=app)


def at_home():
    """Serve whoever is on this machine, without tokens."""
    return serving(url=LOCAL, local=local_identity("bo"))


@asynccontextmanager
async def plain(transport, **headers: str):
    async with httpx2.AsyncClient(transport=transport, headers=headers) as http:
        yield http


BODY = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.mark.parametrize(
    "sent", [{}, {"Authorization": "Bearer vt_nobody"}, {"Authorization": "Basic YTpi"}]
)
async def test_who_has_no_token_is_told_where_to_get_one(sent):
    async with serving(identify=Identified()) as transport, plain(transport, **sent) as http:
        answer = await http.post(AT, json=BODY)
        metadata = await http.get(f"{URL}/.well-known/oauth-protected-resource/mcp")
    assert answer.status_code == 401
    at = f'resource_metadata="{URL}/.well-known/oauth-protected-resource/mcp"'
    assert at in answer.headers["www-authenticate"]
    assert metadata.json()["resource"] == AT
    assert metadata.json()["scopes_supported"] == [READ]


async def test_a_token_that_is_for_something_else_is_forbidden():
    token = {"Authorization": "Bearer vt_publisher"}
    async with serving(identify=Identified()) as transport, plain(transport, **token) as http:
        answer = await http.post(AT, json=BODY)
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize(
    ("token", "acts"), [("vt_reader", False), ("vt_actor", True), ("vs_ann", True)]
)
async def test_each_is_listed_what_the_own_token_is_for(token, acts):
    async with (
        serving(identify=Identified()) as transport,
        over_http(AT, token=token, transport=transport) as mcp,
    ):
        assert ("fire" in names(await mcp.list_tools())) is acts


async def test_a_token_is_looked_up_for_each_request_so_that_one_that_was_revoked_ends():
    identified, sent = Identified(), {"Authorization": "Bearer vt_reader"}
    async with serving(identify=identified) as transport, plain(transport, **sent) as http:
        assert (await http.post(AT, json=BODY)).status_code != 401
        del identified.people["vt_reader"]
        assert (await http.post(AT, json=BODY)).status_code == 401


async def test_a_text_that_is_too_long_to_be_a_token_is_not_looked_up():
    identified = Identified()
    sent = {"Authorization": f"Bearer {'x' * (TOKEN_CHARS_MAX + 1)}"}
    async with serving(identify=identified) as transport, plain(transport, **sent) as http:
        answer = await http.post(AT, json=BODY)
    assert (answer.status_code, identified.asked) == (401, [])


@pytest.mark.parametrize("url", ["http://0.0.0.0:8090", "http://vigil.example.com", "http://[::]"])
async def test_without_tokens_it_is_served_on_loopback_only(url):
    with pytest.raises(Mistake, match="loopback only"):
        async with serving(url=url, local=local_identity("bo")):
            pass


async def test_without_tokens_who_has_started_it_calls():
    async with at_home() as transport, over_http(f"{LOCAL}/mcp", transport=transport) as mcp:
        assert "fire" not in names(await mcp.list_tools())


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example.com"}, {"Host": "evil.example.com"}]
)
async def test_a_page_of_another_site_is_refused(headers):
    async with at_home() as transport, plain(transport, **headers) as http:
        answer = await http.post(f"{LOCAL}/mcp", json=BODY)
    assert answer.status_code in {403, 421}


@pytest.mark.parametrize("host", ["127.0.0.1:8090", "localhost:8090", "[::1]:8090"])
async def test_on_loopback_it_answers_by_each_name_of_the_machine(host):
    async with at_home() as transport, plain(transport, Host=host) as http:
        answer = await http.post(f"{LOCAL}/mcp", json=BODY)
    assert answer.status_code not in {403, 421}


async def test_a_request_that_is_too_large_is_refused():
    large = {**BODY, "params": {"x": "y" * 2_000_000}}
    async with at_home() as transport, plain(transport) as http:
        answer = await http.post(f"{LOCAL}/mcp", json=large)
    assert answer.status_code == 413


async def test_the_server_says_that_it_knows_tasks():
    async with at_home() as transport, over_http(f"{LOCAL}/mcp", transport=transport) as mcp:
        assert "io.modelcontextprotocol/tasks" in mcp.server_capabilities.extensions
        assert "People decide, not you" in mcp.instructions


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("::", False), ("db-1", False)],
)
def test_what_is_on_loopback_is_known_by_its_address(host, is_it):
    assert is_loopback(host) is is_it


async def test_it_can_be_a_part_of_another_application():
    client = Client.on(memory_ports(clock=SystemClock()), by="bo")
    part = asgi_app(client, url=URL, identify=Identified())

    async def page(request):
        del request
        return PlainTextResponse("a page")

    whole = Starlette(
        routes=[Route("/", page), Mount("", app=part)],
        lifespan=lambda _: part.router.lifespan_context(part),
    )
    async with whole.router.lifespan_context(whole):
        transport = httpx2.ASGITransport(app=whole)
        async with plain(transport) as http:
            assert (await http.get(f"{URL}/")).text == "a page"
            assert (await http.post(AT, json=BODY)).status_code == 401
        async with over_http(AT, token="vt_reader", transport=transport) as mcp:
            assert "find" in names(await mcp.list_tools())

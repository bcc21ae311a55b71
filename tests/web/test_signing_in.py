"""Who sends a request: sessions in cookies, tokens in headers, and nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie

import httpx
import pytest

from engine.people.identity import Role
from streams.clock import SystemClock
from streams.memory import memory_ports
from tests.web.conftest import ADDRESS, PASSWORD
from vigil.client import Client
from vigil.errors import Mistake, Trouble
from vigil.mcp.http import asgi_app
from vigil.web.access.sign_in import HOST_SESSION, SESSION
from vigil.web.app import console
from vigil.web.serve import is_loopback, listen, require_people

pytestmark = pytest.mark.usefixtures("quick_hashes")

OURS = {"sec-fetch-site": "same-origin"}


@pytest.fixture
async def anonymous(client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody whom the console does not know yet."""
    transport = httpx.ASGITransport(app=console(client))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=OURS) as sending:
        yield sending


@pytest.fixture
async def carol(client: Client) -> AsyncIterator[str]:
    await client.people.add("carol", role=Role.OPERATOR, password=PASSWORD, by="root")
    yield "carol"
    await client.people.remove("carol", by="root")


async def signed_in(sending: httpx.AsyncClient, name: str, **said: str) -> httpx.Response:
    return await sending.post("/login", data={"name": name, "password": PASSWORD, **said})


async def test_a_password_begins_a_session_in_a_cookie_that_no_script_sees(anonymous, carol):
    answer = await signed_in(anonymous, carol, to="/episodes")

    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert answer.headers["location"] == "/episodes"
    assert (cookie.key, cookie["httponly"], cookie["samesite"]) == (SESSION, True, "lax")
    assert (await anonymous.get("/episodes")).status_code == 200


async def test_behind_https_the_cookie_is_for_this_host_alone(client, carol):
    transport = httpx.ASGITransport(app=console(client, origin="https://vigil.example"))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=OURS) as sending:
        answer = await signed_in(sending, carol)

    (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert (cookie.key, cookie["secure"], cookie["path"]) == (HOST_SESSION, True, "/")
    assert not cookie["domain"]


async def test_a_session_is_made_by_signing_in_and_never_taken_over(anonymous, carol):
    anonymous.cookies.set(SESSION, "vs_carol_chosen-by-somebody-else")

    answer = await signed_in(anonymous, carol)

    assert "chosen-by-somebody-else" not in answer.headers["set-cookie"]
    assert (await anonymous.get("/")).status_code in {200, 303}


@pytest.mark.parametrize("to", ["https://evil.example", "//evil.example", "/\\evil.example"])
async def test_nobody_is_led_elsewhere_after_signing_in(anonymous, carol, to):
    answer = await signed_in(anonymous, carol, to=to)

    assert answer.headers["location"] == "/"


async def test_a_wrong_password_begins_no_session(anonymous, carol):
    answer = await anonymous.post("/login", data={"name": carol, "password": "not this one"})

    assert answer.status_code == 401
    assert SESSION not in answer.headers.get("set-cookie", "")


async def test_who_signs_out_is_out_everywhere(anonymous, carol):
    await signed_in(anonymous, carol)
    kept = anonymous.cookies[SESSION]

    await anonymous.post("/do/sign_out")

    anonymous.cookies.set(SESSION, kept)
    assert (await anonymous.get("/episodes")).status_code == 303


async def test_a_token_counts_before_a_session(client, anonymous, carol):
    await signed_in(anonymous, carol)

    bad = await anonymous.get("/api/v1/episodes", headers={"authorization": "Bearer vt_no_such"})
    other = await anonymous.get("/api/v1/episodes", headers={"authorization": "Basic eDp5"})

    assert (bad.status_code, other.status_code) == (401, 401)


async def test_a_form_carries_out_what_the_role_may(anonymous, client, carol):
    await signed_in(anonymous, carol)
    fields = {"name": "nobody.listens", "payload:json": '{"a": 1}', "back": "/events"}

    answer = await anonymous.post("/do/events.publish", data=fields)

    assert answer.headers["location"] == "/events"
    assert "published" in answer.headers["set-cookie"]


async def test_a_form_does_not_what_the_role_may_not(anonymous, client, carol):
    await client.people.set_role(carol, Role.VIEWER, by="root")
    await signed_in(anonymous, carol)

    answer = await anonymous.post("/do/events.publish", data={"name": "x", "payload:json": "{}"})

    assert "operator" in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": "x", "payload:json": "{"}, "is%20no%20JSON"),
        ({"payload:json": "{}"}, "name"),
        ({"name": "x", "payload:json": "{}", "unknown": "1"}, "unknown"),
    ],
)
async def test_a_form_that_cannot_be_says_why(anonymous, carol, fields, says):
    await signed_in(anonymous, carol)

    answer = await anonymous.post("/do/events.publish", data=fields)

    assert says in answer.headers["set-cookie"]


async def test_a_page_of_others_orders_nothing(anonymous, carol):
    await signed_in(anonymous, carol)

    answer = await anonymous.post(
        "/do/events.publish", data={"name": "x"}, headers={"sec-fetch-site": "cross-site"}
    )

    assert answer.status_code == 403


async def test_a_page_that_there_is_not_is_told_beside_an_mcp_server_too(client):
    app = console(client, mcp=asgi_app(client, url=ADDRESS, identify=client.people.identify))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as sending:
        page = await sending.get("/no/such/page", headers={"accept": "text/html"})

    assert page.status_code == 404
    assert "<h1>There is no such page</h1>" in page.text


async def test_an_mcp_client_without_a_token_is_told_where_to_find_out(client):
    mcp = asgi_app(client, url=ADDRESS, identify=client.people.identify)
    app = console(client, mcp=mcp)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=ADDRESS) as sending,
    ):
        answer = await sending.post("/mcp", json={})

    assert answer.status_code == 401
    assert "resource_metadata" in answer.headers["www-authenticate"]


def test_only_this_machine_is_loopback():
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")  # noqa: S104 - what must not pass for loopback
    assert not is_loopback("10.0.0.1")


async def test_elsewhere_is_served_once_somebody_can_sign_in(stack):
    ports = memory_ports(stack=stack, clock=SystemClock())
    async with Client.on(ports, by="root") as client:
        with pytest.raises(Mistake, match="nobody could sign in"):
            await require_people(client, "10.0.0.1")

        await client.people.add("ann", role=Role.ADMIN, password=PASSWORD)

        await require_people(client, "10.0.0.1")


def test_a_port_that_is_taken_is_told_if_it_was_named():
    with listen("127.0.0.1", 0) as taken, pytest.raises(Trouble, match="in use"):
        listen("127.0.0.1", taken.getsockname()[1])

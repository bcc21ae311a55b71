"""Who acts through a server that somebody has started: on a stack that wants people to sign in."""

from __future__ import annotations

import pytest
from mcp import MCPError

from streams.clock import SystemClock
from streams.memory import memory_ports
from tests.mcp.reaching import served
from vigil.client import Client
from vigil.errors import Mistake, NotSignedIn, Trouble
from vigil.logins import VARIABLE
from vigil.mcp.caller import ACT, local_identity
from vigil.mcp.local import LocalCaller
from vigil.settings import Config, read

pytestmark = pytest.mark.usefixtures("quick_hashes")

PASSWORD = "correct horse battery"


@pytest.fixture
async def client(stack):
    async with Client.on(memory_ports(stack=stack, clock=SystemClock()), by="ann") as client:
        await client.people.add("ann", role="admin", password=PASSWORD)
        await client.people.add("eve", role="viewer", password=PASSWORD)
        yield client


@pytest.fixture
def config(tmp_path, monkeypatch) -> Config:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    return read({}, folder=tmp_path)


def started(client: Client, config: Config, typed: str | None = None) -> LocalCaller:
    return LocalCaller(client, config, local_identity(typed or "root", [ACT]), typed=typed)


async def signed_in(client, monkeypatch, name: str = "ann") -> None:
    session = await client.people.sign_in(name, PASSWORD, address="10.0.0.7")
    monkeypatch.setenv(VARIABLE, session.secret)


async def test_a_stack_that_wants_no_login_believes_who_has_started_the_server(client, config):
    caller = started(client, config, "bo")
    await caller.before_acting()
    assert caller.identity.name == "bo"


async def test_a_stack_that_wants_a_login_knows_who_acts(client, config, monkeypatch):
    caller = started(client, config)
    await client.people.require_login()
    with pytest.raises(NotSignedIn, match="run `vigil login`"):
        await caller.before_acting()
    await signed_in(client, monkeypatch)

    await caller.before_acting()

    assert (caller.identity.name, caller.identity.token) == ("ann", "local")


async def test_a_server_that_an_agents_token_has_signed_in_acts_for_an_agent(
    client, config, monkeypatch
):
    caller = started(client, config)
    await client.people.require_login()
    token = await client.tokens.issue("t", role="operator", is_agent=True, by="ann")
    monkeypatch.setenv(VARIABLE, token.secret)

    await caller.before_acting()

    assert caller.identity.is_agent


async def test_who_has_signed_in_acts_as_nobody_else(client, config, monkeypatch):
    await client.people.require_login()
    await signed_in(client, monkeypatch)
    with pytest.raises(Mistake, match="you are signed in as 'ann'"):
        await started(client, config, "bo").before_acting()


async def test_who_may_only_look_acts_not(client, config, monkeypatch):
    await client.people.require_login()
    await signed_in(client, monkeypatch, "eve")
    with pytest.raises(Trouble, match="this takes the role operator"):
        await started(client, config).before_acting()


async def test_what_acts_is_refused_and_what_reads_is_not(client, config):
    caller = started(client, config)
    await client.people.require_login()
    async with served(client, caller.identity, before_acting=caller.before_acting) as mcp:
        with pytest.raises(MCPError, match="run `vigil login`"):
            await mcp.call_tool("publish", {"name": "disk.full", "payload": {}})
        assert "no rows to ask" in str(await mcp.call_tool("episode", {"id": "0" * 8}))

"""The server of a stack for agents, as a program on real servers, asked by the SDK's own client."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx2
import pytest
import uvicorn
from mcp import Client as McpClient
from mcp import StdioServerParameters

from engine.operations.decide_request import ApprovalTarget
from streams.clock import SystemClock
from tests.acceptance.cluster import ROOT, Cluster, NodeProcess
from tests.acceptance.kept import APPROVER
from tests.mcp.reaching import INFO, KnowsTasks, look, names, over_http, program, text_of
from vigil.client import Client
from vigil.mcp.caller import ACT, READ
from vigil.mcp.http import asgi_app
from vigil.mcp.run import _listening

APP: Final = "tests.acceptance.kept:app"
WAIT_S: Final = 60.0
LOOK_S: Final = 0.2
LEASE_S: Final = "5"
"""How long the claims of a node outlive it."""
FIRE: Final = {
    "actor": "keeper",
    "expectation": "db_is_up",
    "payload": {"host": "db-1"},
    "key": "k1",
    "reason": "it is slow",
}
READS: Final = {
    "find": {},
    "finding": {"key": "db:db-1"},
    "episodes": {"actor": "keeper", "hours": 1},
    "costs": {},
    "health": {},
    "approvals": {},
    "explain_not_fired": {"event_id": "nothing"},
}
CLOCK: Final = SystemClock()


def environ(cluster: Cluster) -> dict[str, str]:
    settings = {
        "VIGIL_NATS_URL": cluster.nats_url,
        "VIGIL_POSTGRES_DSN": cluster.postgres.dsn,
        "VIGIL_LOG": "json",
    }
    return {**os.environ, "PYTHONPATH": str(ROOT), **settings}


def command(*arguments: str) -> list[str]:
    return ["-m", "vigil", "mcp", "serve", *arguments]


class HttpServer:
    """`vigil mcp serve --http`, as a program that may be killed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.url = ""
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        arguments = command("--http", "127.0.0.1:0", "--allow", "act")
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env=environ(self._cluster), stdout=pipe, stderr=pipe
        )
        assert self._process.stdout is not None
        self.url = (await self._process.stdout.readline()).decode().strip()
        assert self.url.startswith("http://127.0.0.1:"), await self.said()

    async def stop(self) -> int:
        """Tell it to stop, and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        async with CLOCK.timeout(WAIT_S):
            return await self._process.wait()

    async def said(self) -> str:
        """Kill it, and return what it has logged."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        return (await self._process.communicate())[1].decode()


@asynccontextmanager
async def http_server(cluster: Cluster) -> AsyncIterator[HttpServer]:
    server = HttpServer(cluster)
    try:
        await server.start()
        yield server
    finally:
        await server.said()


@asynccontextmanager
async def over_stdio(
    cluster: Cluster, *arguments: str, knows: KnowsTasks | None = None
) -> AsyncIterator[McpClient]:
    start = StdioServerParameters(
        command=sys.executable, args=command(*arguments), env=environ(cluster)
    )
    extensions = [knows] if knows else []
    async with McpClient(start, client_info=INFO, extensions=extensions, cache=None) as mcp:
        yield mcp


def client_of(cluster: Cluster, *, by: str = APPROVER) -> Client:
    return Client(nats_url=cluster.nats_url, postgres_dsn=cluster.postgres.dsn, by=by)


async def until(mcp: McpClient, task: str, status: str):
    """Look at a task until it is as wanted."""
    async with CLOCK.timeout(WAIT_S):
        while (state := await look(mcp, task)).status != status:
            await CLOCK.sleep(LOOK_S)
    return state


async def until_projected(client: Client, task: str) -> None:
    await client.episodes.wait(task, timeout_s=WAIT_S)


async def ready(cluster: Cluster, name: str) -> NodeProcess:
    node = await cluster.start(name, app=APP, VIGIL_LEASE_S=LEASE_S)
    async with client_of(cluster) as client:
        await client.nodes.wait_ready("keeper", timeout_s=WAIT_S)
    await cluster.wait_at_least("select 1 from episodes", 0, most_s=WAIT_S)  # There are tables.
    return node


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_a_task_outlives_its_client_its_server_and_its_node(cluster: Cluster):
    node, knows = await ready(cluster, "n1"), KnowsTasks()
    async with http_server(cluster) as first:
        async with over_http(first.url, knows=knows) as mcp:
            task = await knows.fired(mcp, **FIRE)
            await until(mcp, task, "input_required")
        said = await first.said()
    node.kill()

    await ready(cluster, "n2")
    async with http_server(cluster) as second, over_http(second.url, knows=knows) as mcp:
        assert await knows.fired(mcp, **FIRE) == task
        assert (await look(mcp, task)).status == "input_required"
        async with client_of(cluster) as client:
            await client.approvals.decide(ApprovalTarget("episode", task), "approve")
        state = await until(mcp, task, "completed")
    assert state.result["structuredContent"]["summary"] == "restarted db-1"
    assert state.result["structuredContent"]["findings"] == {"db:db-1": "raised"}
    assert '"what": "fire"' in said
    assert '"client": "chat 1.2"' in said

    async with over_stdio(cluster, knows=knows) as mcp:
        assert (await look(mcp, task)).result == state.result


@pytest.mark.parametrize("transport", ["stdio", pytest.param("http", marks=pytest.mark.nightly)])
async def test_the_stack_can_be_read_as_its_rows_have_it(cluster: Cluster, transport: str):
    await ready(cluster, "n1")
    async with client_of(cluster) as client:
        fired = await client.fire("keeper", "db_is_up", {"host": "db-1"})
        await approved(client, fired.episode_id)
        await until_projected(client, fired.episode_id)
    async with asked(cluster, transport) as mcp:
        for tool, arguments in READS.items():
            answer = await mcp.call_tool(tool, arguments)
            assert not answer.is_error, (tool, text_of(answer))
        (found,) = (await mcp.call_tool("find", {})).structured_content["items"]
        id_ = fired.episode_id[:8]
        episode = (await mcp.call_tool("episode", {"id": id_})).structured_content
        line = (await mcp.call_tool("timeline", {"id": id_, "limit": 2})).structured_content
        uri = f"vigil://findings/{found['finding_key']}"
        assert found["finding_key"] in (await mcp.read_resource(uri)).contents[0].text
        absent = await mcp.call_tool("finding", {"key": "nothing"})
    assert (episode["episode"]["status"], len(line["items"])) == ("done", 2)
    assert line["next"]
    assert absent.is_error
    assert "no finding 'nothing'" in text_of(absent)


async def approved(client: Client, id_: str) -> None:
    async with CLOCK.timeout(WAIT_S):
        while [each.status for each in await client.episodes.read([id_])] != ["blocked"]:
            await CLOCK.sleep(LOOK_S)
    await client.approvals.decide(ApprovalTarget("episode", id_), "approve")


@pytest.mark.nightly
async def test_a_client_of_an_older_protocol_is_served_too(cluster: Cluster):
    await ready(cluster, "n1")
    async with (
        http_server(cluster) as server,
        over_http(server.url, mode="legacy") as mcp,
    ):
        assert "fire" in names(await mcp.list_tools())
        answer = await mcp.call_tool("explain_not_fired", {"event_id": "nothing"})
        assert not answer.is_error, text_of(answer)


@asynccontextmanager
async def asked(cluster: Cluster, transport: str) -> AsyncIterator[McpClient]:
    if transport == "stdio":
        async with over_stdio(cluster) as mcp:
            assert "fire" not in names(await mcp.list_tools())
            yield mcp
        return
    async with http_server(cluster) as server, over_http(server.url) as mcp:
        assert "fire" in names(await mcp.list_tools())
        yield mcp


PEOPLE: Final = {
    "vt_reader": program(READ, name="cleo"),
    "vt_actor": program(READ, ACT, name="cleo"),
    "vt_other": program("events:publish", name="cleo"),
}


async def identify(text: str):
    return PEOPLE.get(text)


async def test_it_ends_in_order_when_it_is_told_to(cluster: Cluster):
    async with http_server(cluster) as server:
        assert await server.stop() == 0


async def test_over_sockets_a_token_says_what_may_be_done_and_by_whom(cluster: Cluster):
    await ready(cluster, "n1")
    listening = _listening("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with client_of(cluster, by="server") as client:
        app = asgi_app(client, url=url, identify=identify)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            await check_tokens(client, f"{url}/mcp")
        finally:
            server.should_exit = True
            await serving


async def check_tokens(client: Client, at: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as http:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        nobody = await http.post(at, json=body)
        other = await http.post(at, json=body, headers={"Authorization": "Bearer vt_other"})
    assert "oauth-protected-resource/mcp" in nobody.headers["www-authenticate"]
    assert (nobody.status_code, other.status_code) == (401, 403)
    async with over_http(at, token="vt_reader") as mcp:
        assert "fire" not in names(await mcp.list_tools())
    async with over_http(at, token="vt_actor") as mcp:
        answer = await mcp.call_tool("fire", FIRE)
    assert not answer.is_error, text_of(answer)
    async with CLOCK.timeout(WAIT_S):
        while not (rows := (await client.episodes.list(actor="keeper")).items):
            await CLOCK.sleep(LOOK_S)
    record = await client.episodes.get(rows[0].episode_id)
    assert record.opened_by == "cleo" or record.trigger_ref["requested_by"] == "cleo"

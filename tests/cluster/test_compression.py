"""A compressed stack on three servers: nodes refuse it, one command mends it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from streams.errors import Incompatible, Unavailable
from streams.jetstream import LinkSettings, connect, inspect, uncompress
from streams.layout import Stream
from streams.subjects import Stack
from tests.acceptance.cluster import wait_until
from tests.cluster.three import Three
from tests.streams.jetstream.test_compression import compress, compression_of
from tests.streams.jetstream.test_setup import api
from vigil.asking.repairs.diagnosis import look_at_servers, of_stream

SETTINGS: Final = LinkSettings(replicas=3)
RESTART_S_MAX: Final = 60.0
LOOK_S: Final = 0.2
STACKS: Final = 4


async def mend(three: Three, stack: Stack, told: list[str]) -> Sequence[str]:
    """Run the command; note what it tells."""

    def tell(stage: str, done: int, total: int) -> None:
        told.append(f"{stage} {done} of {total}")

    return await uncompress(three.url, stack=stack, tell=tell, settings=SETTINGS)


async def wait_whole(three: Three, stack: Stack) -> None:
    """Wait until all servers are there, with all that `stack` has."""
    async with asyncio.timeout(RESTART_S_MAX):
        while not await are_whole(three, stack):  # noqa: ASYNC110 - servers start meanwhile
            await asyncio.sleep(LOOK_S)


async def are_whole(three: Three, stack: Stack) -> bool:
    try:
        found = await inspect(three.url, stack=stack, settings=SETTINGS)
    except Unavailable:
        return False
    return len(found.servers) == len(three.servers) and not any(s.behind for s in found.streams)


async def start_node(three: Three, stack: Stack) -> None:
    async with connect(three.url, stack=stack, settings=SETTINGS, is_for_node=True):
        pass


async def test_a_node_refuses_a_compressed_stack_until_every_server_was_restarted(
    three: Three, stack: Stack
):
    name, told = stack.stream(Stream.EVENTS), list[str]()
    async with connect(three.url, stack=stack, settings=SETTINGS), api(three.url.split(",")) as ask:
        await compress(ask, name)
        with pytest.raises(Incompatible, match=f"{name} is compressed.*2.15") as refused:
            await start_node(three, stack)
        assert "vigil uncompress" in refused.value.remedy
        assert await compression_of(ask, name) == "s2"

        changing = asyncio.create_task(mend(three, stack, told))
        await wait_until(lambda: bool(told), "the change", most_s=RESTART_S_MAX)
        assert await compression_of(ask, name) == "none"
        with pytest.raises(Incompatible, match="s1, s2, s3 has not been restarted"):
            await start_node(three, stack)

    changing.cancel()
    await asyncio.wait([changing])
    for server in three.servers.values():
        await asyncio.to_thread(server.restart)
        await wait_whole(three, stack)
    assert await mend(three, stack, told) == [name]
    assert told[-1] == "servers restarted 3 of 3"
    await start_node(three, stack)


async def test_a_node_starts_by_itself_once_the_servers_were_restarted(three: Three, stack: Stack):
    name, told = stack.stream(Stream.JOURNAL), list[str]()
    async with connect(three.url, stack=stack, settings=SETTINGS), api(three.url.split(",")) as ask:
        await compress(ask, name)
        changing = asyncio.create_task(mend(three, stack, told))
        await wait_until(lambda: bool(told), "the change", most_s=RESTART_S_MAX)
    changing.cancel()
    await asyncio.wait([changing])
    for server in three.servers.values():
        await asyncio.to_thread(server.restart)
        await wait_whole(three, stack)

    await start_node(three, stack)

    found = await inspect(three.url, stack=stack, settings=SETTINGS)
    assert not any(each.is_compressed for each in found.streams)


async def test_nodes_that_start_together_on_different_servers_agree(three: Three):
    async def start(url: str, stack: Stack) -> str:
        async with connect(url, stack=stack, settings=SETTINGS) as ports:
            return ports.stack.name

    for number in range(STACKS):
        stack = Stack(f"together{number}")
        starting = (start(server.url, stack) for server in three.servers.values())
        assert await asyncio.gather(*starting) == [stack.name] * 3


async def test_doctor_knows_every_server_and_every_replica(three: Three, stack: Stack):
    async with connect(three.url, stack=stack, settings=SETTINGS), api(three.url.split(",")) as ask:
        await compress(ask, stack.stream(Stream.EVENTS))
        await wait_whole(three, stack)
        found = await inspect(three.url, stack=stack, settings=SETTINGS)

    assert found.servers.keys() == {"s1", "s2", "s3"}
    assert look_at_servers(found.servers, copies=3).status == "ok"
    by_name: dict[str, Any] = {each.name: of_stream(each) for each in found.streams}
    events = by_name.pop(stack.stream(Stream.EVENTS))
    assert (events.status, "vigil uncompress" in events.remedy) == ("problem", True)
    assert {each.status for each in by_name.values()} == {"ok"}

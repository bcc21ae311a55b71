"""Calls of tools on one node: their rates, their breakers, and what is kept of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from engine.app.actions import tool_call
from engine.app.function_tool import tool
from engine.app.tools import CallContext, Tool, ToolBreaker, ToolFailed
from engine.usercode import tool_calls
from engine.usercode.threads import Threads
from engine.usercode.tool_calls import ToolCalls
from streams.memory import memory_ports
from tests.engine.stage import Later

CTX = CallContext(
    actor_id="a", expectation_id="x", episode_id="e", step_no=1, idempotency_key="e:1"
)


class Watch(Later):
    """A clock on which a sleep takes no time, but is remembered."""

    def __init__(self):
        self.slept: list[float] = []

    def monotonic_s(self):
        return self.ahead_s

    async def sleep(self, seconds):
        self.slept.append(round(seconds, 3))
        self.ahead_s += seconds


class Bench:
    """A tool `look` that fails as it is told, with the calls of a node."""

    def __init__(self, **options):
        self.clock, self.failing, self.made = Watch(), "", 0
        self.beside: Callable[[], Awaitable[None]] | None = None

        async def look(what: object) -> object:
            self.made += 1
            if self.beside is not None:
                await self.beside()
            if self.failing:
                raise ToolFailed(self.failing)
            return what

        self.tool = tool(**options)(look)
        self.calls = ToolCalls(self.clock, memory_ports(clock=self.clock).gates)

    async def call(self, what: object = "a", *, actor_id: str = "a") -> object:
        ctx = replace(CTX, actor_id=actor_id)
        return await self.calls.make(self.tool, tool_call(self.tool, what=what), ctx)

    async def fails(self, failing: str = "") -> str:
        """Return the error class of a call."""
        self.failing = failing
        with pytest.raises(ToolFailed) as failed:
            await self.call()
        self.failing = ""
        return failed.value.error_class


async def test_calls_wait_for_the_turn_that_their_rate_gives_them():
    bench = Bench(rate_per_s=4)

    for _ in range(3):
        await bench.call()

    assert bench.clock.slept == [0.25, 0.25]


async def test_a_call_whose_turn_is_far_fails_and_takes_none():
    bench = Bench(rate_per_s=0.1)
    await bench.call()

    assert await bench.fails() == "tool_rate_limited"
    assert await bench.fails() == "tool_rate_limited"

    bench.clock.ahead_s += 10
    assert await bench.call() == "a"


async def test_failures_in_a_row_open_the_breaker():
    bench = Bench(breaker=ToolBreaker(threshold=2, half_open_after_s=30))
    assert await bench.fails("tool_timeout") == "tool_timeout"
    assert await bench.fails("tool_unavailable") == "tool_unavailable"

    assert await bench.fails() == "tool_breaker_open"
    assert bench.made == 2


async def test_a_success_between_failures_keeps_it_closed():
    bench = Bench(breaker=ToolBreaker(threshold=2, half_open_after_s=30))
    await bench.fails("crash")
    await bench.call()
    await bench.fails("crash")

    assert await bench.call() == "a"


async def test_what_the_tool_has_answered_is_no_failure_of_it():
    bench = Bench(breaker=ToolBreaker(threshold=1, half_open_after_s=30))
    await bench.fails("tool_not_found")

    assert await bench.call() == "a"


async def test_after_its_time_one_call_is_let_through_and_closes_it():
    bench = Bench(breaker=ToolBreaker(threshold=1, half_open_after_s=30))
    await bench.fails("crash")
    bench.clock.ahead_s += 30

    assert [await bench.call(), await bench.call()] == ["a", "a"]


async def test_no_other_call_is_let_through_beside_it():
    bench = Bench(breaker=ToolBreaker(threshold=1, half_open_after_s=30))
    await bench.fails("crash")
    bench.clock.ahead_s += 30
    told: list[str] = []

    async def look_beside() -> None:
        bench.beside = None
        told.append(await bench.fails())

    bench.beside = look_beside

    assert await bench.call() == "a"
    assert told == ["tool_breaker_open"]


async def test_a_call_let_through_that_fails_opens_it_again():
    bench = Bench(breaker=ToolBreaker(threshold=2, half_open_after_s=30))
    await bench.fails("crash")
    await bench.fails("crash")
    bench.clock.ahead_s += 30
    assert await bench.fails("crash") == "crash"

    assert await bench.fails() == "tool_breaker_open"


async def test_the_wait_for_a_thread_is_a_part_of_the_time_of_a_call(monkeypatch):
    monkeypatch.setattr(tool_calls, "Threads", partial(Threads, most=1))
    let_go, begun = threading.Event(), []

    @tool(timeout_s=0.05)
    def hang() -> None:
        let_go.wait(timeout=60)

    clock = Watch()
    calls = ToolCalls(clock, memory_ports(clock=clock).gates)
    for number in (1, 2):
        with pytest.raises(ToolFailed, match="tool_timeout: no result within"):
            async with asyncio.timeout(10):
                await calls.make(hang, tool_call(hang), CTX, begin=partial(begun.append, number))
    let_go.set()

    assert begun == [1]


async def test_what_is_kept_ends_with_its_time():
    bench = Bench(cache_ttl_s=60)
    await bench.call()
    bench.clock.ahead_s += 59
    await bench.call()
    assert bench.made == 1

    bench.clock.ahead_s += 1
    await bench.call()

    assert bench.made == 2


async def test_a_failure_is_not_kept():
    bench = Bench(cache_ttl_s=60)
    await bench.fails("crash")

    assert await bench.call() == "a"


async def test_what_is_kept_is_changed_by_nobody():
    bench = Bench(cache_ttl_s=60)
    first = await bench.call({"n": [1]})
    assert isinstance(first, dict)
    (await bench.call({"n": [1]}))["n"].append(2)  # type: ignore[index] # a dict

    assert await bench.call({"n": [1]}) == {"n": [1]}


async def test_the_oldest_results_make_room(monkeypatch):
    monkeypatch.setattr(tool_calls, "KEPT_MAX", 2)
    bench = Bench(cache_ttl_s=60)
    for what in ("a", "b", "c", "c", "b", "a"):
        await bench.call(what)

    assert bench.made == 4


async def test_results_that_are_too_large_together_make_room(monkeypatch):
    monkeypatch.setattr(tool_calls, "KEPT_BYTES_MAX", 150)
    bench = Bench(cache_ttl_s=60)
    for what in ("a" * 100, "b" * 100, "b" * 100, "a" * 100):
        await bench.call(what)

    assert bench.made == 3


@pytest.mark.parametrize(("size", "made"), [(60_000, 1), (70_000, 2)])
async def test_all_nodes_share_small_results_only(size, made):
    bench = Bench(cache_ttl_s=60, cache_scope="stack")
    for _ in range(2):
        await bench.call("a" * size)

    assert bench.made == made


@pytest.mark.parametrize("scope", ["node", "stack"])
async def test_no_actor_gets_a_result_that_is_kept_for_another(scope):
    bench = Bench(cache_ttl_s=60, cache_scope=scope)
    for actor_id in ("ann", "bob", "ann"):
        await bench.call(actor_id=actor_id)

    assert bench.made == 2


class Line:
    """A server of tools, and what happened on its connections."""

    def __init__(self):
        self.happened: list[str] = []
        self.opened = 0
        self.fails = False

    def connection(self, clock):
        self.opened += 1
        return OneConnection(self, self.opened)


class OneConnection:
    def __init__(self, line, number):
        self.line, self.number = line, number

    async def call(self, tool, args, ctx):
        self.line.happened.append(f"{tool.name} over {self.number}")
        return args

    async def close(self):
        self.line.happened.append(f"{self.number} closed")
        if self.line.fails:
            raise RuntimeError


class OverLine(Tool):
    def __init__(self, line, name):
        self.server, self.name = line, name


async def test_the_tools_of_a_server_share_one_connection_on_each_node():
    line = Line()
    one, two = OverLine(line, "one"), OverLine(line, "two")
    here, there = Bench().calls, Bench().calls
    for calls, each in ((here, one), (here, two), (there, one), (here, one)):
        assert await calls.make(each, tool_call("a", "b", {"c": 1}), CTX) == {"c": 1}

    assert line.happened == ["one over 1", "two over 1", "one over 2", "one over 1"]


async def test_what_calls_have_opened_is_closed_and_a_failure_of_it_is_told():
    line, unused = Line(), Line()
    line.fails = True
    calls = Bench().calls
    await calls.make(OverLine(line, "one"), tool_call("a", "b"), CTX)
    with capture_logs() as logs:
        await calls.close()

    assert (line.happened, unused.happened) == (["one over 1", "1 closed"], [])
    assert [each["event"] for each in logs] == ["a connection of tools did not close"]

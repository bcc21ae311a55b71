"""Histories of functions: whether episodes that run survive the next version."""

from __future__ import annotations

import pytest

from engine.app.actions import Converge, Done, RequestApproval, Retries, ToolCall
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.errors import EpisodeFailed, NondeterministicReplay
from engine.operations.replay import load, record, replay
from streams.model.events import EpisodeBlocked
from tests.engine.functions.stage import Ledger, app_of
from tests.engine.stage import lived, open_episode, ports_in_memory, running

TOOLS = {"mail": Ledger(side_effect=True), "disk": Ledger()}


async def history_of(function, reached=None, **declared):
    ports = ports_in_memory()
    app = app_of(function, tools=TOOLS, **declared)
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id, reached)
    return load(await record(ports, episode_id))


async def replayed(records, function):
    return await replay(records, app_of(function, tools={}))


async def check(ctx, trigger):
    await ctx.call("mail.send", at=ctx.now())
    await ctx.gather(ctx.call("disk.read"), ctx.observe(ctx.random()))
    return ConvergeResult(summary="fine")


async def test_a_history_is_replayed_without_a_tool_being_called():
    records = await history_of(check)
    again = await replayed(records, check)
    assert (again.steps, again.asks) == (4, Converge())


async def test_a_call_that_was_repeated_is_replayed_with_all_its_attempts():
    answers = [ConnectionError("down"), ConnectionError("down"), "up"]

    @tool(retries=Retries(first_s=0.001))
    async def fetch() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def fetched(ctx, trigger):
        return ConvergeResult(summary=await ctx.call(fetch))

    ports = ports_in_memory()
    app = app_of(fetched, tools=[fetch])
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id)
    again = await replayed(load(await record(ports, episode_id)), fetched)
    assert (again.steps, again.asks) == (5, Converge())


async def test_a_function_that_asks_for_something_else_is_found():
    async def other(ctx, trigger):
        await ctx.call("mail.send", at=ctx.now())
        await ctx.observe("new")

    with pytest.raises(NondeterministicReplay, match=r"the replay asks as call 3 for observation"):
        await replayed(await history_of(check), other)


@pytest.mark.parametrize("ends", ["too early", "too late"])
async def test_a_function_that_ends_elsewhere_is_found(ends):
    async def other(ctx, trigger):
        await ctx.call("mail.send", at=ctx.now())
        if ends == "too late":
            await ctx.gather(ctx.call("disk.read"), ctx.observe(ctx.random()))
            await ctx.call("mail.send")

    with pytest.raises(NondeterministicReplay):
        await replayed(await history_of(check), other)


async def test_a_function_that_waits_asks_for_the_same():
    async def asks(ctx, trigger):
        await ctx.observe(1)
        await ctx.approval({"x": 1})

    async def asks_else(ctx, trigger):
        await ctx.observe(1)
        await ctx.approval({"x": 2})

    records = await history_of(asks, lambda so_far: so_far.of(EpisodeBlocked))
    assert isinstance((await replayed(records, asks)).asks, RequestApproval)
    with pytest.raises(NondeterministicReplay):
        await replayed(records, asks_else)


async def test_a_function_that_is_not_over_asks_for_its_next_call():
    records = list(await history_of(check))[:1]
    opened_only = await replayed(records, check)
    assert isinstance(opened_only.asks, ToolCall)


async def test_a_failure_is_replayed_as_one_and_a_new_one_is_raised():
    async def fails(ctx, trigger):
        await ctx.call("disk.fail")

    async def fails_else(ctx, trigger):
        try:
            await ctx.call("disk.fail")
        finally:
            raise KeyError("new")

    records = await history_of(fails)
    assert (await replayed(records, fails)).asks is None
    with pytest.raises(EpisodeFailed, match="KeyError"):
        await replayed(records, fails_else)


async def test_a_function_that_returned_nothing_is_done():
    async def nothing(ctx, trigger):
        await ctx.observe(1)

    assert (await replayed(await history_of(nothing), nothing)).asks == Done()

"""A schedule, an approval that waits for ten ticks, and one restart of the host."""

from __future__ import annotations

import pytest

from tests.moments import STRIDE
from vigil import Actor, App, ConvergeResult, every, tool
from vigil.testing import crash_everywhere, run

TICKS = 10


@tool(capability="ops", side_effect=True, idempotent=True)
async def restart(host: str) -> None:
    raise AssertionError(f"{host}: a test restarts nothing")


def app_of(overlap: str) -> App:
    watcher = Actor("watcher", tools=[restart])

    @watcher.expectation(
        on=every("1m", payload={"host": "web-1"}), subject_key="host", overlap=overlap
    )
    async def host_answers(ctx, trigger):
        if await ctx.approval({"restart": trigger.entity_id}):
            await ctx.call(restart, host=trigger.entity_id)
            return ConvergeResult(summary="restarted")
        return ConvergeResult(summary="left")

    return App(actors=[watcher])


def watching(overlap: str):
    return run(app_of(overlap), tools={"ops.restart": None})


def restarts(vigil) -> set[str]:
    """Return what was restarted: a call that is repeated after a crash has the same key."""
    return {each.idempotency_key for each in vigil.calls("ops.restart")}


@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_one_approval_restarts_the_host_once(overlap):
    async with watching(overlap) as vigil:
        await vigil.advance(minutes=TICKS, seconds=30)
        asked = len(vigil.episodes())
        assert asked == (1 if overlap == "skip" else TICKS)
        await vigil.approve(by="ann")
        await vigil.run_until_idle()
        assert len(restarts(vigil)) == 1
        summaries = sorted(each.summary for each in vigil.episodes())
        assert summaries == ["left"] * (asked - 1) + ["restarted"]


@pytest.mark.parametrize("overlap", ["allow", "skip"])
async def test_it_restarts_once_whenever_the_node_dies(overlap):
    async def story(vigil):
        await vigil.advance(minutes=TICKS, seconds=30)
        await vigil.approve(by="ann")
        await vigil.advance(seconds=20)
        assert len(restarts(vigil)) == 1

    await crash_everywhere(lambda: watching(overlap), story, every=STRIDE)

"""Large results in a test of the kit: as on servers, whatever dies, and however long it takes."""

from __future__ import annotations

import pytest

from tests.engine.stage import HAPPENED
from vigil import Actor, App, ConvergeResult, event, tool
from vigil.testing import crash_everywhere, run

LONG = "x" * 1_000_000


@tool
async def download() -> str:
    """Never called: tests have an answer for it."""
    raise NotImplementedError


def app_that_waits(days: int) -> App:
    """Return an app that downloads, waits so long, and then says how much it was."""
    worker = Actor("worker", tools=[download])

    @worker.expectation(on=event(HAPPENED))
    async def thing(ctx, trigger):
        text = await ctx.call(download)
        await ctx.sleep(days * 86_400)
        return ConvergeResult(summary=f"{len(text):,} characters")

    return App(actors=[worker])


async def story(vigil):
    await vigil.publish(HAPPENED)
    await vigil.advance(days=30)


def running(days: int):
    return run(app_that_waits(days), tools={"download.call": LONG})


async def test_a_test_sees_the_value_and_says_it_in_short():
    async with running(days=29) as vigil:
        await story(vigil)
        episode = vigil.episode()
    assert (episode.status, episode.summary) == ("done", "1,000,000 characters")
    step = episode.step("download.call")
    assert step.result == LONG
    assert str(step).startswith("1. download.call → 1,000,002 bytes (")


async def test_it_ends_the_same_whenever_a_node_dies():
    assert await crash_everywhere(lambda: running(days=29), story) >= 8


@pytest.mark.parametrize(("days", "why"), [(89, ""), (91, "result_lost")])
async def test_what_is_not_used_for_too_long_is_lost(days, why):
    async with running(days) as vigil:
        await vigil.publish(HAPPENED)
        await vigil.advance(days=100)
        episode = vigil.episode()
    assert (episode.is_over, episode.error_class) == (True, why)

"""A `ctx` belongs to one run of one function; the function of another run may not use it."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.strategy import ConvergeResult
from streams.memory import memory_ports
from streams.model.events import EndStatus, StepRecorded
from tests.engine.functions.stage import Ledger, app_of
from tests.engine.stage import CLOCK, Life, lived, open_episode, running


async def pays(ctx):
    await ctx.call("bank.pay")


async def pays_in_a_branch(ctx):
    await ctx.gather(ctx.call("bank.pay"), ctx.call("bank.pay"))


async def draws(ctx):
    ctx.uuid()


async def looks(ctx):
    await ctx.findings.get("web-1")


USES = pytest.mark.parametrize("use", [pays, pays_in_a_branch, draws, looks])


def keeping(use):
    """Return a function that uses the `ctx` of the first run, whichever run it is."""
    kept: list[object] = []

    async def check(ctx, trigger):
        kept.append(ctx)
        await ctx.call("disk.look")
        await use(kept[0])
        return ConvergeResult(summary="went on")

    return check


async def twice(function, bank: Ledger) -> list[Life]:
    ports = memory_ports(clock=CLOCK)
    app = app_of(function, tools={"bank": bank, "disk": Ledger()})
    async with running(app, ports):
        return [await lived(ports, await open_episode(ports, app, id_=id_)) for id_ in ("a", "b")]


@USES
async def test_a_ctx_of_an_episode_that_has_ended_fails_the_episode_that_uses_it(use):
    bank = Ledger(side_effect=True)

    first, second = await twice(keeping(use), bank)

    assert first.end.status is EndStatus.DONE
    assert second.end.error_class == "invalid_action"
    assert "this ctx is of another run" in second.end.error_detail
    assert f"in {use.__name__})" in second.end.error_detail
    assert len(second.of(StepRecorded)) == 1


async def test_a_ctx_of_an_open_episode_records_nothing_for_another_one():
    kept: list[object] = []
    both = asyncio.Barrier(2)

    async def check(ctx, trigger):
        kept.append(ctx)
        await both.wait()
        await kept[0].call("bank.pay")
        return ConvergeResult()

    ports, bank = memory_ports(clock=CLOCK), Ledger()
    app = app_of(check, tools={"bank": bank})
    async with running(app, ports):
        opened = [await open_episode(ports, app, id_=id_) for id_ in ("a", "b")]
        lives = [await lived(ports, each) for each in opened]

    assert sorted(life.end.status for life in lives) == [EndStatus.DONE, EndStatus.FAILED]
    assert len(bank.calls) == 1
    assert [len(life.of(StepRecorded)) for life in lives if life.end.error_class] == [0]


async def test_who_catches_the_refusal_goes_on_with_the_own_ctx():
    kept: list[object] = []

    async def check(ctx, trigger):
        kept.append(ctx)
        try:
            await kept[0].call("bank.pay")
        except ValueError:
            await ctx.call("bank.pay")

    bank = Ledger()
    lives = await twice(check, bank)

    assert [life.end.status for life in lives] == [EndStatus.DONE] * 2
    assert len(bank.calls) == 2

"""User code fails its own episode, whatever it raises, and the node goes on."""

from __future__ import annotations

import asyncio
import sys

import pytest

from engine.app.actions import synthesize, tool_call
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import Tool
from engine.errors import CallFailed
from streams.model.events import EndStatus, EpisodeStarted
from streams.model.triggers import Budget
from tests.engine.stage import Life, Scripted, app_of, lived, open_episode, running


def exits():
    sys.exit(3)


def interrupts():
    raise KeyboardInterrupt


def recurses():
    return recurses()


def closes():
    raise GeneratorExit


def runs_out_of_memory():
    raise MemoryError


RAISING = {
    exits: "SystemExit: 3",
    interrupts: "KeyboardInterrupt",
    recurses: "RecursionError",
    closes: "GeneratorExit",
    runs_out_of_memory: "MemoryError",
}


class Raising(Scripted):
    """Raises in a callback."""

    def __init__(self, raises):
        super().__init__()
        self.raises = raises

    def next_step(self, state, ctx):
        return self.raises()


@pytest.mark.parametrize("raises", RAISING, ids=lambda raises: raises.__name__)
async def test_a_strategy_that_raises_fails_its_episode_with_the_traceback(ports, raises):
    app = app_of(Raising(raises))
    async with running(app, ports):
        end = (await lived(ports, await open_episode(ports, app))).end
    assert (end.status, end.error_class) == (EndStatus.FAILED, "crash")
    assert f"in {raises.__name__}" in end.error_detail
    assert RAISING[raises] in end.error_detail


class RaisingInTurn(Tool):
    """Raises all that there is, a call at a time, and then works."""

    def __init__(self):
        self.left = list(RAISING)

    async def call(self, action, args, ctx):
        return self.left.pop(0)() if self.left else {}


class Strict(Scripted):
    """Fails with the first step that fails."""

    def handle_result(self, state, step, result):
        default = Strategy.handle_result(self, state, step, result)
        return super().handle_result(state, step, result) if default is state else default


async def test_tools_that_raise_fail_their_episodes_and_the_next_one_goes_on(ports):
    app = app_of(Strict(tool_call("tool", "a")), tools={"tool": RaisingInTurn()})
    async with running(app, ports):
        ids = [await open_episode(ports, app, id_=f"x{n}") for n in range(len(RAISING) + 1)]
        ends = [(await lived(ports, id_)).end for id_ in ids]
    failed = [end.error_detail for end in ends if end.error_class == "crash"]
    assert sum(end.status is EndStatus.DONE for end in ends) == 1
    assert [sum(f"in {raises.__name__}" in one for one in failed) for raises in RAISING] == [1] * 5


class Panic(BaseException):
    """As a library in Rust raises it, or gevent."""


KINDS = pytest.mark.parametrize(
    "error", [Panic, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit]
)


class RaisingOnce(Scripted):
    """Raises in the callback of the name, in the first episode."""

    def __init__(self, callback, error):
        super().__init__(synthesize("why?"))
        self.callback, self.error, self.has_raised = callback, error, False

    def _raise(self, callback):
        if callback == self.callback and not self.has_raised:
            self.has_raised = True
            raise self.error

    async def init(self, episode, trigger):
        self._raise("init")
        return super().init(episode, trigger)

    async def next_step(self, state, ctx):
        self._raise("next_step")
        return super().next_step(state, ctx)

    def handle_result(self, state, step, result):
        self._raise("handle_result")
        return super().handle_result(state, step, result)

    async def converge(self, state, ctx):
        self._raise("converge")
        return super().converge(state, ctx)


async def first_and_next(ports, strategy, **declared) -> tuple[Life, Life]:
    """Return the lives of two episodes, one after the other on one node."""
    app = app_of(strategy, **declared)
    async with running(app, ports):
        return (
            await lived(ports, await open_episode(ports, app, id_="x1")),
            await lived(ports, await open_episode(ports, app, id_="x2")),
        )


def failed_at_once(life: Life) -> bool:
    """Return whether an episode failed in the first attempt, with the class of a crash."""
    is_crash = (life.end.status, life.end.error_class) == (EndStatus.FAILED, "crash")
    return is_crash and len(life.of(EpisodeStarted)) == 1


@KINDS
@pytest.mark.parametrize("callback", ["init", "next_step", "handle_result", "converge"])
async def test_a_callback_fails_its_episode_at_once_whatever_it_raises(ports, callback, error):
    async def answers(prompt, transient, ctx):
        return "because"

    strategy = RaisingOnce(callback, error)
    first, second = await first_and_next(ports, strategy, synthesizer=answers)

    assert failed_at_once(first)
    assert second.end.status is EndStatus.DONE


@KINDS
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_fails_its_call_at_once_whatever_it_raises(ports, error, is_async):
    @tool
    async def explode():
        raise error

    @tool
    def explode_in_a_thread():
        raise error

    async def check(ctx, trigger):
        try:
            await ctx.call(explode if is_async else explode_in_a_thread)
        except CallFailed as failed:
            return ConvergeResult(summary=f"went on after a {failed.error_class}")

    lives = await first_and_next(ports, check, tools=[explode, explode_in_a_thread])

    assert [life.end.status for life in lives] == [EndStatus.DONE] * 2
    assert {life.episode.converged.summary for life in lives} == {"went on after a crash"}


@KINDS
async def test_a_function_fails_its_episode_at_once_whatever_it_raises(ports, error):
    async def check(ctx, trigger):
        await ctx.observe(1)
        raise error

    assert all(map(failed_at_once, await first_and_next(ports, check)))


@KINDS
async def test_a_branch_fails_its_episode_at_once_whatever_it_raises(ports, error):
    async def check(ctx, trigger):
        async def branch():
            await ctx.observe(1)
            raise error

        await ctx.gather(branch(), ctx.observe(2))

    assert all(map(failed_at_once, await first_and_next(ports, check)))


@KINDS
async def test_a_synthesizer_fails_its_step_at_once_whatever_it_raises(ports, error):
    async def answers(prompt, transient, ctx):
        raise error

    lives = await first_and_next(ports, Strict(synthesize("why?")), synthesizer=answers)

    assert all(map(failed_at_once, lives))


@KINDS
async def test_what_is_asked_at_the_end_of_a_budget_fails_it_whatever_it_raises(ports, error):
    def gives_up(exhausted):
        raise error

    async def check(ctx, trigger):
        for number in range(5):
            await ctx.observe(number)

    declared = {"budget": Budget(turns=2), "on_exhausted": gives_up}
    lives = await first_and_next(ports, check, **declared)

    assert [life.end.error_class for life in lives] == ["budget_exceeded"] * 2
    assert [len(life.of(EpisodeStarted)) for life in lives] == [1, 1]

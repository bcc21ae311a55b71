"""How an episode that runs is canceled; what cancels it here is a circuit breaker that opens."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from engine.app.actions import observe, tool_call
from engine.app.checks import Breaker
from engine.app.triggers import event
from engine.episodes.breakers.breaker import TRIPPED, BreakerState
from streams.keys import breaker_key
from streams.model.events import EndStatus, StepAnnounced, StepRecorded
from tests.engine.stage import (
    WAIT_S,
    Counter,
    Scripted,
    app_of,
    ask_start,
    eventually,
    lived,
    open_episode,
    opening,
    running,
    write,
)
from tests.spec import EPOCH

TRIPS = Breaker(threshold=1, half_open_after_s=60, cancel_in_flight=True)
OPEN = BreakerState(status="open", failures=("e1",), opened_at=EPOCH)


async def trip(ports) -> None:
    await ports.gates.put(breaker_key("worker", "thing"), msgspec.json.encode(OPEN))


async def test_an_announced_side_effect_that_is_interrupted_is_admitted(ports):
    tool = Counter(side_effect=True, open_=False)
    app = app_of(Scripted(tool_call("tool", "pay")), tools={"tool": tool}, breaker=TRIPS)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        await trip(ports)
        life_ = await lived(ports, id_)
    assert (life_.end.status, life_.end.error_class) == (EndStatus.CANCELED, TRIPPED)
    assert len(life_.of(StepAnnounced)) == 1
    assert not life_.of(StepRecorded)
    assert "tool.pay" in life_.end.error_detail
    assert "nobody knows whether it happened" in life_.end.error_detail


@pytest.mark.parametrize("callback", ["init", "next_step", "handle_result", "converge"])
async def test_a_callback_that_waits_is_interrupted(ports, callback):
    strategy, waiting = Scripted(tool_call("tool", "a")), asyncio.Event()

    async def wait(*_):
        waiting.set()
        await asyncio.Event().wait()

    setattr(strategy, callback, wait)
    app = app_of(strategy, tools={"tool": Counter()}, breaker=TRIPS)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(waiting.wait(), WAIT_S)
        await trip(ports)
        assert (await lived(ports, id_)).end.error_class == TRIPPED


@pytest.mark.parametrize("then", [tool_call("tool", "b"), observe("b")], ids=["call", "observe"])
async def test_a_callback_that_will_not_be_interrupted_is_waited_for_and_has_no_turn_after(
    ports, then
):
    waiting = asyncio.Event()

    class Stubborn(Scripted):
        async def handle_result(self, state, step, result):
            waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return self.State(state.done + 1)

    tool = Counter()
    app = app_of(Stubborn(tool_call("tool", "a"), then), tools={"tool": tool}, breaker=TRIPS)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(waiting.wait(), WAIT_S)
        await trip(ports)
        life_ = await lived(ports, id_)
    assert (life_.end.error_class, tool.calls) == (TRIPPED, ["a"])
    assert len(life_.of(StepRecorded)) == 1


async def test_a_callback_that_makes_something_else_of_it_does_not_hide_it(ports):
    waiting = asyncio.Event()

    async def wait(*_):
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("cut off") from None

    strategy = Scripted()
    strategy.converge = wait
    app = app_of(strategy, breaker=TRIPS)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await asyncio.wait_for(waiting.wait(), WAIT_S)
        await trip(ports)
        assert (await lived(ports, id_)).end.status is EndStatus.CANCELED


async def test_an_expectation_beside_it_goes_on(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool}, breaker=TRIPS)
    beside = Scripted(tool_call("tool", "b"))
    app.actors["worker"].expect("beside", beside, on=event("other.happened"), breaker=TRIPS)
    begun = msgspec.structs.replace(opening(app, id_="y"), expectation_id="beside")
    async with running(app, ports):
        await write(ports, begun.episode_id, begun)
        await ask_start(ports, begun.episode_id)
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        id_ = await open_episode(ports, app)
        await eventually(lambda: len(tool.calls) == 2)
        await trip(ports)
        assert (await lived(ports, id_)).end.error_class == TRIPPED
        tool.gate.set()
        assert (await lived(ports, begun.episode_id)).end.status is EndStatus.DONE

"""Episodes that spend, on nodes as they are, and what is left of limits after them."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import ConvergeResult
from engine.app.triggers import event
from engine.operations.rebuild_gates import rebuild_gates
from engine.spending.store import SpendingStore
from streams.keys import SPENDINGS
from streams.model.events import EndStatus, StepAnnounced, StepRecorded
from streams.model.money import Spending
from streams.model.triggers import Budget
from tests.engine.spending.asking import answered_at_once, ask
from tests.engine.stage import CLOCK, HAPPENED, Scripted, lived, open_episode, running
from tests.standing import standing

SLOW_S = 0.05
"""How long an append takes on a slow log: longer than any change of a key."""

TWO = [ask(number, worst="0.30", cost="0.20") for number in (1, 2)]


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """Answer every request at once, and note it."""
    return answered_at_once(monkeypatch)


def app_of(*plan, actor=(), stack=(), **expectation):
    worker = Actor("worker", spending=actor)
    worker.expect("thing", Scripted(*plan), on=event(HAPPENED), **expectation)
    return App(actors=[worker], spending=stack)


async def lives(ports, app, count=1):
    """Return what became of episodes, one after the other."""
    async with running(app, ports):
        return [
            await lived(ports, await open_episode(ports, app, id_=f"x{number}"))
            for number in range(count)
        ]


async def recorded_steps(ports):
    events = (event for each in await standing(ports.log) for event in each.commit.events)
    return [each for each in events if isinstance(each, StepRecorded)]


async def test_an_episode_announces_what_it_may_spend_before_it_asks(ports):
    (life,) = await lives(ports, app_of(*TWO, budget=Budget(usd="0.50")))
    assert [each.reserved_usd for each in life.of(StepAnnounced)] == [Decimal("0.30")] * 2
    assert (life.end.status, life.end.usd_used) == (EndStatus.DONE, Decimal("0.40"))


async def test_a_cost_is_settled_once_its_step_is_durable_however_slow_the_log_is(
    ports, monkeypatch
):
    append, settle, was_recorded = ports.log.append, SpendingStore.settle, []

    async def slow(*args, **kwargs):
        await asyncio.sleep(SLOW_S)
        return await append(*args, **kwargs)

    async def settled(store, windows, usd, *, ref):
        steps = await recorded_steps(ports)
        was_recorded.append(ref.rpartition(":")[2] in {each.path for each in steps})
        await settle(store, windows, usd, ref=ref)

    monkeypatch.setattr(ports.log, "append", slow)
    monkeypatch.setattr(SpendingStore, "settle", settled)
    await lives(ports, app_of(*TWO, actor=[Spending(usd="1")]))
    assert was_recorded == [True, True]


async def test_a_request_that_does_not_fit_is_not_made_and_ends_the_episode(ports, asked):
    (life,) = await lives(ports, app_of(*TWO, budget=Budget(usd="0.45")))
    assert asked == ["1"]
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "budget_exceeded")
    detail = "usd: 0.20 used of 0.45; the next request may cost 0.30"
    assert life.end.error_detail == detail
    assert life.end.usd_used == Decimal("0.20")


async def test_a_result_may_be_made_of_what_there_is_when_the_dollars_are_used_up(ports):
    def partial(exhausted):
        return ConvergeResult(summary=f"{exhausted.limit}: {len(exhausted.steps)} of 2")

    app = app_of(*TWO, budget=Budget(usd="0.45"), on_exhausted=partial)
    (life,) = await lives(ports, app)
    assert (life.end.status, life.episode.converged.summary) == (EndStatus.DONE, "usd: 1 of 2")


async def test_what_is_spent_for_the_day_stops_the_next_episode_of_the_actor(ports, asked):
    app = app_of(*TWO, actor=[Spending(usd="0.60")], stack=[Spending(usd="9", per="month")])
    first, second = await lives(ports, app, 2)
    assert (first.end.status, second.end.status) == (EndStatus.DONE, EndStatus.FAILED)
    assert "0.40 used or reserved of 0.60 by actor worker" in second.end.error_detail
    assert asked == ["1", "2"]


async def test_lost_windows_are_made_anew_as_they_were(ports):
    app = app_of(*TWO, actor=[Spending(usd="2")], stack=[Spending(usd="9", per="month")])
    await lives(ports, app, 2)
    before = await ports.gates.entries(under=SPENDINGS)
    for key in before:
        await ports.gates.delete(key)
    counts = await rebuild_gates(ports, clock=CLOCK)
    after = await ports.gates.entries(under=SPENDINGS)
    assert {key: after[key].value for key in before} == {
        key: each.value for key, each in before.items()
    }
    assert counts[SPENDINGS] == len(after)

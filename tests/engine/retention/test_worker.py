"""One node at a time lets go what is old; what is kept, and what is gone, is on the log."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.app.actor import Actor
from engine.orders.store import give_order
from engine.retention.step import StepReport
from engine.retention.store import read_state
from engine.retention.worker import (
    EVERY_S,
    RetentionWorker,
    last_run,
    run_steps,
)
from engine.runtime.leases import Keeper
from streams.clock import SystemClock
from streams.errors import LeaseLost, Unavailable
from streams.keys import RETENTION
from streams.model.events import HoldAdded, HoldRemoved
from streams.model.retention import HoldKind, Retention
from tests.spec import EPOCH

DAY_S = 86_400


class MovedClock(SystemClock):
    """Shows a time that the test moves."""

    at = EPOCH + timedelta(days=400)

    def now(self):
        return self.at

    def move(self, seconds):
        self.at += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return MovedClock()


def worker(ports, clock, *, node="n1", stack=None, actors=(), steps=None):
    keeper = Keeper(ports.leases, holder=node, clock=clock)
    known = {each.id: each for each in actors}
    made = RetentionWorker(ports, node, keeper, lambda: known, stack)
    if steps is not None:
        made.steps = steps
    return made


class Counting:
    """A step that counts its runs, and does as it is told."""

    name = "counting"

    def __init__(self, does=None):
        self.runs, self._does = [], does

    async def run(self, run):
        self.runs.append(run)
        if self._does is not None:
            await self._does(run)
        return StepReport(step=self.name, gone={"things": 3})


async def test_what_a_node_and_its_actors_say_is_on_the_log(ports, clock):
    actors = [Actor("a", retention=Retention(done="90d")), Actor("b")]
    await worker(ports, clock, stack=Retention(done="30d"), actors=actors).declare()

    times = (await read_state(ports, clock=clock)).times

    assert times.stack == {"done": 30 * DAY_S, "failed": 120 * DAY_S}
    assert times.actors == {"a": {"done": 90 * DAY_S, "failed": 360 * DAY_S}}


async def test_a_node_that_says_nothing_changes_nothing(ports, clock):
    first = worker(ports, clock, stack=Retention(done="30d"))
    await first.declare()
    await worker(ports, clock, node="n2", actors=[Actor("a")]).declare()
    assert (await read_state(ports, clock=clock)).times.stack["done"] == 30 * DAY_S


async def test_a_node_that_is_started_later_says_what_counts(ports, clock):
    await worker(ports, clock, stack=Retention(done="30d")).declare()
    await worker(ports, clock, node="n2", stack=Retention()).declare()
    assert not (await read_state(ports, clock=clock)).times.is_any


async def test_what_was_said_already_is_not_noted_again(ports, clock):
    one = worker(ports, clock, stack=Retention(done="30d"))
    for each in (one, one, worker(ports, clock, node="n2", stack=Retention(done="30d"))):
        await each.declare()
    assert len(await ports.log.read(ports.stack.order(RETENTION))) == 1


async def test_nothing_runs_where_everything_is_kept_for_ever(ports, clock):
    step = Counting()
    assert await worker(ports, clock, steps=[step]).look() is None
    assert (step.runs, await last_run(ports.gates)) == ([], None)


async def test_a_run_is_made_where_people_hold_something(ports, clock):
    step = Counting()
    node = worker(ports, clock, steps=[step])
    hold = HoldAdded(kind=HoldKind.ACTOR, held="a", by="ann")
    await give_order(ports, hold, clock=clock)
    await node.look()
    clock.move(EVERY_S)
    await give_order(ports, HoldRemoved(kind=HoldKind.ACTOR, held="a", by="ann"), clock=clock)
    await node.look()
    assert len(step.runs) == 1


async def test_a_run_is_made_every_hour_by_one_of_the_nodes(ports, clock):
    step = Counting()
    nodes = [
        worker(ports, clock, node=each, stack=Retention(done="30d"), steps=[step])
        for each in ("n1", "n2")
    ]
    for each in nodes:
        await each.declare()
    for _ in range(3):
        for each in nodes:
            await each.look()
        clock.move(EVERY_S)
    assert len(step.runs) == 3


async def test_no_second_node_runs_meanwhile(ports, clock):
    other = Counting()
    second = worker(ports, clock, node="n2", steps=[other])

    async def meanwhile(_):
        assert await second.look() is None

    first = worker(ports, clock, stack=Retention(done="30d"), steps=[Counting(meanwhile)])
    await first.declare()
    report = await first.look()
    assert report is not None
    assert other.runs == []


async def test_a_run_notes_what_is_gone_from_now_on(ports, clock):
    one = worker(ports, clock, stack=Retention(done="30d"))
    await one.declare()
    report = await one.look()

    cuts = (await read_state(ports, clock=clock)).cuts

    assert {each.what.value: each.before for each in cuts} == {
        "done": clock.now() - timedelta(days=30),
        "failed": clock.now() - timedelta(days=120),
    }
    assert report == await last_run(ports.gates)


async def test_a_dry_run_changes_nothing(ports, clock):
    await worker(ports, clock, stack=Retention(done="30d")).declare()
    report = await run_steps(ports, by="ann", clock=clock, check=lambda: None, is_dry=True)
    assert "done of all before" in report.steps[0].says
    assert (await read_state(ports, clock=clock)).cuts == ()
    assert await last_run(ports.gates) is None


async def test_a_step_that_fails_stops_no_other_one(ports, clock):
    async def fail(_):
        raise Unavailable("a stream", detail="away")

    step = Counting()
    report = await run_steps(
        ports, by="ann", clock=clock, check=lambda: None, steps=[Counting(fail), step]
    )
    assert len(step.runs) == 1
    assert [bool(each.problem) for each in report.steps] == [True, False]


async def test_who_loses_the_lease_goes_no_further(ports, clock):
    step = Counting()

    def check():
        raise LeaseLost(RETENTION, revision=1)

    with pytest.raises(LeaseLost):
        await run_steps(ports, by="n1", clock=clock, check=check, steps=[step])
    assert step.runs == []
    assert await last_run(ports.gates) is None

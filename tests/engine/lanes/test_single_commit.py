"""A new episode whose turn it is runs at once where its lane is scheduled, if it is one commit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from engine.app.checks import Breaker
from engine.app.strategy import ConvergeResult
from engine.lanes import single_commit
from engine.lanes.intake import wanted_of
from engine.lanes.lane import RequestedEpisode
from engine.lanes.single_commit import SingleCommitRunner
from streams.errors import Unavailable
from streams.layout import Stream
from streams.memory import durable, memory_ports
from streams.model.events import EpisodeFinished, EpisodeOpened, EpisodeStarted, LaneMoved
from streams.ports.domain_events import DomainEvent
from tests.engine.crew import crew_of, evaluator_of, parts_of
from tests.engine.lane_stage import (
    CALL,
    Point,
    all_taken,
    begun,
    killed_at,
    lane_reached,
    laned,
    publish,
    turns_of,
)
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    LEASE_TTL_S,
    Counter,
    Scripted,
    life,
    lived,
    opening,
    running,
)
from tests.simulation.time import SimClock, simulate


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch):
    monkeypatch.setattr(durable, "ACK_WAIT_S", LEASE_TTL_S)


class Mixed(Scripted):
    """Takes a step if its event says so; counts how often its code begins."""

    def __init__(self):
        super().__init__(CALL)
        self.begun: list[str] = []

    def init(self, episode, trigger):
        self.begun.append(trigger.event_id)
        return self.State(done=0 if trigger.payload.get("steps") else 1)


def mixed(*, open_=True, **limits):
    """Return an app of such episodes, its strategy, and the tool of their step."""
    strategy, tool = Mixed(), Counter(open_=open_)
    return laned(strategy, tools={"api": tool}, **limits), strategy, tool


async def ended(ports, app, *names):
    return [await lived(ports, opening(app, id_=name).episode_id) for name in names]


async def moves_of(ports):
    records = await ports.log.read(ports.stack.lane("worker"))
    events = (event for record in records for event in record.commit.events)
    return [event for event in events if isinstance(event, LaneMoved)]


# One commit, and no place.


async def test_an_episode_without_steps_is_one_commit_and_has_no_place(ports, monkeypatch):
    told, send = [], ports.timers.send

    async def noted(timer, **said):
        told.append(timer)
        await send(timer, **said)

    monkeypatch.setattr(ports.timers, "send", noted)
    app, _, _ = mixed()
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0")
        (lived_,) = await ended(ports, app, "x0")
        await all_taken(ports)

    (commit,) = (await life(ports, opening(app, id_="x0").episode_id)).records
    kinds = [type(event) for event in commit.commit.events]
    assert (kinds[0], kinds[1], kinds[-1]) == (EpisodeOpened, EpisodeStarted, EpisodeFinished)
    assert lived_.of(EpisodeOpened)[0].in_lane
    assert await moves_of(ports) == []
    assert told == []
    assert await ports.log.head(Stream.STATE) == 0


async def test_an_episode_with_steps_gets_its_place_and_its_code_has_run_in_vain_once(ports):
    app, strategy, _ = mixed()
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", steps=True)
        (lived_,) = await ended(ports, app, "x0")
        await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted)

    assert len(lived_.of(EpisodeOpened)) == 1
    assert strategy.begun == ["x0", "x0"]


async def test_who_takes_steps_again_and_again_is_tried_no_more(ports, monkeypatch):
    monkeypatch.setattr(single_commit, "TRIED_EVERY", 8)
    app, strategy, _ = mixed(cluster=1)
    names = [f"x{number}" for number in range(12)]
    async with running(app, ports):
        await begun(ports)
        for name in names:
            await publish(ports, name, steps=True)
            await ended(ports, app, name)
            await lane_reached(ports, lambda lane: not lane.admitted)

    tried = [name for name in names if strategy.begun.count(name) == 2]
    assert tried == ["x0", "x1", "x2", "x3", "x8"]


async def test_code_that_takes_too_long_takes_its_turn(ports):
    tries = []

    async def slow(ctx, trigger):
        tries.append(trigger.event_id)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return ConvergeResult()

    app = laned(slow)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1")
        await ended(ports, app, "x0", "x1")
        lane = await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted)

    assert lane.newest_number >= 1
    assert tries.count("x0") == 2


def test_code_that_takes_its_time_to_stop_holds_up_no_other():
    async def story():
        clock, tries = SimClock(), []
        ports = memory_ports(clock=clock)

        async def stubborn(ctx, trigger):
            tries.append(trigger.event_id)
            if tries == ["x0"]:
                try:
                    await asyncio.Event().wait()
                finally:
                    await clock.sleep(4.0)
            return ConvergeResult()

        app = laned(stubborn, cluster=2)
        async with running(app, ports, clock=clock):
            await begun(ports)
            await publish(ports, "x0")
            while not tries:
                await clock.sleep(0.001)
            began_s = clock.monotonic_s()
            await publish(ports, "x1")
            await ended(ports, app, "x1")
            return clock.monotonic_s() - began_s

    assert simulate(story()) < 1.0


# Limits and order.


async def test_nothing_runs_at_once_beside_what_has_all_places(ports):
    app, strategy, tool = mixed(open_=False, cluster=1)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", steps=True)
        await asyncio.wait_for(tool.called.wait(), 5)
        await publish(ports, "x1")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 1)
        assert "x1" not in strategy.begun
        tool.gate.set()
        await ended(ports, app, "x0", "x1")

    turns = await turns_of(ports)
    assert turns.most_at_once == 1


async def test_episodes_of_one_key_end_in_the_order_of_their_events_whichever_take_steps(ports):
    app, _, _ = mixed(cluster=None, thing={"concurrency_key": "k"})
    names = [f"x{number}" for number in range(24)]
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await begun(ports)
        for number, name in enumerate(names):
            await publish(ports, name, k=number % 2, steps=number % 3 == 0)
        await ended(ports, app, *names)

    turns = await turns_of(ports)
    assert set(turns.most_of_a_key.values()) == {1}
    assert turns.begun_by_key() == {
        str(key): [f"event:{name}" for name in names[key::2]] for key in range(2)
    }


# Crashes.


def is_of_episode(subject, commit, *, after):
    return ".episode." in subject


@pytest.mark.parametrize("is_done", [False, True], ids=["before it is stored", "after"])
async def test_a_node_that_dies_with_the_only_commit_loses_nothing(ports, is_done):
    app, _, _ = mixed(cluster=1, thing={"concurrency_key": "k"})
    async with killed_at(app, ports, Point("log", "append", is_of_episode, is_done=is_done)):
        await publish(ports, "x0", "x1", k=1)
    async with running(app, ports, "n2"):
        lives = await ended(ports, app, "x0", "x1")
        await all_taken(ports)
        await lane_reached(ports, lambda lane: not lane.admitted and not lane.waiting)

    assert [len(each.of(EpisodeOpened)) for each in lives] == [1, 1]
    turns = await turns_of(ports)
    assert turns.begun_by_key() == {"1": ["event:x0", "event:x1"]}


async def test_what_comes_again_is_opened_before_its_code_runs(ports):
    """Code that kills its node leaves no trace before the first commit: the next one counts."""
    app, strategy, _ = mixed(cluster=1)
    async with killed_at(app, ports, Point("log", "append", is_of_episode)):
        await publish(ports, "x0")
    assert strategy.begun == ["x0"]
    async with running(app, ports, "n2"):
        (lived_,) = await ended(ports, app, "x0")

    first, *_ = (await life(ports, opening(app, id_="x0").episode_id)).records
    assert [type(event) for event in first.commit.events] == [EpisodeOpened]
    assert lived_.of(EpisodeStarted)[0].node == "n2"


async def test_an_end_that_a_breaker_is_told_of_has_a_place(ports):
    app, _, _ = mixed(thing={"breaker": Breaker()})
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0")
        await ended(ports, app, "x0")
        lane = await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted)

    assert lane.newest_number == 1


# Whoever may lead no more, and whoever would take too long, tries nothing.


async def asked_of(ports, app):
    """Return what tries episodes, and an episode that an event asks for."""
    crew, opened = crew_of(app, ports), opening(app)
    crew.permits.runs.turn(on=True)
    wanted = wanted_of(opened, app.actors["worker"].expectations["thing"])
    cause = DomainEvent(id="x1", name=HAPPENED, payload={}, seq=1, at=CLOCK.now())
    asked = RequestedEpisode(opened=opened, wanted=wanted, cause=cause, seq=1)
    return parts_of(crew), asked


async def test_what_had_to_begin_before_now_is_not_tried(ports):
    """Its start tells that it is over."""
    app, _, _ = mixed()
    parts, asked = await asked_of(ports, app)
    tries = SingleCommitRunner(parts, evaluator_of(parts.context), lambda: None)
    assert tries.may_try(asked)
    start_by = CLOCK.now() - timedelta(seconds=1)
    late = replace(asked, opened=msgspec.structs.replace(asked.opened, start_by=start_by))
    assert not tries.may_try(late)


async def test_a_node_whose_lease_may_be_over_tries_nothing(ports):
    app, strategy, _ = mixed()
    parts, asked = await asked_of(ports, app)

    def lost():
        raise Unavailable("lane.worker", detail="its lease may be over")

    tries = SingleCommitRunner(parts, evaluator_of(parts.context), lost)
    with pytest.raises(Unavailable):
        await tries.run([asked], until_s=tries.deadline_s())
    assert strategy.begun == []


async def test_what_is_left_when_the_time_of_a_decision_is_over_is_not_tried(ports):
    app, strategy, _ = mixed()
    parts, asked = await asked_of(ports, app)
    tries = SingleCommitRunner(parts, evaluator_of(parts.context), lambda: None)
    assert await tries.run([asked], until_s=CLOCK.monotonic_s()) == [False]
    assert strategy.begun == []
    assert await tries.run([asked], until_s=CLOCK.monotonic_s() + 60) == [True]

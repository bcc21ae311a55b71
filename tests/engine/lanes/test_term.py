"""What a dispatcher leaves to the next one, and whom it keeps waiting while its lane is full."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from engine.app.actions import tool_call
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.checks import Breaker
from engine.app.triggers import event, manual
from engine.episodes.breakers.breaker import BreakerState
from engine.episodes.fire import fire
from engine.episodes.open import place
from engine.lanes import intake, scheduler
from engine.lanes.effects import LaneEffects
from engine.lanes.lane import EMPTY, fold
from engine.operations.dead_letters import DeadLetterRequests
from engine.triggers import admit
from streams.errors import Incompatible
from streams.keys import breaker_key, cooldown_key, pause_key
from streams.layout import Stream
from streams.memory import durable
from streams.model.events import DeadLettered, EndStatus, EpisodeFinished, EpisodeOpened, LaneMoved
from streams.model.lanes import Ticket
from streams.ports.log import START, Commit
from tests.engine.crew import breakers_of, crew_of, evaluator_of
from tests.engine.lane_stage import (
    Point,
    all_taken,
    begun,
    killed_at,
    lane_of,
    lane_reached,
    laned,
    news,
    publish,
    turns_of,
)
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    LEASE_TTL_S,
    Counter,
    Scripted,
    app_of,
    doomed,
    eventually,
    life,
    lived,
    opening,
    running,
    write,
)

CALL = tool_call("api", "do", {})
LONG_S = 600.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch):
    """What a dead node has not answered for comes again sooner than from a server."""
    monkeypatch.setattr(durable, "ACK_WAIT_S", LEASE_TTL_S)
    monkeypatch.setattr(scheduler, "REDELIVERED_S", LEASE_TTL_S)
    monkeypatch.setattr(scheduler, "UNSETTLED_S", LEASE_TTL_S)


@pytest.fixture
def _back_at_once(monkeypatch):
    """What was told to come again does so without delay."""
    monkeypatch.setattr(admit, "STRANGE_S", 0.01)
    monkeypatch.setattr(admit, "STRANGE_MAX_S", 0.01)


def held(**limits):
    """Return an app whose episodes wait in their first step, and the tool that lets them go."""
    tool = Counter(open_=False)
    return laned(Scripted(CALL), tools={"api": tool}, **limits), tool


def only_fit(**options):
    """Return options of an expectation that events with `fits` fire."""
    return {"on": [event(HAPPENED, filter={"fits": True}), manual()], **options}


async def event_ids(ports):
    """Return which events opened episodes, in the order of their openings."""
    async with ports.log.follow(Stream.JOURNAL) as follower:
        records = await follower.receive(most=10_000, wait_s=0)
    every = (each for record in records for each in record.commit.events)
    causes = (each.trigger for each in every if isinstance(each, EpisodeOpened))
    return [getattr(each, "event_id", "by hand") for each in causes]


async def longest_line(ports):
    """Return how many waited at most, after any commit."""
    records = await ports.log.read(ports.stack.lane("worker"))
    return max(len(fold(records[:count]).waiting) for count in range(1, len(records) + 1))


async def set_breaker(ports, *, opened_at):
    state = BreakerState(status="open", failures=("e1",), opened_at=opened_at)
    await ports.gates.put(breaker_key("worker", "thing"), msgspec.json.encode(state))


async def all_ended(ports, app, *names):
    for name in names:
        await lived(ports, opening(app, id_=name).episode_id)


async def free(ports):
    await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted + lane.waiting)


# What was ruled on is not ruled on again.


async def test_what_a_cooldown_has_refused_stays_refused(ports):
    app = laned(thing={"cooldown_s": 600, "subject_key": "k"})
    async with doomed(app, ports):
        await begun(ports)
        await publish(ports, "x0", k=1)
        await all_ended(ports, app, "x0")
        await publish(ports, "x1", k=1)
        await all_taken(ports)
    await ports.gates.delete(cooldown_key("worker", "thing", "1"))
    async with running(app, ports, "n2"):
        await publish(ports, "x2", k=2)
        await all_ended(ports, app, "x2")

    assert await event_ids(ports) == ["x0", "x2"]


async def test_what_a_breaker_has_refused_stays_refused(ports):
    app = laned(thing={"breaker": Breaker(threshold=1, half_open_after_s=LONG_S)})
    async with doomed(app, ports):
        await begun(ports)
        await set_breaker(ports, opened_at=datetime.now(UTC))
        await publish(ports, *(f"x{number}" for number in range(20)))
        await all_taken(ports)
    await ports.gates.delete(breaker_key("worker", "thing"))
    async with running(app, ports, "n2"):
        await publish(ports, "last")
        await all_ended(ports, app, "last")

    assert await event_ids(ports) == ["last"]


async def test_what_comes_to_nothing_is_acknowledged_without_a_commit(ports, tally):
    app = laned(thing=only_fit())
    async with running(app, ports):
        await begun(ports)
        await publish(ports, *(f"x{number}" for number in range(10)))
        await eventually(lambda: tally.of("worker"))
        await all_taken(ports)

    assert not await ports.log.read(ports.stack.lane("worker"))


async def test_what_was_opened_is_completed_though_the_gates_are_shut_by_now(ports):
    app = laned(thing={"breaker": Breaker(threshold=1, half_open_after_s=LONG_S)})

    def is_placing(subject, commit, *, after):
        moves = [each for each in commit.events if isinstance(each, LaneMoved)]
        return any(each.placed for each in moves)

    async with killed_at(app, ports, Point("log", "append", is_placing)):
        await publish(ports, "x0")
    await set_breaker(ports, opened_at=datetime.now(UTC))
    async with running(app, ports, "n2"):
        await all_ended(ports, app, "x0")


async def test_who_has_ended_unheard_does_not_keep_its_place(ports):
    """As when an operator has emptied the queue in which its end was told."""
    app = laned(cluster=1)
    gone = msgspec.structs.replace(opening(app, id_="gone"), in_lane=True)
    await write(ports, gone.episode_id, gone)
    await write(ports, gone.episode_id, EpisodeFinished(status=EndStatus.FAILED))
    ticket = Ticket(episode_id=gone.episode_id, expectation_id="thing", number=1)
    moved = LaneMoved(placed=(ticket,), admitted=(gone.episode_id,))
    commit = Commit(id="by hand", at=CLOCK.now(), events=(moved,))
    await ports.log.append(ports.stack.lane("worker"), commit, after=START)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0")
        await all_ended(ports, app, "x0")


async def test_a_lane_without_events_is_drained_when_a_deploy_has_removed_the_limits(ports):
    app, tool = held(thing={"on": manual()})
    async with doomed(app, ports):
        asked = [await fire(ports, "worker", "thing", by="ann") for _ in range(3)]
        await lane_reached(ports, lambda lane: len(lane.waiting) == 2)
    tool.gate.set()
    unlimited = app_of(Scripted(CALL), tools={"api": tool}, on=manual())
    async with running(unlimited, ports, "n2"):
        for each in asked:
            await lived(ports, each)

    lane = await lane_of(ports)
    assert (lane.waiting, lane.admitted) == ((), ())


async def test_a_lane_whose_limits_a_deploy_has_removed_is_drained_while_its_actor_is_paused(ports):
    app, tool = held()
    async with doomed(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1", "x2")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 2)
    await ports.registry.put(pause_key("worker"), b"{}")
    await publish(ports, "x3")
    tool.gate.set()
    unlimited = app_of(Scripted(CALL), tools={"api": tool})
    async with running(unlimited, ports, "n2"):
        await all_ended(ports, app, "x0", "x1", "x2")
        last = opening(app, id_="x3").episode_id
        assert (await life(ports, last)).records == ()
        await ports.registry.delete(pause_key("worker"))
        await lived(ports, last)


# What finds no room.


@pytest.mark.usefixtures("_back_at_once")
async def test_no_more_fires_by_hand_wait_in_line_than_may(ports):
    app, tool = held(queue_max=5)
    async with running(app, ports):
        await begun(ports)
        asked = [await fire(ports, "worker", "thing", by="ann") for _ in range(20)]
        await lane_reached(ports, lambda lane: len(lane.waiting) == 5)
        tool.gate.set()
        for each in asked:
            await lived(ports, each)

    assert await longest_line(ports) == 5


@pytest.mark.usefixtures("_back_at_once")
async def test_no_more_subjects_that_are_calm_wait_in_line_than_may(ports):
    app, tool = held(queue_max=5, thing={"debounce_s": 0.05, "subject_key": "k"})
    async with running(app, ports):
        await begun(ports)
        for number in range(20):
            await publish(ports, f"x{number}", k=number)
        await lane_reached(ports, lambda lane: len(lane.waiting) == 5)
        tool.gate.set()
        await all_ended(ports, app, *(f"x{number}" for number in range(20)))

    assert await longest_line(ports) == 5


async def test_an_event_for_many_expectations_is_read_alone_when_the_line_is_short(ports):
    tool = Counter(open_=False)
    actor = Actor("worker", tools={"api": tool}, max_concurrent_cluster=1, queue_max=5)
    for number in range(20):
        actor.expect(f"thing{number}", Scripted(CALL), on=event(HAPPENED))
    async with running(App(actors=[actor]), ports):
        await begun(ports)
        await publish(ports, *(f"x{number}" for number in range(10)))
        await lane_reached(ports, lambda lane: len(lane.waiting) >= 5)
        tool.gate.set()
        await lane_reached(ports, lambda lane: lane.newest_number == 200)

    assert await longest_line(ports) <= 5 + 20 - 1


async def test_what_a_person_fired_comes_in_before_newer_events(ports):
    app, tool = held(queue_max=1)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1")
        await lane_reached(ports, lambda lane: lane.waiting)
        asked = await fire(ports, "worker", "thing", by="ann")
        await eventually(lambda: not any(each.pending for each in ports.timers._durables.values()))
        await publish(ports, "x2")
        tool.gate.set()
        await lived(ports, asked)
        await all_ended(ports, app, "x2")

    assert await event_ids(ports) == ["x0", "x1", "by hand", "x2"]


async def test_more_than_can_be_outside_are_let_in(ports, monkeypatch):
    monkeypatch.setattr(intake, "OUTSIDE_MAX", 3)
    app, _ = held(queue_max=1)
    async with doomed(app, ports):
        await begun(ports)
        for _ in range(10):
            await fire(ports, "worker", "thing", by="ann")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 6)


async def test_what_is_dropped_begins_no_cooldown(ports):
    limits = {"cooldown_s": 600, "subject_key": "k"}
    app, tool = held(overflow="drop", thing=limits)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", k=1)
        await tool.called.wait()
        await publish(ports, "x1", k=2)
        await eventually(lambda: news(ports, "episode.dropped"))
        tool.gate.set()
        await free(ports)
        await publish(ports, "x2", k=2)
        await all_ended(ports, app, "x2")


async def test_what_is_dropped_leaves_a_cooldown_that_is_not_its_own(ports):
    app = laned(overflow="drop", thing={"cooldown_s": 600, "subject_key": "k"})
    key = cooldown_key("worker", "thing", "2")
    dropped = opening(app, id_="x1", payload={"k": 2})
    other = dropped.episode_id.encode()[::-1]
    trigger = msgspec.structs.replace(dropped.trigger, entity_id="2")
    await ports.gates.put(key, other)
    evaluator = evaluator_of(crew_of(app, ports))
    await evaluator.take_back(msgspec.structs.replace(dropped, trigger=trigger))
    entry = await ports.gates.get(key)
    assert entry is not None
    assert entry.value == other


async def test_what_is_dropped_is_no_probe_of_a_breaker(ports):
    rules = Breaker(threshold=1, half_open_after_s=LONG_S)
    app, tool = held(overflow="drop", thing={"breaker": rules})
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0")
        await tool.called.wait()
        await set_breaker(ports, opened_at=LONG_AGO)
        await publish(ports, "x1")
        await eventually(lambda: news(ports, "episode.dropped"))
        tool.gate.set()
        await free(ports)
        await publish(ports, "x2")
        await all_ended(ports, app, "x2")


async def test_the_world_hears_of_what_was_dropped_though_the_dispatcher_died(ports):
    app, tool = held(overflow="drop")

    def is_news(name, *rest, **more):
        return name == "episode.dropped"

    async with killed_at(app, ports, Point("domain_events", "publish", is_news)):
        await publish(ports, "x0")
        await tool.called.wait()
        await publish(ports, "x1")
    async with running(app, ports, "n2"):
        await eventually(lambda: news(ports, "episode.dropped"))
        tool.gate.set()
        await all_ended(ports, app, "x0")

    (told,) = news(ports, "episode.dropped")
    assert told["episode_id"] == opening(app, id_="x1").episode_id


async def test_what_waits_for_longer_than_it_is_worth_beginning_is_canceled(ports, monkeypatch):
    monkeypatch.setattr(scheduler, "LOOK_S", 0.02)
    app, tool = held(thing={"start_within_s": 0.1})
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1")
        waited = await lived(ports, opening(app, id_="x1").episode_id)
        lane = await lane_reached(ports, lambda lane: not lane.waiting)
        assert len(lane.admitted) == 1
        tool.gate.set()
        await all_ended(ports, app, "x0")

    assert (waited.end.status, waited.end.error_class) == ("canceled", "expired")
    assert (await turns_of(ports)).begun_by_key() == {"": ["event:x0"]}


async def test_nothing_is_kept_for_those_that_have_left(ports):
    context = crew_of(laned(), ports)
    effects = LaneEffects(context, breakers_of(context), traces={"waited": "00-1", "waits": "00-2"})
    await effects.carry_out(LaneMoved(left=("waited",)), EMPTY, version=1, openings={})
    assert effects.traces == {"waits": "00-2"}


# Wishes and streams that nobody knows.


async def test_a_wish_for_a_place_that_nobody_knows_is_a_dead_letter(ports, monkeypatch):
    """I5."""
    monkeypatch.setattr(intake, "STRANGE_DELIVERIES_MAX", 1)
    app = laned()
    unknown = opening(app, id_="later")
    async with running(app, ports):
        await begun(ports)
        await ports.timers.send(place("worker", unknown.episode_id), id="wish")
        async with ports.log.follow(Stream.DEAD) as follower:
            (record,) = await follower.receive(most=1, wait_s=5.0)
        (letter,) = record.commit.events
        assert isinstance(letter, DeadLettered)
        assert (letter.reason, letter.episode_id) == ("no_such_episode", unknown.episode_id)
        await write(ports, unknown.episode_id, unknown)
        _, key = ports.stack.aggregate_of(record.subject)
        await DeadLetterRequests(ports, CLOCK).requeue(key, by="ann")
        await lived(ports, unknown.episode_id)


async def test_what_has_rested_for_long_is_left_to_another_version_all_the_same(ports, monkeypatch):
    monkeypatch.setattr(intake, "RESTING_S", 0.0)
    monkeypatch.setattr(intake, "STRANGE_DELIVERIES_MAX", 20)
    old, new = laned(), laned()
    new.actors["worker"].expect("other", Scripted(), on=manual())
    await ports.registry.put(pause_key("worker"), b"{}")
    async with doomed(old, ports, "old"):
        asked = await fire(ports, "worker", "other", by="ann")
        await eventually(lambda: _most_deliveries(ports) > 30)
        await ports.registry.delete(pause_key("worker"))
        await begun(ports)
        rested = _most_deliveries(ports)
        await eventually(lambda: _most_deliveries(ports) > rested + 1)
    async with running(new, ports, "new"):
        assert await lived(ports, asked)


def _most_deliveries(ports):
    queues = ports.timers._durables.values()
    return max((one.deliveries for each in queues for one in each._unanswered.values()), default=0)


class Refusing:
    """A world with a stream that this user may not read."""

    def __init__(self, real):
        self._real = real

    def __getattr__(self, name):
        return getattr(self._real, name)

    async def open_feed(self, actor, foreign, *, after=None):
        raise Incompatible(f"stream {foreign.stream} is refused", remedy="Ask its owner.")


async def test_a_stream_that_cannot_be_read_holds_up_nothing_else(ports):
    ports.domain_events.add_stream("JOBS")
    app = laned(thing={"on": [event(HAPPENED), manual(), event(stream="JOBS")]})
    async with running(app, replace(ports, domain_events=Refusing(ports.domain_events))):
        await begun(ports)
        await publish(ports, "x0")
        await all_ended(ports, app, "x0")
        await lived(ports, await fire(ports, "worker", "thing", by="ann"))

"""Episodes that take turns: whose turn it is, on any number of nodes, whatever becomes of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from engine.app.triggers import event
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes.fire import fire
from engine.execution import commands
from engine.lanes import intake, scheduler
from engine.lanes.lane import fold
from engine.operations.dead_letters import DeadLetterRequests
from streams.errors import Unavailable
from streams.json import raw
from streams.keys import NODES, node_key, pause_key
from streams.layout import Stream
from streams.memory import durable, memory_ports
from streams.model.commands import Start
from streams.model.events import (
    CheckpointSaved,
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    LaneMoved,
)
from streams.ports.log import Commit
from tests.engine.lane_stage import (
    CALL,
    Point,
    all_taken,
    begun,
    event_queues,
    killed_at,
    lane_of,
    lane_reached,
    laned,
    news,
    placed,
    publish,
    turns_of,
)
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    LEASE_TTL_S,
    LOOK_S,
    WAIT_S,
    Counter,
    Scripted,
    app_of,
    doomed,
    eventually,
    life,
    lived,
    node_of,
    open_episode,
    opening,
    running,
    write,
)

END_S = 5.0
"""Longest that a node which is cut off may take, in seconds."""


@pytest.fixture(autouse=True)
def _soon_again(monkeypatch):
    """What a dead node has not answered for comes again sooner than from a server."""
    monkeypatch.setattr(durable, "ACK_WAIT_S", LEASE_TTL_S)
    monkeypatch.setattr(scheduler, "REDELIVERED_S", LEASE_TTL_S)
    monkeypatch.setattr(scheduler, "UNSETTLED_S", LEASE_TTL_S)


def held(**limits):
    """Return an app whose episodes wait in their first step, and the tool that lets them go."""
    tool = Counter(open_=False)
    return laned(Scripted(CALL), tools={"api": tool}, **limits), tool


async def all_lived(ports, app, names):
    return [await lived(ports, opening(app, id_=name).episode_id) for name in names]


# Limits that hold on all nodes together.


async def test_no_more_run_at_a_time_than_the_cluster_may(ports):
    app = laned(Scripted(CALL), tools={"api": Counter()}, cluster=3)
    names = [f"x{n}" for n in range(60)]
    async with running(app, ports, "n1"), running(app, ports, "n2"), running(app, ports, "n3"):
        await begun(ports)
        await publish(ports, *names)
        await all_lived(ports, app, names)
        await lane_reached(ports, lambda lane: not lane.admitted)

    turns = await turns_of(ports)
    assert (len(turns.ended), turns.most_at_once) == (60, 3)


async def test_episodes_with_one_key_run_one_after_the_other_in_the_order_of_their_events(ports):
    app = laned(
        Scripted(CALL),
        tools={"api": Counter()},
        cluster=None,
        thing={"concurrency_key": "k"},
    )
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await begun(ports)
        for number in range(60):
            await publish(ports, f"x{number}", k=number % 6)
        await all_lived(ports, app, [f"x{number}" for number in range(60)])

    turns = await turns_of(ports)
    assert set(turns.most_of_a_key.values()) == {1}
    assert turns.begun_by_key() == {
        str(key): [f"event:x{number}" for number in range(key, 60, 6)] for key in range(6)
    }


async def test_the_highest_priority_goes_first_and_of_equal_ones_the_oldest(ports):
    app, tool = held(cluster=1)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1", "x2")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 2)
        urgent = await fire(ports, "worker", "thing", by="ann", priority=7)
        await lane_reached(ports, lambda lane: len(lane.waiting) == 3)
        tool.gate.set()
        await all_lived(ports, app, ["x0", "x1", "x2"])
        await lived(ports, urgent)

    turns = await turns_of(ports)
    places = [turns.opened[subject].trigger for subject in turns.begun]
    assert [getattr(each, "event_id", "urgent") for each in places] == ["x0", "urgent", "x1", "x2"]


async def test_a_node_more_is_room_for_more(ports):
    app, tool = held(cluster=10, most=2)
    names = [f"x{n}" for n in range(5)]
    async with running(app, ports, "n1"):
        await begun(ports)
        await publish(ports, *names)
        lane = await lane_reached(ports, lambda lane: lane.admitted)
        assert (len(lane.admitted), len(lane.waiting)) == (2, 3)
        async with running(app, ports, "n2"):
            await lane_reached(ports, lambda lane: len(lane.admitted) == 4)
            tool.gate.set()
            await all_lived(ports, app, names)


# What finds no room.


async def test_events_stay_in_their_stream_while_as_many_wait_as_may(ports):
    app, tool = held(cluster=1, queue_max=3)
    names = [f"x{n}" for n in range(20)]
    async with running(app, ports):
        await begun(ports)
        await publish(ports, *names)
        lane = await lane_reached(ports, lambda lane: len(lane.waiting) == 3)
        (queue,) = event_queues(ports)
        assert queue.pending == 20 - 4
        assert len(lane.admitted) == 1
        tool.gate.set()
        await all_lived(ports, app, names)

    waited = [len(lane.waiting) for lane in await _history(ports)]
    assert max(waited) == 3


async def test_what_finds_no_room_is_dropped_and_never_opened(ports):
    app, tool = held(cluster=2, overflow="drop")
    names = [f"x{n}" for n in range(10)]
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await begun(ports)
        await publish(ports, *names)
        await eventually(lambda: len(news(ports, "episode.dropped")) == 8)
        tool.gate.set()
        await all_lived(ports, app, ["x0", "x1"])

    assert [each.dedupe_key for each in await _opened(ports)] == ["event:x0", "event:x1"]
    dropped = news(ports, "episode.dropped")
    assert {(each["reason"], each["detail"]) for each in dropped} == {("overflow", "no_room")}
    assert not news(ports, "episode.queued")


class Unheard:
    """Gates that keep to themselves for a while what nodes say of themselves."""

    def __init__(self, gates):
        self._gates, self.may = gates, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._gates, name)

    async def put(self, key, value, **more):
        if key.startswith(f"{NODES}."):
            await self.may.wait()
        return await self._gates.put(key, value, **more)


async def test_who_dispatches_has_its_own_room_though_the_others_miss_it():
    """It stood still for longer than what it says of itself lasts."""
    ports = memory_ports(clock=CLOCK)  # With leases that do not lapse while nothing is heard.
    app = laned(cluster=1, overflow="drop")
    gates = Unheard(ports.gates)
    gates.may.set()
    async with running(app, replace(ports, gates=gates), "n1") as node:
        await begun(ports)
        await publish(ports, "x0")
        await all_lived(ports, app, ["x0"])
        await lane_reached(ports, lambda lane: not lane.admitted)
        gates.may.clear()
        async with asyncio.timeout(WAIT_S):
            while node._members.nodes:  # What it was telling when it could no more still comes.
                await ports.gates.delete(node_key("n1"))
                await asyncio.sleep(LOOK_S)
        await publish(ports, "x1")
        await all_lived(ports, app, ["x1"])
        gates.may.set()

    assert not news(ports, "episode.dropped")


async def test_nothing_is_dropped_because_nobody_has_heard_of_a_node_yet(ports):
    app = laned(cluster=1, overflow="drop")
    await (await ports.domain_events.open("worker", [HAPPENED])).close()
    await publish(ports, "x0")
    gates = Unheard(ports.gates)
    async with running(app, replace(ports, gates=gates)):
        for _ in range(500):
            await asyncio.sleep(0)
        gates.may.set()
        await all_lived(ports, app, ["x0"])


async def test_the_oldest_that_waits_is_shed_for_a_newer_one(ports):
    app, tool = held(cluster=1, overflow="shed_oldest", queue_max=2)
    async with running(app, ports):
        await begun(ports)
        for number in range(3):
            await publish(ports, f"x{number}")
            await lane_reached(ports, lambda lane, n=number: lane.newest_number == n + 1)
        await publish(ports, "x3")
        shed = await lived(ports, opening(app, id_="x1").episode_id)
        tool.gate.set()
        await all_lived(ports, app, ["x0", "x2", "x3"])

    assert (shed.end.status, shed.end.error_class) == ("canceled", "shed_oldest")
    (canceled,) = news(ports, "episode.canceled")
    assert canceled["episode_id"] == opening(app, id_="x1").episode_id
    turns = await turns_of(ports)
    assert turns.begun_by_key() == {"": ["event:x0", "event:x2", "event:x3"]}


async def test_who_waits_is_told_of_with_its_place_in_the_line(ports):
    app, tool = held(cluster=1)
    async with running(app, ports):
        await begun(ports)
        for number in range(3):
            await publish(ports, f"x{number}")
            await lane_reached(ports, lambda lane, n=number: lane.newest_number == n + 1)
        await eventually(lambda: len(news(ports, "episode.queued")) == 2)
        tool.gate.set()
        await all_lived(ports, app, ["x0", "x1", "x2"])

    queued = news(ports, "episode.queued")
    assert [(each["episode_id"], each["position"]) for each in queued] == [
        (opening(app, id_="x1").episode_id, 1),
        (opening(app, id_="x2").episode_id, 2),
    ]


# Takeovers.

LIVES = ["x0", "x1", "x2"]


def _is_lane_commit(subject, commit, *, after):
    return ".lane." in subject and any(
        isinstance(each, LaneMoved) and each.placed for each in commit.events
    )


def _is_opening(subject, commit, *, after):
    return any(isinstance(each, EpisodeOpened) for each in commit.events)


def _is_turn(command, *, id, trace=""):
    return isinstance(command, Start) and command.admitted


def _is_end(timer, *, id, trace=""):
    return timer.purpose == "left"


@pytest.mark.parametrize("overflow", ["queue", "drop", "shed_oldest"])
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(Point("log", "append", _is_opening, is_done=True), id="after opening"),
        pytest.param(Point("log", "append", _is_lane_commit), id="before the commit"),
        pytest.param(Point("log", "append", _is_lane_commit, is_done=True), id="after the commit"),
        pytest.param(Point("commands", "send", _is_turn), id="before calling"),
        pytest.param(Point("commands", "send", _is_turn, is_done=True), id="before answering"),
        pytest.param(Point("timers", "send", _is_end), id="before giving the turn back"),
        pytest.param(Point("timers", "send", _is_end, is_done=True), id="after giving it back"),
    ],
)
async def test_a_dispatcher_that_dies_loses_nothing_and_does_nothing_twice(ports, point, overflow):
    app = laned(cluster=4, overflow=overflow, thing={"concurrency_key": "k", "concurrency": 4})
    async with killed_at(app, ports, point):
        asked = await fire(ports, "worker", "thing", {"k": 1}, by="ann")
        for name in LIVES:
            await publish(ports, name, k=1)
    async with running(app, ports, "n2"):
        lives = [await lived(ports, asked), *await all_lived(ports, app, LIVES)]
        lane = await lane_reached(ports, lambda lane: not lane.admitted)

    assert {each.end.status for each in lives} == {"done"}
    assert lane.waiting == ()
    turns = await turns_of(ports)
    assert (len(turns.opened), len(turns.begun), len(turns.ended)) == (4, 4, 4)


async def test_what_was_opened_in_vain_is_canceled_where_there_is_no_room_any_more(ports):
    """Its dispatcher died before its place was written down, and a deploy has made less room."""
    before, tool = held(cluster=2, overflow="drop")
    now = laned(Scripted(CALL), tools={"api": tool}, cluster=1, overflow="drop")

    def is_second(subject, commit, *, after):
        opened = [each for each in commit.events if isinstance(each, EpisodeOpened)]
        return any(each.dedupe_key == "event:x1" for each in opened)

    async with killed_at(before, ports, Point("log", "append", is_second, is_done=True)):
        await publish(ports, "x0")
        await tool.called.wait()
        await publish(ports, "x1")
    async with running(now, ports, "n2"):
        canceled = await lived(ports, opening(now, id_="x1").episode_id)
        tool.gate.set()
        await all_lived(ports, now, ["x0"])

    assert canceled.end.status == "canceled"


async def test_what_was_shed_is_canceled_even_if_its_dispatcher_died(ports):
    def is_cancel(subject, commit, *, after):
        return any(isinstance(each, EpisodeFinished) for each in commit.events)

    app, tool = held(cluster=1, overflow="shed_oldest", queue_max=1)
    async with killed_at(app, ports, Point("log", "append", is_cancel)):
        for number in range(3):
            await publish(ports, f"x{number}")
            await lane_reached(ports, lambda lane, n=number: lane.newest_number == n + 1)
    tool.gate.set()
    async with running(app, ports, "n2"):
        shed = await lived(ports, opening(app, id_="x1").episode_id)
        await all_lived(ports, app, ["x0", "x2"])

    assert shed.end.error_class == "shed_oldest"
    assert len(news(ports, "episode.canceled")) == 1


async def test_a_clean_stop_has_another_node_dispatch_at_once(monkeypatch):
    """The lease would last, and the other would wait, far longer than anybody does here."""
    monkeypatch.setattr(scheduler, "STANDBY_S", 600.0)
    ports = memory_ports(clock=CLOCK, lease_ttl_s=600.0)
    app = laned(cluster=1)
    async with AsyncExitStack() as others:
        async with running(app, ports, "n1"):
            await begun(ports)
            await publish(ports, "x0")
            await all_lived(ports, app, ["x0"])
            second = await others.enter_async_context(running(app, ports, "n2"))
            await eventually(lambda: second._lease_events._freed)
        await publish(ports, "x1")
        await all_lived(ports, app, ["x1"])


async def test_a_dispatcher_that_was_overtaken_reads_the_lane_anew(ports):
    app = placed(cluster=1)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "first")
        await all_lived(ports, app, ["first"])
        await lane_reached(ports, lambda lane: not lane.admitted)
        subject = ports.stack.lane("worker")
        last = await ports.log.last(subject)
        commit = Commit(id="rival", at=CLOCK.now(), events=(LaneMoved(left=("nobody",)),))
        await ports.log.append(subject, commit, after=last.seq)
        await publish(ports, "x0", "x1")
        await all_lived(ports, app, ["x0", "x1"])


async def test_a_crashed_episode_keeps_its_turn_until_another_node_has_ended_it(ports):
    app, tool = held(cluster=1)
    async with doomed(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1")
        await tool.called.wait()
    tool.gate.set()
    async with running(app, ports, "n2"):
        first, _ = await all_lived(ports, app, ["x0", "x1"])

    assert first.episode.attempts == 2
    turns = await turns_of(ports)
    assert turns.most_at_once == 1
    assert turns.begun_by_key() == {"": ["event:x0", "event:x1"]}


# Starts that nobody gave a turn.


async def test_a_start_that_was_given_no_turn_waits_for_one(ports):
    app, tool = held(cluster=1)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0")
        await tool.called.wait()
        again = await open_episode(ports, app, id_="again")
        lane = await lane_reached(ports, lambda lane: lane.waiting)
        assert [ticket.episode_id for ticket in lane.waiting] == [again]
        assert not (await life(ports, again)).episode.attempts
        tool.gate.set()
        await lived(ports, again)

    assert (await turns_of(ports)).most_at_once == 1


async def test_a_dead_letter_that_is_requeued_takes_its_turn(ports):
    app, tool = held(cluster=1)
    gone = opening(app, id_="gone")
    await write(ports, gone.episode_id, gone)
    await write(ports, gone.episode_id, EpisodeFinished(status=EndStatus.FAILED))
    dead_letters = DeadLetterWriter(ports, CLOCK)
    await dead_letters.write_episode(gone, reason="attempts_exhausted", detail="")
    _, letter = ports.stack.aggregate_of(ports.stack.dead("episode", gone.episode_id))
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0")
        await tool.called.wait()
        requeued = await DeadLetterRequests(ports, CLOCK).requeue(letter, by="ann")
        lane = await lane_reached(ports, lambda lane: lane.waiting)
        assert [ticket.episode_id for ticket in lane.waiting] == [requeued.episode_id]
        tool.gate.set()
        await lived(ports, requeued.episode_id)

    assert (await turns_of(ports)).most_at_once == 1


A_NEWER_STATE = {
    "checkpoint_no": 0,
    "step_no": 0,
    "phase": "init",
    "state": raw({}),
    "schema_version": 99,
}


async def test_a_turn_that_no_node_can_use_is_given_back_with_the_dead_letter(ports, monkeypatch):
    monkeypatch.setattr(commands, "HINDRANCE_DELIVERIES_MAX", 1)
    monkeypatch.setattr(commands, "HINDRANCE_S", 0.0)
    app, tool = held(cluster=1)
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1", "x2")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 2)
        broken = opening(app, id_="x1").episode_id
        await write(ports, broken, CheckpointSaved(**A_NEWER_STATE))
        tool.gate.set()
        await all_lived(ports, app, ["x0", "x2"])


async def test_a_start_that_was_given_no_turn_and_finds_no_room_is_canceled(ports):
    app, tool = held(cluster=1, overflow="drop")
    async with running(app, ports):
        await begun(ports)
        await publish(ports, "x0")
        await tool.called.wait()
        again = await lived(ports, await open_episode(ports, app, id_="again"))
        tool.gate.set()
        await all_lived(ports, app, ["x0"])

    assert again.end.status == "canceled"


async def test_a_start_of_an_episode_that_has_its_turn_is_passed_on(ports):
    """As after a dead letter of the command that gave it: it is asked for again, with no turn."""
    app = laned(cluster=1)
    begun_ = opening(app)
    await write(ports, begun_.episode_id, begun_)
    async with running(app, ports):
        await begun(ports)
        first = Start(actor_id="worker", episode_id=begun_.episode_id)
        await ports.commands.send(first, id="recall")
        assert (await lived(ports, begun_.episode_id)).end
        await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted)


# Pauses and deploys.


async def test_what_waits_goes_on_while_its_actor_is_paused_and_nothing_new_begins(
    ports, monkeypatch
):
    monkeypatch.setattr(intake, "RESTING_S", 0.05)
    app, tool = held(cluster=1)
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await begun(ports)
        await publish(ports, "x0", "x1")
        await lane_reached(ports, lambda lane: lane.waiting)
        await ports.registry.put(pause_key("worker"), b"{}")
        tool.gate.set()
        await all_lived(ports, app, ["x0", "x1"])
        await publish(ports, "x2")
        asked = await fire(ports, "worker", "thing", by="ann")
        await lane_reached(ports, lambda lane: not lane.admitted)
        assert len(await _opened(ports)) == 2
        await ports.registry.delete(pause_key("worker"))
        await all_lived(ports, app, ["x2"])
        await lived(ports, asked)


async def test_what_waits_runs_when_a_deploy_has_removed_the_limits(ports):
    app, tool = held(cluster=1)
    async with doomed(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1", "x2")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 2)
        await publish(ports, "x3")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 3)
    await publish(ports, "x4")
    tool.gate.set()
    unlimited = app_of(Scripted(CALL), tools={"api": tool})
    names = [f"x{n}" for n in range(5)]
    async with running(unlimited, ports, "n2"):
        await all_lived(ports, app, names)
        await publish(ports, "x5")
        await all_lived(ports, app, ["x5"])

    lane = await lane_of(ports)
    assert (lane.waiting, lane.admitted) == ((), ())
    assert len((await turns_of(ports)).opened) == 6


async def test_a_lane_is_closed_though_a_stream_that_the_actor_listens_to_is_missing(ports):
    app, tool = held(cluster=1)
    async with doomed(app, ports):
        await begun(ports)
        await publish(ports, "x0", "x1")
        await lane_reached(ports, lambda lane: len(lane.waiting) == 1)
    tool.gate.set()
    on = [event(HAPPENED), event(stream="ORDERS")]
    unlimited = app_of(Scripted(CALL), tools={"api": tool}, on=on)
    async with running(unlimited, ports, "n2"):
        await all_lived(ports, app, ["x0", "x1"])


async def test_events_that_gates_have_not_answered_for_wait_for_the_first_dispatcher(ports):
    await (await ports.domain_events.open("worker", [HAPPENED])).close()
    await publish(ports, "x0", "x1")
    app = laned(cluster=1)
    async with running(app, ports):
        await all_lived(ports, app, ["x0", "x1"])
        await publish(ports, "x2")
        await all_lived(ports, app, ["x2"])
        await all_taken(ports)


async def test_a_version_that_watches_more_misses_nothing_of_it(ports):
    """An older version dispatches; it leaves what it does not watch."""
    old = laned(cluster=1)
    new = laned(cluster=1, thing={"on": event(HAPPENED, "thing.changed")})
    async with running(old, ports, "old"):
        await begun(ports)
        async with running(new, ports, "new"):
            changed = ports.stack.event("thing.changed")
            await eventually(lambda: changed in _watched(ports))
            await ports.domain_events.publish("thing.changed", {}, id="changed")
            await publish(ports, "x0")
            await all_lived(ports, old, ["x0"])
    async with running(new, ports, "new"):
        await all_lived(ports, new, ["changed"])


def _watched(ports):
    return {name for names in ports.domain_events._watched.values() for name in names}


async def _opened(ports):
    async with ports.log.follow(Stream.JOURNAL) as follower:
        records = await follower.receive(most=10_000, wait_s=0)
    every = (each for record in records for each in record.commit.events)
    return [each for each in every if isinstance(each, EpisodeOpened)]


async def _history(ports):
    """Return the lane after each of its commits."""
    records = await ports.log.read(ports.stack.lane("worker"))
    return [fold(records[:count]) for count in range(1, len(records) + 1)]


class RefusedAtTheEnd:
    """A port of timers whose queue is refused at the moment at which who opens it is canceled."""

    def __init__(self, timers):
        self._timers = timers
        self.reached = asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._timers, name)

    async def open(self, actor):
        if actor != "worker" or self.reached.is_set():
            return await self._timers.open(actor)
        self.reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable("open", detail="refused") from None


async def test_a_dispatcher_that_is_cut_off_as_its_queue_is_refused_ends():
    ports = memory_ports(clock=CLOCK, lease_ttl_s=LEASE_TTL_S)
    timers = RefusedAtTheEnd(ports.timers)
    task = asyncio.create_task(node_of(laned(cluster=1), replace(ports, timers=timers)).run())
    await asyncio.wait_for(timers.reached.wait(), WAIT_S)
    task.cancel()
    ended, _ = await asyncio.wait([task], timeout=END_S)
    assert ended, "whoever stops the node waits for ever"

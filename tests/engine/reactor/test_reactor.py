"""How what follows from commits is carried out: once, in order, by one node at a time."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from engine.cluster.members import end_presence
from engine.cluster.nodes import NodeInfo, encoded
from engine.reactor import reactor as reactors
from engine.reactor.leader import Leader, Leadership, leader_of
from engine.reactor.position import NOTE_S
from engine.reactor.reactor import STUCK_S, Reactor, encode, watch_nodes
from engine.runtime.overdue import Overdue
from engine.runtime.publish import PublicEvent
from streams.errors import Unavailable
from streams.keys import node_key, published_key
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.modes import NodeMode
from streams.ports.domain_events import EVENT_BYTES_MAX
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER, MESSAGE_ID_HEADER
from tests.engine.reactor import journals as given
from tests.simulation.time import SimClock, simulate

PART = "journal"

SINCE = datetime(2030, 1, 1, tzinfo=UTC)

LEASE_S = 10


class Scene:
    """A stack in simulated time, its journal, and reactors."""

    def __init__(self, *, partitions: int = 1) -> None:
        self.clock = SimClock()
        self.stack = Stack("s", partitions)
        self.ports = memory_ports(stack=self.stack, clock=self.clock)

    async def append(self, subject: str, *events) -> int:
        last = await self.ports.log.last(subject)
        seq = last.seq if last else 0
        commit = given.recorded(subject, seq + 1, *events).commit
        return await self.ports.log.append(subject, commit, after=seq)

    async def live(self, number: int) -> None:
        """Append a whole episode in one commit."""
        opened = replace(given.OPENED, episode_id=f"e{number}")
        await self.append(self.stack.episode(f"e{number}"), opened, given.STARTED, given.FINISHED)

    def reactor(self, node: str = "n1", stream: Stream = Stream.JOURNAL, **replaced) -> Reactor:
        ports = dataclasses.replace(self.ports, **replaced)
        return Reactor(ports, self.clock, node, SINCE, stream)

    async def list_node(
        self, node: str, *, since: datetime = SINCE, server_s: int = LEASE_S
    ) -> None:
        """Write the entry of a node, as its heartbeats do; the server ends it after `server_s`."""
        info = NodeInfo(
            name=node,
            host="host",
            pid=1,
            since=since,
            mode=NodeMode.FULL,
            setting=NodeMode.FULL,
            lease_s=LEASE_S,
        )
        await self.ports.gates.put(node_key(node), encoded(info), ttl_s=server_s)

    @asynccontextmanager
    async def at_work(self, reactor: Reactor):
        """Run a reactor, and have it killed in the end."""
        task = asyncio.create_task(reactor.follow())
        overdue = Overdue(self.clock, "standby", partial(end_presence, self.ports.gates))
        watch = watch_nodes(self.ports.gates, reactor.gone, overdue, hear_all=lambda _: None)
        tasks = [task, *map(asyncio.create_task, (watch, overdue.run()))]
        try:
            yield task
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def quiet(self, within_s: float = 1.0) -> None:
        await self.clock.sleep(within_s)

    @property
    def told(self) -> list[str]:
        """The ids of the public events, in order, without those of reactors and openings."""
        kept = self.ports.log._streams[self.stack.stream(Stream.EVENTS)].past(0)
        ids = [each.headers[MESSAGE_ID_HEADER] for each in kept]
        others = ("reactor.", "triggered")
        return [each for each in ids if not each.startswith(others) and not each.endswith(others)]

    async def hold(self, node: str) -> None:
        """Have a reactor die while it leads."""
        assert await Leadership(self.ports.gates, PART, Leader(node, SINCE)).take(after=0)

    async def leader(self) -> Leader | None:
        leader, _ = await leader_of(self.ports.gates, PART)
        return leader

    async def position(self) -> int:
        entry = await self.ports.gates.get(published_key(PART))
        return int(entry.value) if entry else 0


def play(story, **how):
    """Play `story` on a new scene, in no time."""

    async def played():
        scene = Scene(**how)
        return await story(scene)

    return simulate(played())


def test_what_the_journal_has_is_told_from_its_beginning():
    async def story(scene):
        await scene.live(1)
        async with scene.at_work(scene.reactor()):
            await scene.quiet()
            await scene.live(2)
            await scene.quiet()
        assert scene.told == ["e1.started.1", "e1.ended", "e2.started.1", "e2.ended"]

    play(story)


def test_commands_are_sent():
    async def story(scene):
        await scene.append(scene.stack.episode("e1"), given.OPENED)
        async with scene.at_work(scene.reactor()):
            await scene.quiet()
        source = await scene.ports.commands.open("monitor")
        (delivery,) = await source.receive(room=10, wait_s=0.0)
        assert delivery.content.episode_id == "e1"

    play(story)


def test_the_trace_of_a_commit_goes_on():
    async def story(scene):
        await scene.live(1)
        async with scene.at_work(scene.reactor()):
            await scene.quiet()
        source = await scene.ports.domain_events.open("m", ["episode.completed"], after=0)
        (delivery,) = await source.receive(room=10, wait_s=0.0)
        assert delivery.trace == "trace-1"

    play(story)


def test_whoever_stops_has_told_all_and_hands_over_at_once():
    async def story(scene):
        await scene.list_node("n1")
        first, second = scene.reactor("n1"), scene.reactor("n2")
        async with scene.at_work(first) as task, scene.at_work(second):
            await scene.quiet()
            await scene.live(1)
            first.end()
            await task
            assert scene.told == ["e1.started.1", "e1.ended"]
            assert await scene.position() == 1
            assert await scene.leader() is None
            await scene.ports.gates.delete(node_key("n1"))
            await scene.live(2)
            await scene.quiet(0.1)
            assert scene.told[2:] == ["e2.started.1", "e2.ended"]

    play(story)


class SlowToHandOut:
    """A follower that has taken commits for a while before it returns them."""

    def __init__(self, follower, clock):
        self._follower, self._clock = follower, clock

    @property
    def pending(self):
        return self._follower.pending

    async def receive(self, *, most, wait_s):
        records = await self._follower.receive(most=most, wait_s=wait_s)
        if records:
            await self._clock.sleep(1.0)
        return records


class SlowLog:
    """A log whose followers are slow to hand out."""

    def __init__(self, log, clock):
        self._log, self._clock = log, clock

    def __getattr__(self, name):
        return getattr(self._log, name)

    @asynccontextmanager
    async def follow(self, *given_, **more):
        async with self._log.follow(*given_, **more) as follower:
            yield SlowToHandOut(follower, self._clock)


def test_whoever_stops_while_it_receives_passes_nothing_over():
    async def story(scene):
        reactor = scene.reactor(log=SlowLog(scene.ports.log, scene.clock))
        async with scene.at_work(reactor) as task:
            await scene.quiet()
            await scene.live(1)
            await scene.quiet(0.5)
            reactor.end()
            await task
        assert scene.told == ["e1.started.1", "e1.ended"]

    play(story)


def test_whoever_dies_is_replaced_once_the_entry_of_its_node_has_lapsed():
    async def story(scene):
        await scene.list_node("n1")
        await scene.hold("n1")
        async with scene.at_work(scene.reactor("n3")):
            await scene.live(1)
            await scene.quiet(LEASE_S - 0.5)
            assert scene.told == []
            await scene.quiet(0.6)
            assert scene.told == ["e1.started.1", "e1.ended"]

    play(story)


def test_whoever_dies_is_replaced_before_the_server_has_looked_for_what_is_over():
    async def story(scene):
        await scene.list_node("n1", server_s=1_000 * LEASE_S)
        await scene.hold("n1")
        async with scene.at_work(scene.reactor("n3")):
            await scene.live(1)
            await scene.quiet(LEASE_S / 2)
            await scene.list_node("n1", server_s=1_000 * LEASE_S)
            await scene.quiet(LEASE_S - 0.5)
            assert scene.told == []
            await scene.quiet(0.6)
            assert scene.told == ["e1.started.1", "e1.ended"]

    play(story)


def test_whoever_was_started_again_need_not_wait_for_what_it_was():
    async def story(scene):
        await scene.hold("n1")
        await scene.list_node("n1", since=SINCE + timedelta(seconds=1))
        async with scene.at_work(scene.reactor("n2")):
            await scene.live(1)
            await scene.quiet(0.1)
            assert scene.told == ["e1.started.1", "e1.ended"]

    play(story)


def test_two_never_tell_at_a_time():
    async def story(scene):
        for node in ("n1", "n2"):
            await scene.list_node(node)
        async with scene.at_work(scene.reactor("n1")), scene.at_work(scene.reactor("n2")):
            await scene.quiet()
            assert await scene.leader() == Leader("n1", SINCE)
            for number in range(20):
                await scene.live(number)
            await scene.quiet(LEASE_S / 2)
            assert await scene.leader() == Leader("n1", SINCE)
            assert len(scene.told) == len(set(scene.told)) == 40

    play(story)


def test_of_those_who_find_no_leader_one_leads():
    async def story(scene):
        first, second = (Leadership(scene.ports.gates, PART, Leader(node, SINCE)) for node in "ab")
        assert await first.take(after=0)
        assert not await second.take(after=0)
        assert await scene.leader() == Leader("a", SINCE)

    play(story)


def test_whoever_was_overtaken_tells_nothing_more():
    async def story(scene):
        async with scene.at_work(scene.reactor("n1")):
            await scene.live(0)
            await scene.quiet()
            # Another one believes that it leads: the fence is its own from now on.
            await scene.ports.domain_events.fence(f"reactor.started.{PART}", {}, id="reactor.x")
            with capture_logs() as logs:
                await scene.live(1)
                await scene.quiet(0.001)
            assert [each["event"] for each in logs][:1] == ["standing by"]
            await scene.quiet()
            told = ["e0.started.1", "e0.ended", "e1.started.1", "e1.ended"]
            assert scene.told == told, "it began anew, at its position"

    play(story)


def test_what_was_told_before_the_position_was_noted_is_told_again_under_its_id():
    async def story(scene):
        async with scene.at_work(scene.reactor("n1")):
            await scene.quiet()
            for number in (1, 2):
                await scene.live(number)
                await scene.quiet(NOTE_S / 5)
            assert await scene.position() == 1
        told = list(scene.told)
        async with scene.at_work(scene.reactor("n2")):
            await scene.quiet()
        assert scene.told == told == ["e1.started.1", "e1.ended", "e2.started.1", "e2.ended"]
        assert await scene.position() == 2

    play(story)


def test_what_was_told_long_ago_is_not_told_again():
    async def story(scene):
        async with scene.at_work(scene.reactor("n1")):
            await scene.live(1)
            await scene.quiet()
        await scene.quiet(600.0)
        async with scene.at_work(scene.reactor("n2")):
            await scene.live(2)
            await scene.quiet()
        assert scene.told == ["e1.started.1", "e1.ended", "e2.started.1", "e2.ended"]

    play(story)


def test_whoever_begins_in_the_middle_of_a_life_reads_its_beginning():
    async def story(scene):
        subject = scene.stack.episode("e1")
        async with scene.at_work(scene.reactor("n1")):
            await scene.append(subject, given.OPENED, given.STARTED, given.CONVERGED)
            await scene.append(subject, given.DEFERRED)
            await scene.append(scene.stack.output("o1"), given.PROPOSED)
            await scene.quiet()
        await scene.append(subject, replace(given.STARTED, attempt=2))
        await scene.append(scene.stack.output("o1"), given.DELIVERED)
        await scene.append(subject, given.FINISHED)
        async with scene.at_work(scene.reactor("n2")):
            await scene.quiet()
        told = [each.partition(".")[0] for each in scene.told]
        assert told == ["e1", "output", "output", "e1"]
        assert scene.told[-1] == "e1.ended"

    play(story)


def test_a_story_that_was_read_for_an_output_is_not_ahead_of_its_episode():
    async def story(scene):
        subject, output = scene.stack.episode("e1"), scene.stack.output("o1")
        async with scene.at_work(scene.reactor("n1")):
            await scene.append(subject, given.OPENED, given.STARTED, given.CONVERGED)
            await scene.quiet()
        await scene.append(output, given.PROPOSED)
        await scene.append(subject, replace(given.STARTED, attempt=2))
        await scene.append(subject, given.DEFERRED)
        async with scene.at_work(scene.reactor("n2")):
            await scene.quiet()
        started, _, *rest = scene.told
        assert (started, rest) == ("e1.started.1", ["e1.claim_lost.1", "e1.started.2"])

    play(story)


def test_a_finding_is_told_though_its_episode_is_in_another_stream():
    async def story(scene):
        await scene.append(scene.stack.episode("e1"), given.OPENED, given.STARTED)
        await scene.append(scene.stack.finding("disk"), given.RAISED)
        async with scene.at_work(scene.reactor(stream=Stream.STATE)):
            await scene.quiet()
        assert scene.told == ["e1.finding.0"]

    play(story)


def test_a_log_that_is_away_is_waited_for():
    async def story(scene):
        class Away:
            is_away = True

            def __getattr__(self, name):
                return getattr(scene.ports.domain_events, name)

            async def fence(self, *given_, **more):
                if self.is_away:
                    raise Unavailable("events", detail="away")
                return await scene.ports.domain_events.fence(*given_, **more)

        world = Away()
        with capture_logs() as logs:
            async with scene.at_work(scene.reactor(domain_events=world)):
                await scene.live(1)
                await scene.quiet(60.0)
                world.is_away = False
                await scene.quiet(6.0)
        assert scene.told == ["e1.started.1", "e1.ended"]
        assert [each["event"] for each in logs].count("cannot publish") == 1

    play(story)


def test_before_what_it_cannot_read_it_stands_still_and_says_so():
    async def story(scene):
        await scene.live(1)
        scene.ports.log.publish_raw(scene.stack.episode("e2"), b"of a newer version", {})
        await scene.live(3)
        with capture_logs() as logs:
            async with scene.at_work(scene.reactor()):
                await scene.quiet(STUCK_S - 1)
                assert await scene.leader() is None, "another may try"
        assert scene.told == ["e1.started.1", "e1.ended"]
        assert [each["event"] for each in logs].count("cannot go on") == 1

    play(story)


def test_what_somebody_else_has_put_on_the_journal_is_passed_over():
    async def story(scene):
        for number in (1, 2):
            await scene.live(number)
        async with scene.at_work(scene.reactor()):
            await scene.quiet()
        strange = given.recorded("s.episode.%%", 1, given.OPENED)
        data = codec.encode_commit(strange.commit)
        scene.ports.log.publish_raw(strange.subject, data, {COMMIT_HEADER: "x"})
        await scene.live(3)
        async with scene.at_work(scene.reactor("n2")):
            await scene.quiet()
        assert scene.told[4:] == ["e3.started.1", "e3.ended"]

    play(story)


def test_what_refers_to_an_episode_that_is_gone_is_left_out():
    async def story(scene):
        await scene.append(scene.stack.finding("disk"), given.RAISED)
        await scene.append(scene.stack.finding("other"), given.EXPIRED)
        async with scene.at_work(scene.reactor(stream=Stream.STATE)):
            await scene.quiet()
        assert [each.rpartition(".")[2] for each in scene.told] == ["expired"]

    play(story)


def test_whoever_slept_while_another_led_tells_nothing():
    async def story(scene):
        async with scene.at_work(scene.reactor("n1")):
            await scene.quiet()
            entry = await scene.ports.gates.get(published_key(PART))
            assert int(entry.value) == 0, "it has told nothing so far, and has no fence"
            await scene.ports.gates.put(published_key(PART), b"1")
            await scene.live(1)
            await scene.quiet(0.001)
            assert scene.told == []

    play(story)


def test_whoever_has_nothing_to_tell_leaves_the_stream_as_it_is():
    async def story(scene):
        async with scene.at_work(scene.reactor()):
            await scene.quiet(60.0)
        assert scene.ports.log._streams[scene.stack.stream(Stream.EVENTS)].last_seq == 0

    play(story)


def test_an_event_that_is_too_large_is_left_out_and_logged():
    event = PublicEvent(name="a.b", id="x", payload={"big": "x" * EVENT_BYTES_MAX}, hops=1)
    with capture_logs() as logs:
        assert encode(event, trace="", part=PART) is None
    assert [each["id"] for each in logs] == ["x"]


def test_each_stream_of_a_journal_has_a_reactor_of_its_own():
    async def story(scene):
        for number in range(12):
            await scene.live(number)
        several = [
            Reactor(scene.ports, scene.clock, f"n{each}", SINCE, Stream.JOURNAL, each)
            for each in scene.stack.partitions_of(Stream.JOURNAL)
        ]
        async with scene.at_work(several[0]), scene.at_work(several[1]), scene.at_work(several[2]):
            await scene.quiet()
        ended = [each for each in scene.told if each.endswith(".ended")]
        assert sorted(ended) == sorted(f"e{number}.ended" for number in range(12))

    play(story, partitions=3)


def test_events_go_many_at_a_time(monkeypatch):
    calls: list[int] = []

    async def story(scene):
        for number in range(600):
            await scene.live(number)
        world = scene.ports.domain_events
        fence = world.fence

        async def counting(*given_, **more):
            writer = await fence(*given_, **more)
            publish = writer.publish

            async def counted(events):
                calls.append(len(events))
                await publish(events)

            return type("Writer", (), {"publish": staticmethod(counted)})()

        monkeypatch.setattr(type(world), "fence", lambda _, *g, **m: counting(*g, **m))
        async with scene.at_work(scene.reactor()):
            await scene.quiet()
        assert len(scene.told) == 1200

    play(story)
    assert max(calls) == 3 * reactors.COMMITS_MAX


@pytest.mark.parametrize("is_first", [True, False], ids=["alone", "beside another"])
def test_whoever_ends_before_it_led_returns(is_first):
    async def story(scene):
        if not is_first:
            await scene.list_node("n0")
            await scene.hold("n0")
        reactor = scene.reactor()
        reactor.end()
        await reactor.follow()
        return scene.clock.monotonic_s()

    assert play(story) < 1.0

"""How nodes are called to the episodes that the lease of a lost node stood for."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from msgspec.structs import replace

from engine.reactor.cover_watch import LOOK_S, CoverWatcher
from engine.reactor.covered import CoveredEpisodes
from engine.reactor.reactor import Reactor
from engine.runtime.leases import LeaseEvents
from streams.errors import Unavailable
from streams.keys import episode_claim, node_claim, published_key
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.commands import Recover
from streams.model.followed import Followed, decode_followed, encode_followed
from streams.ports.leases import Lease
from streams.ports.log import Commit
from streams.subjects import Stack
from tests.engine.reactor import journals as given
from tests.simulation.time import SimClock, simulate

PART = "journal"

SINCE = datetime(2030, 1, 1, tzinfo=UTC)


class Scene:
    """A stack in simulated time, whose episodes run on the node `n1`."""

    def __init__(self) -> None:
        self.clock, self.freed, self.stack = SimClock(), LeaseEvents(), Stack("s")
        self.ports = memory_ports(stack=self.stack, clock=self.clock)

    async def lease(self, node: str = "n1") -> Lease:
        lease = await self.ports.leases.acquire(node_claim(node), holder=node)
        assert lease is not None
        return lease

    async def append(self, number: int, *events) -> int:
        subject = self.stack.episode(f"e{number}")
        last = await self.ports.log.last(subject)
        seq = last.seq if last else 0
        commit = Commit(id=f"{subject}-{seq}", at=self.clock.now(), events=events)
        return await self.ports.log.append(subject, commit, after=seq)

    async def start(self, number: int, lease: Lease, *, attempt: int = 1) -> int:
        """Append an opening and a start that the lease of its node covers.

        That node knows all claims by then.
        """
        opened = replace(given.OPENED, episode_id=f"e{number}")
        started = replace(
            given.STARTED,
            node=lease.holder,
            attempt=attempt,
            claim_revision=self.freed.revision,
            node_lease_since=lease.acquired_at,
        )
        return await self.append(number, opened, started)

    def reactor(self, node: str = "n2") -> Reactor:
        return Reactor(self.ports, self.clock, node, SINCE, freed=self.freed)

    @asynccontextmanager
    async def at_work(self, reactor: Reactor):
        """Run a reactor, and hear of leases that end; have it killed in the end."""
        tasks = [asyncio.create_task(each) for each in (reactor.follow(), self._hear())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self) -> None:
        async with self.ports.leases.watch() as watch:
            while True:
                for change in await watch.receive(most=10, wait_s=1.0):
                    self.freed.handle(change)

    async def called(self) -> list[str]:
        """Return the episodes to which nodes were called by now."""
        source = await self.ports.commands.open("monitor")
        commands = [each.content for each in await source.receive(room=100, wait_s=0.0)]
        return [each.episode_id for each in commands if isinstance(each, Recover)]

    async def position(self) -> Followed:
        entry = await self.ports.gates.get(published_key(PART))
        return decode_followed(entry.value if entry else None)


def play(story):
    async def played():
        return await story(Scene())

    return simulate(played())


def test_a_node_is_called_to_each_episode_that_an_ended_lease_stood_for():
    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor()):
            await scene.start(1, lease)
            await scene.start(2, lease)
            await scene.clock.sleep(1.0)
            assert await scene.called() == []
            await scene.ports.leases.complete(lease)
            await scene.clock.sleep(0.1)
            assert sorted(await scene.called()) == ["e1", "e2"]

    play(story)


def test_the_lapse_of_a_lease_is_noticed_at_once():
    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor()):
            await scene.start(1, lease)
            await scene.clock.sleep(scene.ports.leases.ttl_s + 0.1)
            assert await scene.called() == ["e1"]

    play(story)


def test_a_lease_that_ended_before_its_start_was_seen_is_noticed_too():
    async def story(scene):
        lease = await scene.lease()
        await scene.start(1, lease)
        await scene.ports.leases.complete(lease)
        async with scene.at_work(scene.reactor()):
            await scene.clock.sleep(0.1)
            assert await scene.called() == ["e1"]

    play(story)


def test_the_lease_of_another_process_of_that_name_stands_for_nothing_of_the_former():
    async def story(scene):
        former = await scene.lease()
        await scene.ports.leases.complete(former)
        await scene.clock.sleep(1.0)
        await scene.lease()
        async with scene.at_work(scene.reactor()):
            await scene.start(1, former)
            await scene.clock.sleep(0.1)
            assert await scene.called() == ["e1"]

    play(story)


def test_a_claim_that_lapsed_before_an_episode_began_is_no_claim_of_it():
    """Of a node that died before its start was durable."""

    async def story(scene):
        async with scene.at_work(scene.reactor()):
            await scene.ports.leases.acquire(
                episode_claim(given.OPENED.actor_id, "e1"), holder="n0"
            )
            await scene.clock.sleep(2 * scene.ports.leases.ttl_s)
            lease = await scene.lease()
            await scene.clock.sleep(0.1)
            await scene.start(1, lease)
            await scene.ports.leases.complete(lease)
            await scene.clock.sleep(LOOK_S)
            assert await scene.called() == ["e1"]

    play(story)


def test_nobody_is_called_to_what_ended_or_is_begun_anew():
    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor()):
            await scene.start(1, lease)
            await scene.append(1, given.FINISHED)
            await scene.start(2, lease)
            await scene.append(2, replace(given.STARTED, node="n3", attempt=2, claim_revision=7))
            await scene.ports.leases.complete(lease)
            await scene.clock.sleep(LOOK_S)
            assert await scene.called() == []

    play(story)


def test_a_node_is_called_to_what_another_one_had_left_and_called_nobody_to():
    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor()):
            await scene.start(1, lease)
            await scene.append(1, given.LEFT)
            await scene.ports.leases.complete(lease)
            await scene.clock.sleep(0.1)
            assert await scene.called() == ["e1"]

    play(story)


class Closed:
    """A log that brings nothing of one episode."""

    def __init__(self, log, episode_id) -> None:
        self._log, self._episode_id = log, episode_id

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, *, after=0):
        if subject.endswith(self._episode_id):
            raise Unavailable(subject, detail="away")
        return await self._log.read(subject, after=after)


def test_a_position_before_a_commit_that_cannot_be_followed_knows_what_is_covered():
    async def story(scene):
        lease = await scene.lease()
        seq = await scene.start(1, lease)
        await scene.append(2, given.STEP)
        scene.ports = dataclasses.replace(scene.ports, log=Closed(scene.ports.log, "e2"))
        async with scene.at_work(scene.reactor()):
            await scene.clock.sleep(1.0)
            assert await scene.position() == Followed(seq, seq)

    play(story)


def test_nobody_is_called_to_what_has_a_claim_of_its_own():
    """If that lapses, it is noticed as any lapse is."""

    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor()):
            await scene.start(1, lease)
            await scene.ports.leases.acquire(episode_claim("monitor", "e1"), holder="n1")
            await scene.ports.leases.complete(lease)
            await scene.clock.sleep(LOOK_S)
            assert await scene.called() == []

    play(story)


def test_the_position_says_from_where_the_next_leader_has_to_read():
    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor()):
            first = await scene.start(1, lease)
            second = await scene.start(2, lease)
            await scene.clock.sleep(1.0)
            assert await scene.position() == Followed(second, first)
            newest = await scene.append(1, given.FINISHED)
            await scene.clock.sleep(1.0)
            assert await scene.position() == Followed(newest, second)
            newest = await scene.append(2, given.FINISHED)
            await scene.clock.sleep(1.0)
            assert await scene.position() == Followed(newest, 0)

    play(story)


def test_a_new_leader_calls_to_what_a_former_one_had_in_mind():
    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor("n1")):
            await scene.start(1, lease)
            await scene.clock.sleep(1.0)
        await scene.ports.leases.complete(lease)
        async with scene.at_work(scene.reactor("n2")):
            await scene.clock.sleep(20.0)  # It looks for a live leader first.
            assert await scene.called() == ["e1"]

    play(story)


def test_what_has_a_claim_is_not_kept_in_mind():
    async def story(scene):
        lease = await scene.lease()
        async with scene.at_work(scene.reactor()):
            seq = await scene.start(1, lease)
            await scene.ports.leases.acquire(episode_claim("monitor", "e1"), holder="n1")
            await scene.clock.sleep(3 * LOOK_S)
            assert await scene.position() == Followed(seq, 0)

    play(story)


class Away:
    """Leases of a server that is away for a while."""

    is_away = True

    def __init__(self, leases) -> None:
        self._leases = leases

    def __getattr__(self, name):
        return getattr(self._leases, name)

    async def standing(self, key):
        if self.is_away:
            raise Unavailable("standing", detail="away")
        return await self._leases.standing(key)


def test_while_the_leases_cannot_be_read_it_is_looked_again():
    async def story(scene):
        lease = await scene.lease()
        away = Away(scene.ports.leases)
        await scene.start(1, lease)
        await scene.ports.leases.complete(lease)
        scene.ports = dataclasses.replace(scene.ports, leases=away)
        async with scene.at_work(scene.reactor()):
            await scene.clock.sleep(2.0)
            assert await scene.called() == []
            away.is_away = False
            await scene.clock.sleep(1.0)
            assert await scene.called() == ["e1"]

    play(story)


class Lagging:
    """A log whose replica has the newest commit of an episode a moment later."""

    def __init__(self, log) -> None:
        self._log, self._is_first = log, True

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, *, after=0):
        is_first, self._is_first = self._is_first, False
        return () if is_first else await self._log.read(subject, after=after)


def test_a_replica_that_lacks_the_start_is_asked_again():
    async def story(scene):
        lease = await scene.lease()
        await scene.start(1, lease)
        await scene.ports.leases.complete(lease)
        ports = dataclasses.replace(scene.ports, log=Lagging(scene.ports.log))
        covers = CoverWatcher(ports, scene.clock, scene.freed)
        await covers.read(Stream.JOURNAL, 0, first=1, up_to=1)
        await covers.look()
        assert await scene.called() == ["e1"]

    play(story)


def test_what_an_episode_leaves_for_later_is_not_kept_in_mind():
    """Before such a commit it has a claim of its own."""
    covered = CoveredEpisodes()
    subject = given.STACK.episode("e1")
    started = replace(given.STARTED, claim_revision=0, node_lease_since=SINCE)
    covered.note(given.recorded(subject, 5, given.OPENED, started), at_s=0.0)
    assert covered.first_seq == 5
    covered.note(given.recorded(subject, 6, given.BLOCKED), at_s=0.0)
    assert covered.first_seq == 0


def test_a_position_is_read_as_it_was_written():
    for each in (Followed(), Followed(7), Followed(7, 3)):
        assert decode_followed(encode_followed(each)) == each
    assert decode_followed(None) == Followed()

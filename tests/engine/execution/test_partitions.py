"""The engine on a journal and a work queue of several partitions.

It knows of them only that sequences of two partitions cannot be compared.
"""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from engine.app.actions import observe
from engine.app.findings import clear_finding, raise_finding
from engine.dead_letters.write import DeadLetterWriter
from engine.episodes.recovery import SweepVerdict
from engine.findings.apply import FindingApplier
from engine.operations.dead_letters import DeadLetterRequests
from engine.operations.sweep import Candidate, EpisodeSweeper
from engine.runtime.store import Turns
from streams.clock import SystemClock
from streams.errors import VersionConflict
from streams.jetstream import LinkSettings, connect
from streams.layout import Kind, Stream
from streams.memory import memory_ports
from streams.model.commands import Recover, Start
from streams.model.events import (
    DeadLettered,
    EndStatus,
    EpisodeConverged,
    FindingCleared,
    FindingRaised,
)
from streams.repartition.repartition import repartition
from streams.subjects import Stack
from tests.engine.stage import (
    HAPPENED,
    LEASE_TTL_S,
    STARTED,
    Scripted,
    app_of,
    life,
    lived,
    opening,
    running,
    write,
)
from tests.streams.repartition.moves import note_followed

CLOCK = SystemClock()
PARTITIONS = 4
ACTORS = app_of(Scripted()).actors
NAMES = [f"x{n}" for n in range(24)]


@pytest.fixture
def ports():
    stack = Stack(partitions=PARTITIONS)
    return memory_ports(stack=stack, clock=CLOCK, lease_ttl_s=LEASE_TTL_S)


@pytest.fixture
def app():
    return app_of(Scripted(observe("seen")))


def partitions_of(ports, episode_ids):
    return {ports.stack.partition_of(Kind.EPISODE, each) for each in episode_ids}


async def test_every_event_becomes_an_episode_in_whichever_partition(ports, app):
    """I1, I4."""
    episode_ids = [opening(app, id_=name).episode_id for name in NAMES]
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await (await ports.domain_events.open("worker", [HAPPENED])).close()
        for name in NAMES * 2:
            await ports.domain_events.publish(HAPPENED, {}, id=name)
        lives = [await lived(ports, each) for each in episode_ids]
    assert [life.end.status for life in lives] == [EndStatus.DONE] * len(NAMES)
    assert partitions_of(ports, episode_ids) == set(range(PARTITIONS))


async def test_commands_with_one_sequence_in_several_queues_are_several_dead_letters(ports, app):
    """I5."""
    dead_letters = DeadLetterWriter(ports, CLOCK)
    # Nobody but whoever requeues them is to call a node to them.
    opened = [msgspec.structs.replace(opening(app, id_=name), in_lane=True) for name in NAMES]
    homes = {ports.stack.partition_of(Kind.EPISODE, each.episode_id): each for each in opened}
    for each in homes.values():
        await write(ports, each.episode_id, each)
        command = Start(actor_id="worker", episode_id=each.episode_id)
        await dead_letters.write_command(command, seq=1, reason="no_such_expectation", detail="")
    letters = await everything(ports)
    assert len(letters) == len(homes) == PARTITIONS
    async with running(app, ports):
        for letter in letters:
            (lettered,) = letter.commit.events
            assert isinstance(lettered, DeadLettered)
            _, key = ports.stack.aggregate_of(letter.subject)
            requeued = await DeadLetterRequests(ports, CLOCK).requeue(key, by="ann")
            assert requeued.episode_id == lettered.episode_id
            assert (await lived(ports, requeued.episode_id)).end.status is EndStatus.DONE


async def test_a_letter_of_another_layout_can_be_requeued(ports, app):
    opened = opening(app)
    before = Stack(ports.stack.name, partitions=2)
    await write(ports, opened.episode_id, opened)
    old = memory_ports(stack=before, clock=CLOCK)
    command = Start(actor_id="worker", episode_id=opened.episode_id)
    await DeadLetterWriter(old, CLOCK).write_command(
        command, seq=1, reason="newer_state", detail=""
    )
    (letter,) = await everything(old)
    await ports.log.append(letter.subject, letter.commit, after=0)
    _, key = ports.stack.aggregate_of(letter.subject)
    requeued = await DeadLetterRequests(ports, CLOCK).requeue(key, by="ann")
    assert requeued.episode_id == opened.episode_id
    assert await ports.commands.is_waiting("worker", opened.episode_id)


async def everything(ports):
    async with ports.log.follow(Stream.DEAD) as follower:
        return await follower.receive(most=100, wait_s=0.0)


async def test_a_sweep_finds_what_was_forgotten_in_any_partition(ports, app):
    opened = [opening(app, id_=name) for name in NAMES]
    for each in opened:
        await write(ports, each.episode_id, each)
    sweeper = EpisodeSweeper(ports, CLOCK, "sweep", stale_after_s=0.0)
    candidates = [Candidate(actor_id="worker", episode_id=each.episode_id) for each in opened]
    assert await sweeper.sweep(candidates) == [SweepVerdict.RECOVERED] * len(NAMES)
    assert await sweeper.sweep(candidates) == [SweepVerdict.CALLED] * len(NAMES)


def disk_in(ports, partition):
    """Return the key of a finding that lives in `partition`."""
    keys = (f"disk{n}" for n in range(100))
    return next(key for key in keys if ports.stack.partition_of(Kind.FINDING, key) == partition)


async def kinds_of(ports, key):
    records = await ports.log.read(ports.stack.finding(key))
    return [type(event) for record in records for event in record.commit.events]


async def left_late(ports, app):
    """Leave a started episode behind others, in a partition that nothing else is in."""
    opened = [opening(app, id_=name) for name in NAMES]
    home = home_of(ports, opened[-1])
    for each in opened:
        if home_of(ports, each) == home:
            await write(ports, each.episode_id, each)
    await write(ports, opened[-1].episode_id, STARTED)
    return opened[-1]


def home_of(ports, opened):
    return ports.stack.partition_of(Kind.EPISODE, opened.episode_id)


async def test_what_was_carried_out_in_another_partition_is_not_carried_out_again(ports, app):
    mine, other = await left_late(ports, app), opening(app, id_="other")
    key = disk_in(ports, (home_of(ports, mine) + 1) % PARTITIONS)
    applier = FindingApplier(ports, ACTORS, CLOCK, Turns())
    disk = raise_finding(key, class_="full")

    once = await applier.apply([disk], opened=mine, attempt=1)
    await applier.apply([clear_finding(key)], opened=other, attempt=1)
    again = await applier.apply([disk], opened=mine, attempt=2)

    assert once == again
    assert await kinds_of(ports, key) == [FindingRaised, FindingCleared]


async def test_a_former_owner_carries_out_nothing_in_any_partition(ports, app):
    """I2."""
    mine, other = await left_late(ports, app), opening(app, id_="other")
    version = (await life(ports, mine.episode_id)).records[-1].seq
    applier = FindingApplier(ports, ACTORS, CLOCK, Turns())
    await write(ports, mine.episode_id, STARTED)

    def check_newest(newest):
        if newest.seq != version:
            raise VersionConflict(newest.subject, expected=version)

    journal = SimpleNamespace(check_newest=check_newest)
    for partition in range(PARTITIONS):
        key = disk_in(ports, partition)
        disk = raise_finding(key, class_="full")
        await applier.apply([disk], opened=mine, attempt=2)
        await applier.apply([clear_finding(key)], opened=other, attempt=1)
        with pytest.raises(VersionConflict):
            await applier.apply([disk], opened=mine, attempt=1, journal=journal)
        assert await kinds_of(ports, key) == [FindingRaised, FindingCleared]


async def test_what_was_carried_out_before_a_move_to_one_partition_is_not_carried_out_again(
    nats, stack
):
    """The finding's partition is the first to be copied, and what is left of it comes last."""
    settings = LinkSettings(partitions=PARTITIONS, lease_ttl_s=LEASE_TTL_S)
    app = app_of(Scripted())
    async with connect(nats.url, stack=stack, settings=settings) as before:
        mine, other = episode_behind(before, app), opening(app, id_="other")
        key = disk_in(before, 0)
        disk = raise_finding(key, class_="full")
        await write(before, mine.episode_id, mine)
        await write(before, mine.episode_id, STARTED, EpisodeConverged(findings=(disk,)))
        recover = Recover(actor_id="worker", episode_id=mine.episode_id, reason="lapsed")
        await before.commands.send(recover, id="lapse.1")
        applier = FindingApplier(before, ACTORS, CLOCK, Turns())
        await applier.apply([disk], opened=mine, attempt=1)
        await applier.apply([clear_finding(key)], opened=other, attempt=1)
        await note_followed(before)

    await repartition(nats.url, stack=stack, to=1, tell=lambda *_: None)
    async with (
        connect(nats.url, stack=stack, settings=LinkSettings(lease_ttl_s=LEASE_TTL_S)) as after,
        running(app, after),
    ):
        (outcome,) = (await lived(after, mine.episode_id)).end.findings
        assert outcome.outcome == "raised"
        assert await kinds_of(after, key) == [FindingRaised, FindingCleared]


def episode_behind(ports, app):
    """Return the opening of an episode that does not live in the first partition."""
    made = (opening(app, id_=name) for name in NAMES)
    return next(each for each in made if home_of(ports, each) != 0)

"""The engine on a journal and a work queue of several partitions: it knows nothing of them."""

from __future__ import annotations

import pytest

from engine.actions import observe
from engine.runtime.sweeper import Candidate, Sweeper
from engine.runtime.undertaker import Undertaker
from engine.sweep import Verdict
from streams.clock import SystemClock
from streams.commands import Start
from streams.events import DeadLettered, EndStatus
from streams.memory import memory_ports
from streams.subjects import Kind, Stack, Stream
from tests.engine.runtime.stage import (
    HAPPENED,
    LEASE_TTL_S,
    Scripted,
    app_of,
    lived,
    opening,
    running,
    write,
)

CLOCK = SystemClock()
PARTITIONS = 4
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
        await (await ports.world.open("worker", [HAPPENED])).close()
        for name in NAMES * 2:
            await ports.world.publish(HAPPENED, {}, id=name)
        lives = [await lived(ports, each) for each in episode_ids]
    assert [life.end.status for life in lives] == [EndStatus.DONE] * len(NAMES)
    assert partitions_of(ports, episode_ids) == set(range(PARTITIONS))


async def test_commands_with_one_sequence_in_several_queues_are_several_dead_letters(ports, app):
    """I5."""
    undertaker = Undertaker(ports, CLOCK)
    opened = [opening(app, id_=name) for name in NAMES]
    homes = {ports.stack.partition_of(Kind.EPISODE, each.episode_id): each for each in opened}
    for each in homes.values():
        await write(ports, each.episode_id, each)
        command = Start(actor_id="worker", episode_id=each.episode_id)
        await undertaker.bury_command(command, seq=1, reason="no_such_expectation", detail="")
    letters = await everything(ports)
    assert len(letters) == len(homes) == PARTITIONS
    async with running(app, ports):
        for letter in letters:
            (lettered,) = letter.commit.events
            assert isinstance(lettered, DeadLettered)
            _, key = ports.stack.aggregate_of(letter.subject)
            requeued = await undertaker.requeue(key, by="ann")
            assert requeued.episode_id == lettered.episode_id
            assert (await lived(ports, requeued.episode_id)).end.status is EndStatus.DONE


async def test_a_letter_of_another_layout_can_be_requeued(ports, app):
    opened = opening(app)
    before = Stack(ports.stack.name, partitions=2)
    await write(ports, opened.episode_id, opened)
    old = memory_ports(stack=before, clock=CLOCK)
    command = Start(actor_id="worker", episode_id=opened.episode_id)
    await Undertaker(old, CLOCK).bury_command(command, seq=1, reason="newer_state", detail="")
    (letter,) = await everything(old)
    await ports.log.append(letter.subject, letter.commit, after=0)
    _, key = ports.stack.aggregate_of(letter.subject)
    requeued = await Undertaker(ports, CLOCK).requeue(key, by="ann")
    assert requeued.episode_id == opened.episode_id
    assert await ports.inbox.is_waiting("worker", opened.episode_id)


async def everything(ports):
    async with ports.log.follow(Stream.DEAD) as follower:
        return await follower.receive(most=100, wait_s=0.0)


async def test_a_sweep_finds_what_was_forgotten_in_any_partition(ports, app):
    opened = [opening(app, id_=name) for name in NAMES]
    for each in opened:
        await write(ports, each.episode_id, each)
    sweeper = Sweeper(ports, CLOCK, "sweep", stale_after_s=0.0)
    candidates = [Candidate(actor_id="worker", episode_id=each.episode_id) for each in opened]
    assert await sweeper.sweep(candidates) == [Verdict.RECOVERED] * len(NAMES)
    assert await sweeper.sweep(candidates) == [Verdict.CALLED] * len(NAMES)

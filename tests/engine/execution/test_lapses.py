"""How the work of a node that is gone is called for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine.execution import takeover
from engine.execution.takeover import LapseWatcher
from engine.runtime import watch
from engine.runtime.leases import LeaseEvents
from engine.runtime.overdue import Overdue
from streams.errors import Unavailable
from streams.memory import memory_ports
from streams.model.commands import Recover
from streams.model.events import EndStatus, EpisodeFinished, EpisodeLeft
from streams.ports.log import START, Commit
from tests.engine.stage import CLOCK, LEASE_TTL_S, WAIT_S, eventually

EPISODE = "episode.worker.e1"


class Rescuers:
    """Any number of rescuers, as on as many nodes."""

    def __init__(self, ports):
        self.ports, self.stopping = ports, asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, *, ports=None, actors=("worker",)) -> LeaseEvents:
        ports, lease_events = ports or self.ports, LeaseEvents()
        overdue = Overdue(CLOCK, "n1", ports.leases.mark_lapsed)
        rescuer = LapseWatcher(ports, actors, CLOCK, self.stopping, overdue, lease_events)
        self.tasks += map(asyncio.create_task, (rescuer.follow(), overdue.run()))
        return lease_events

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def rescuers(ports):
    rescuers = Rescuers(ports)
    yield rescuers
    await rescuers.end()


def lapsed(ports):
    """Return whether every lease has lapsed, by now."""
    ports.leases._settle()
    return all(stored.change.state == "expired" for stored in ports.leases._bucket.values())


async def next_command(source):
    (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
    await delivery.ack()
    return delivery.content


async def no_more(source):
    return list(await source.receive(room=1, wait_s=0)) == []


async def test_a_lapse_calls_for_one_recovery_however_many_nodes_watch(ports, rescuers):
    source = await ports.commands.open("worker")
    for _ in range(3):
        rescuers.start()
    await ports.leases.acquire(EPISODE, holder="dead")

    recover = await next_command(source)
    assert recover == Recover(
        actor_id="worker",
        episode_id="e1",
        reason="lapsed",
        lapse_revision=recover.lapse_revision,
        holder="dead",
    )
    assert recover.lapse_revision > 0
    for _ in range(10):
        await asyncio.sleep(0)
    assert await no_more(source)


async def test_whose_a_claim_was_is_not_known_of_too_many(ports, rescuers, monkeypatch):
    monkeypatch.setattr(takeover, "HOLDERS_MAX", 1)
    source = await ports.commands.open("worker")
    rescuers.start()
    await ports.leases.acquire(EPISODE, holder="dead")
    await ports.leases.acquire("lane.worker", holder="n9")

    assert (await next_command(source)).holder == ""


async def test_a_lapse_calls_before_the_server_has_looked_for_what_is_over():
    """It is sure that nobody renewed it: the revision that a node heard of stands."""
    late_s = 3_600.0
    ports = memory_ports(clock=CLOCK, lease_ttl_s=LEASE_TTL_S, lapse_late_s=late_s)
    rescuers = Rescuers(ports)
    source = await ports.commands.open("worker")
    for _ in range(3):
        rescuers.start()
    lease = await ports.leases.acquire(EPISODE, holder="dead")
    renewed = await ports.leases.renew(lease)

    recover = await next_command(source)
    assert (recover.episode_id, recover.lapse_revision) == ("e1", renewed.revision + 1)
    assert CLOCK.monotonic_s() >= renewed.trusted_until_s
    await rescuers.end()


async def test_whoever_waits_for_a_key_hears_at_once_that_it_is_free(ports, rescuers):
    lease = await ports.leases.acquire("lane.worker", holder="n1")
    heard = rescuers.start()
    freed = heard.of("lane.worker")
    await eventually(lambda: heard.revision == lease.revision)
    assert not freed.is_set()
    await ports.leases.complete(lease)
    await asyncio.wait_for(freed.wait(), LEASE_TTL_S / 2)


async def test_a_lapse_that_nobody_watched_is_seen_by_the_next_node(ports, rescuers):
    """I4."""
    await ports.leases.acquire(EPISODE, holder="dead")
    await eventually(lambda: lapsed(ports))
    rescuers.start()
    source = await ports.commands.open("worker")
    assert (await next_command(source)).episode_id == "e1"


async def test_only_a_lapse_since_the_node_began_is_warned_of(ports, rescuers):
    with capture_logs() as lines:
        source = await ports.commands.open("worker")
        await ports.leases.acquire(EPISODE, holder="dead")
        await eventually(lambda: lapsed(ports))
        rescuers.start()
        assert (await next_command(source)).episode_id == "e1"
        await ports.leases.acquire("episode.worker.e2", holder="dead")
        assert (await next_command(source)).episode_id == "e2"

    said = [line for line in lines if line["event"].startswith("lease lapsed")]
    assert [(line["episode_id"], line["log_level"]) for line in said] == [
        ("e1", "debug"), ("e2", "warning"),
    ]  # fmt: skip


async def test_the_lapse_of_an_episode_that_has_ended_is_no_news(ports, rescuers):
    """A server that starts writes its markers anew, as if they were of this moment."""
    await append(ports, "e1", EpisodeFinished(status=EndStatus.DONE))
    await append(ports, "e2", EpisodeLeft(node="n1"))
    with capture_logs() as lines:
        source = await ports.commands.open("worker")
        rescuers.start()
        for episode in ("e1", "e2"):
            await ports.leases.acquire(f"episode.worker.{episode}", holder="dead")
            assert (await next_command(source)).episode_id == episode

    said = [line for line in lines if line["event"].startswith("lease lapsed")]
    assert [line["log_level"] for line in said] == ["debug", "warning"]


async def append(ports, episode_id, event):
    commit = Commit(id=f"c.{episode_id}", at=CLOCK.now(), events=(event,))
    await ports.log.append(ports.stack.episode(episode_id), commit, after=START)


async def test_each_lapse_of_one_episode_calls_anew(ports, rescuers):
    source = await ports.commands.open("worker")
    rescuers.start()
    for _ in range(2):
        await ports.leases.acquire(EPISODE, holder="dead")
        assert (await next_command(source)).episode_id == "e1"


@pytest.mark.parametrize("key", ["episode.stranger.e1", "projector.main"])
async def test_what_is_not_this_nodes_work_is_left_alone(ports, rescuers, key):
    mine, strange = [await ports.commands.open(actor) for actor in ("worker", "stranger")]
    rescuers.start()
    await ports.leases.acquire(key, holder="dead")
    await ports.leases.acquire(EPISODE, holder="dead")
    assert (await next_command(mine)).episode_id == "e1"
    assert await no_more(strange)


async def test_a_release_calls_for_nothing(ports, rescuers):
    source = await ports.commands.open("worker")
    rescuers.start()
    lease = await ports.leases.acquire("episode.worker.done", holder="n1")
    await ports.leases.complete(lease)
    await ports.leases.acquire(EPISODE, holder="dead")
    assert (await next_command(source)).episode_id == "e1"


async def test_a_call_that_found_the_log_away_is_made_again(ports, rescuers, monkeypatch):
    monkeypatch.setattr(takeover, "RETRY_S", 0.01)

    class AwayAtFirst:
        times = 3

        async def send(self, command, *, id, trace=""):
            if self.times:
                self.times -= 1
                raise Unavailable("send", detail="away")
            await ports.commands.send(command, id=id, trace=trace)

    rescuers.start(ports=replace(ports, commands=AwayAtFirst()))
    await ports.leases.acquire(EPISODE, holder="dead")
    assert (await next_command(await ports.commands.open("worker"))).episode_id == "e1"


async def test_what_lapsed_before_its_actor_came_is_called_for_when_it_comes(
    ports, rescuers, monkeypatch
):
    """I4."""
    monkeypatch.setattr(watch, "WAIT_S", 0.01)
    actors = {"worker"}
    rescuers.start(actors=actors)
    own, late = [await ports.commands.open(actor) for actor in ("worker", "late")]
    await ports.leases.acquire("episode.late.e2", holder="dead")
    await ports.leases.acquire(EPISODE, holder="dead")
    assert (await next_command(own)).episode_id == "e1"
    assert await no_more(late)
    actors.add("late")
    assert (await next_command(late)).episode_id == "e2"

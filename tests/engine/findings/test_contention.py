"""Many episodes, one finding."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine.app.findings import raise_finding
from engine.findings.apply import FindingApplier
from engine.runtime import store
from engine.runtime.store import Turns
from streams.errors import VersionConflict
from streams.jetstream import connect
from streams.layout import Stream
from streams.memory.log import MemoryLog
from streams.model.commands import Recover
from streams.model.events import EpisodeStarted
from streams.wire import codec
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    Scripted,
    app_of,
    lived,
    open_episode,
    opening,
    running,
)

EPISODES = 64
EVENTS = 300
PROMPT_S = 30.0
"""Far less than lost races and lapsed leases took, on a busy machine, in seconds."""

ACTORS = app_of(Scripted()).actors

disk = raise_finding("disk", class_="full")


class FarLog(MemoryLog):
    """Takes its time to answer, as a server does, and counts who came too late."""

    lost = 0

    async def last(self, subject):
        found = await super().last(subject)
        await asyncio.sleep(0)
        return found

    async def append(self, subject, commit, *, after):
        await asyncio.sleep(0)
        try:
            return await super().append(subject, commit, after=after)
        except VersionConflict:
            self.lost += 1
            raise


def far(ports):
    return FarLog(ports.log._streams, stack=ports.stack)


async def causes_of(ports):
    records = await ports.log.read(ports.stack.finding("disk"))
    return [event.cause.episode_id for record in records for event in record.commit.events]


async def raise_all(appliers):
    app = app_of(Scripted())
    opened = [opening(app, id_=f"x{number}") for number in range(EPISODES)]
    raising = [
        appliers[number % len(appliers)].apply([disk], opened=one, attempt=1)
        for number, one in enumerate(opened)
    ]
    await asyncio.gather(*raising)
    return sorted(one.episode_id for one in opened)


async def test_the_writers_of_one_node_take_turns_and_lose_no_race(ports):
    log = far(ports)
    ids = await raise_all([FindingApplier(replace(ports, log=log), ACTORS, CLOCK, Turns())])

    assert sorted(await causes_of(ports)) == ids
    assert log.lost == 0


async def test_the_writers_of_several_nodes_all_come_through_and_once(ports):
    log = far(ports)
    ids = await raise_all(
        [FindingApplier(replace(ports, log=log), ACTORS, CLOCK, Turns()) for _ in range(3)]
    )

    assert sorted(await causes_of(ports)) == ids


async def test_a_turn_is_forgotten_once_nobody_waits_for_it(ports):
    turns = Turns()
    await raise_all([FindingApplier(replace(ports, log=far(ports)), ACTORS, CLOCK, turns)])
    gc.collect()
    assert len(turns._locks) == 0


class Unfair:
    """A log on which somebody else is always faster with a finding, a number of times."""

    def __init__(self, ports, *, times):
        self._log, self._findings, self._times = ports.log, ports.stack.finding("disk"), times

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        if subject == self._findings and self._times:
            self._times -= 1
            raise VersionConflict(subject, expected=after)
        return await self._log.append(subject, commit, after=after)


async def test_an_episode_that_lost_every_race_is_handed_over_and_nobody_says_the_log_is_away(
    ports, monkeypatch
):
    monkeypatch.setattr(store, "CONFLICTS_MAX", 3)
    app = app_of(Scripted(findings=[disk]))
    with capture_logs() as logs:
        async with running(app, replace(ports, log=Unfair(ports, times=3))):
            life_ = await lived(ports, await open_episode(ports, app))

    said = [line["event"] for line in logs]
    assert "others change a finding again and again; handing the episode over" in said
    assert not [line for line in said if "away" in line or "lapse" in line]
    assert len(life_.of(EpisodeStarted)) == 2
    assert recoveries(ports) == ["handover"]
    assert len(await causes_of(ports)) == 1


def recoveries(ports):
    messages = ports.commands._streams[ports.stack.stream(Stream.WORK)].past(0)
    inbox = [message for message in messages if ".inbox." in message.subject]
    commands = [codec.decode_command(message.data) for message in inbox]
    return [command.reason for command in commands if isinstance(command, Recover)]


@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_storm_of_events_about_one_thing_ends_quickly(nats, stack, nodes):
    app = app_of(Scripted(findings=[disk]), most=64)
    actor = app.actors["worker"]
    async with connect(nats.url, stack=stack) as ports, asyncio.timeout(PROMPT_S):
        await (await ports.domain_events.open(actor.id, actor.event_names())).close()
        await asyncio.gather(
            *(
                ports.domain_events.publish(HAPPENED, {}, id=f"x{number}")
                for number in range(EVENTS)
            )
        )
        names = [f"n{number}" for number in range(nodes)]
        async with asyncio.TaskGroup() as group, ports.log.follow() as follower:
            over = asyncio.Event()
            for name in names:
                group.create_task(run_until(over, app, ports, name))
            ended, attempts = 0, 0
            while ended < EVENTS:
                for record in await follower.receive(most=1_000, wait_s=1.0):
                    kinds = [type(event).__name__ for event in record.commit.events]
                    ended += kinds.count("EpisodeFinished")
                    attempts += kinds.count("EpisodeStarted")
            over.set()
        causes = await causes_of(ports)
    assert (len(causes), len(set(causes)), attempts) == (EVENTS, EVENTS, EVENTS)


async def run_until(over, app, ports, name):
    async with running(app, ports, name):
        await over.wait()

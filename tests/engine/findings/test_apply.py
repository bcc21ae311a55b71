"""How an episode's findings are carried out."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from engine.app.findings import clear_finding, raise_finding, update_finding
from engine.findings.apply import FindingApplier
from engine.runtime.store import CONFLICTS_MAX, Contended, Turns
from streams.errors import VersionConflict
from streams.memory import memory_ports
from streams.memory.log import MemoryLog
from streams.model.events import EpisodeStarted, FindingRaised, FindingUpdated
from streams.model.triggers import Mode
from tests.engine.stage import (
    CLOCK,
    Scripted,
    app_of,
    leave,
    lived,
    opening,
    play,
    react,
    running,
    told,
    write,
)
from tests.simulation.time import SimClock, simulate

APP = app_of(Scripted())
ACTORS = APP.actors
OPENED = opening(APP)
OTHER = opening(APP, id_="x2")

disk = raise_finding("disk", class_="full", summary="one")


@pytest.fixture
def applier(ports):
    return FindingApplier(ports, ACTORS, CLOCK, Turns())


async def events_of(ports, key="disk"):
    records = await ports.log.read(ports.stack.finding(key))
    return [event for record in records for event in record.commit.events]


class Contested:
    """A log on which a rival raises the finding just before each of the next appends."""

    def __init__(self, ports, *, times):
        self._ports, self._log, self._times = ports, ports.log, times
        self.read, self.last = ports.log.read, ports.log.last

    async def append(self, subject, commit, *, after):
        if self._times:
            self._times -= 1
            rival = FindingApplier(self._ports, ACTORS, CLOCK, Turns())
            opened = opening(APP, id_=f"rival{self._times}")
            await rival.apply([disk], opened=opened, attempt=1)
        return await self._log.append(subject, commit, after=after)


async def test_each_intent_is_carried_out_and_its_outcome_told_in_order(ports, applier):
    intents = [disk, clear_finding("absent"), raise_finding("other", class_="c")]
    applied = await applier.apply(intents, opened=OPENED, attempt=1)

    assert [one.index for one in applied] == [0, 1, 2]
    assert [one.outcome.outcome for one in applied] == ["raised", "unchanged", "raised"]
    assert await events_of(ports, "absent") == []


async def test_intents_on_one_key_are_carried_out_in_order(ports, applier):
    intents = [disk, update_finding("disk", summary="two"), clear_finding("disk"), disk]
    applied = await applier.apply(intents, opened=OPENED, attempt=1)

    assert [one.outcome.outcome for one in applied] == ["raised", "updated", "cleared", "raised"]
    assert [event.finding.raise_no for event in await events_of(ports)] == [1, 1, 1, 2]
    assert [event.cause.index for event in await events_of(ports)] == [0, 1, 2, 3]


@pytest.mark.parametrize("times", [1, 7])
async def test_a_rival_that_is_first_is_decided_upon_again(ports, times):
    applier = FindingApplier(
        dataclasses.replace(ports, log=Contested(ports, times=times)), ACTORS, CLOCK, Turns()
    )
    (applied,) = await applier.apply([disk], opened=OPENED, attempt=1)

    assert applied.outcome.outcome == "updated"
    kinds = [type(event) for event in await events_of(ports)]
    assert kinds == [FindingRaised, *[FindingUpdated] * times]


def test_a_finding_that_is_fought_over_without_end_is_left_for_later():
    async def fight():
        clock = SimClock()
        ports = memory_ports(clock=clock)
        applier = FindingApplier(
            dataclasses.replace(ports, log=Contested(ports, times=CONFLICTS_MAX)),
            ACTORS,
            clock,
            Turns(),
        )
        with pytest.raises(Contended, match="lost 100 races"):
            await applier.apply([disk], opened=OPENED, attempt=1)
        return clock.monotonic_s()

    assert 20 < simulate(fight()) < 50


async def test_carrying_out_twice_changes_nothing(ports, applier):
    intents = [disk, update_finding("disk", summary="two"), raise_finding("other", class_="c")]
    once = await applier.apply(intents, opened=OPENED, attempt=1)
    before = await events_of(ports)
    twice = await applier.apply(intents, opened=OPENED, attempt=2)

    assert twice == once
    assert await events_of(ports) == before


async def test_a_later_attempt_looks_at_the_whole_history(ports, applier):
    await applier.apply([disk], opened=OPENED, attempt=1)
    await applier.apply([clear_finding("disk")], opened=OTHER, attempt=1)
    (applied,) = await applier.apply([disk], opened=OPENED, attempt=2)

    assert applied.outcome.outcome == "raised"
    assert len(await events_of(ports)) == 2


class Remembered:
    """A log that remembers what was read of it, and may be a replica that lags behind."""

    def __init__(self, ports, *, lags=0):
        self._log, self._lags, self.read_after = ports.log, lags, []
        self.append, self.last = ports.log.append, ports.log.last

    async def read(self, subject, *, after=0):
        records = await self._log.read(subject, after=after)
        self.read_after.append(after)
        self._lags -= 1
        return records if self._lags < 0 else []


async def test_only_a_repeated_attempt_reads_more_of_a_finding_than_its_newest_commit(
    ports, applier
):
    for intent in (disk, clear_finding("disk"), disk):
        await applier.apply([intent], opened=OTHER, attempt=1)
    log = Remembered(ports)
    later = FindingApplier(dataclasses.replace(ports, log=log), ACTORS, CLOCK, Turns())

    (once,) = await later.apply([disk], opened=OPENED, attempt=1)
    assert log.read_after == []
    (twice,) = await later.apply([disk], opened=OPENED, attempt=2)
    assert log.read_after == [0]
    assert once == twice
    assert once.outcome.outcome == "updated"


async def test_a_replica_that_lags_does_not_hide_what_was_carried_out(ports, applier):
    await applier.apply([disk], opened=OTHER, attempt=1)
    (once,) = await applier.apply([clear_finding("disk")], opened=OPENED, attempt=1)
    later = FindingApplier(
        dataclasses.replace(ports, log=Remembered(ports, lags=2)), ACTORS, CLOCK, Turns()
    )

    assert await later.apply([clear_finding("disk")], opened=OPENED, attempt=2) == [once]
    assert once.outcome.outcome == "cleared"
    assert len(await events_of(ports)) == 2


class ReadTogether(MemoryLog):
    """A log that counts its reads; the newest of many aggregates are those of `before`."""

    def __init__(self, ports, *, before=None):
        super().__init__(ports.log._streams, stack=ports.stack)
        self._before = before
        self.reads = []

    async def last(self, subject):
        self.reads.append("last")
        return await super().last(subject)

    async def newest(self, subjects):
        self.reads.append("newest")
        return await super().newest(subjects) if self._before is None else self._before


async def test_the_findings_of_an_episode_are_read_together(ports, applier):
    await applier.apply([disk], opened=OTHER, attempt=1)
    log = ReadTogether(ports)
    later = FindingApplier(dataclasses.replace(ports, log=log), ACTORS, CLOCK, Turns())
    intents = [disk, *(raise_finding(f"disk{number}", class_="c") for number in range(9))]

    applied = await later.apply(intents, opened=OPENED, attempt=1)

    assert [one.outcome.outcome for one in applied] == ["updated", *["raised"] * 9]
    assert log.reads == ["newest"]


async def test_that_nothing_changes_is_not_decided_on_a_replica_that_lags(ports, applier):
    await applier.apply([disk], opened=OTHER, attempt=1)
    log = ReadTogether(ports, before={})
    later = FindingApplier(dataclasses.replace(ports, log=log), ACTORS, CLOCK, Turns())

    cleared, raised = await later.apply(
        [clear_finding("disk"), raise_finding("other", class_="c")], opened=OPENED, attempt=1
    )

    assert (cleared.outcome.outcome, raised.outcome.outcome) == ("cleared", "raised")


async def test_what_a_replica_lacks_is_decided_upon_when_the_append_is_refused(ports, applier):
    await applier.apply([disk], opened=OTHER, attempt=1)
    log = ReadTogether(ports, before={})
    later = FindingApplier(dataclasses.replace(ports, log=log), ACTORS, CLOCK, Turns())

    again, other = await later.apply(
        [disk, raise_finding("other", class_="c")], opened=OPENED, attempt=1
    )

    assert (again.outcome.outcome, other.outcome.outcome) == ("updated", "raised")
    assert [event.finding.raise_no for event in await events_of(ports)] == [1, 1]


async def test_a_former_owner_changes_none_of_its_findings(ports, applier):
    both = [disk, raise_finding("other", class_="c")]
    await applier.apply(both, opened=OTHER, attempt=1)
    await write(ports, OPENED.episode_id, OPENED)
    ours = await ports.log.last(ports.stack.episode(OPENED.episode_id))
    await write(ports, OPENED.episode_id, EpisodeStarted(node="n2", attempt=1, claim_revision=1))
    before = await events_of(ports)

    def check_newest(newest):
        if newest.seq != ours.seq:
            raise VersionConflict(newest.subject, expected=ours.seq)

    journal = SimpleNamespace(check_newest=check_newest)
    with pytest.raises(VersionConflict):
        await applier.apply(both, opened=OPENED, attempt=1, journal=journal)
    assert await events_of(ports) == before


async def test_a_dry_run_leaves_all_out(applier):
    dry = replace(OPENED, mode=Mode.DRY_RUN)
    applied = await applier.apply([disk], opened=dry, attempt=1)
    assert [one.outcome.outcome for one in applied] == ["dry_run"]


async def test_an_episode_records_what_became_of_its_findings_and_tells_the_world(ports):
    life_ = await play(Scripted(findings=[disk, clear_finding("absent")]), ports=ports)

    outcomes = [(one.finding_key, one.outcome) for one in life_.end.findings]
    assert outcomes == [("disk", "raised"), ("absent", "unchanged")]
    await react(ports)
    names = [name for name, _ in told(ports)]
    assert sorted(names) == ["episode.completed", "episode.started", "finding.raised"]


async def test_findings_that_a_dead_node_had_half_carried_out_are_carried_out_once(ports, applier):
    intents = [disk, raise_finding("other", class_="c")]
    app = app_of(Scripted(findings=intents))
    await applier.apply(intents[:1], opened=OPENED, attempt=1)
    async with running(app, ports):
        converged = (await play(Scripted(findings=intents))).episode.converged
        life_ = await lived(ports, await leave(ports, app, converged))

    assert [one.outcome for one in life_.end.findings] == ["raised", "raised"]
    assert len(await events_of(ports)) == 1
    assert len(await events_of(ports, "other")) == 1

"""What people do to findings, on the log."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from engine.app.findings import clear_finding, raise_finding
from engine.errors import BadRequest, NoFinding
from engine.findings.apply import FindingApplier
from engine.findings.requests import FindingRequests
from engine.runtime.store import Turns
from streams.errors import BadName, VersionConflict
from streams.model.events import (
    FindingAcknowledged,
    FindingClearedByHand,
    FindingNoted,
    FindingRaised,
)
from streams.model.findings import FindingStatus
from streams.model.triggers import Mode, Overrides
from tests.engine.stage import CLOCK, Scripted, app_of, opening, react, told, write

APP = app_of(Scripted())

disk = raise_finding("disk", class_="full")


@pytest.fixture
def steward(ports):
    return FindingRequests(ports, CLOCK)


async def raised(ports, *intents, opened=None):
    opened = opened or opening(APP)
    await write(ports, opened.episode_id, opened)
    applier = FindingApplier(ports, APP.actors, CLOCK, Turns())
    await applier.apply(intents or [disk], opened=opened, attempt=1)


async def told_since(ports):
    """Return what the world was told since the finding was raised."""
    await react(ports)
    names = [name for name, _ in told(ports)]
    return told(ports)[names.index("finding.raised") + 1 :]


async def kinds(ports):
    records = await ports.log.read(ports.stack.finding("disk"))
    return [type(event) for record in records for event in record.commit.events]


async def test_a_person_clears_a_finding_and_the_world_hears_who_did(ports, steward):
    await raised(ports)
    change = await steward.clear("disk", by="ada", reason="false alarm")

    assert change.is_made
    assert change.newest.finding.status is FindingStatus.CLEARED
    ((name, payload),) = await told_since(ports)
    assert (name, payload["by"], payload["reason"]) == ("finding.cleared", "ada", "false alarm")
    assert payload["journal_seq"] == change.version


async def test_clearing_twice_changes_nothing_and_says_so(ports, steward):
    await raised(ports)
    await steward.clear("disk", by="ada")
    again = await steward.clear("disk", by="bob")

    assert not again.is_made
    assert again.before.cleared_by == "ada"
    assert await kinds(ports) == [FindingRaised, FindingClearedByHand]
    assert len(await told_since(ports)) == 1


async def test_of_what_an_episode_has_cleared_the_world_hears_no_more(ports, steward):
    await raised(ports, disk, clear_finding("disk"))
    assert not (await steward.clear("disk", by="ada")).is_made
    ((name, payload),) = await told_since(ports)
    assert (name, "by" in payload) == ("finding.cleared", False)


async def test_a_person_takes_note_once_and_says_things(ports, steward):
    await raised(ports)
    assert (await steward.acknowledge("disk", by="ada")).is_made
    assert not (await steward.acknowledge("disk", by="bob")).is_made
    noted = await steward.note("disk", by="bob", text="ordered a disk")

    assert noted.newest.cause.reason == "ordered a disk"
    assert noted.newest.finding.acknowledged_by == "ada"
    assert await kinds(ports) == [FindingRaised, FindingAcknowledged, FindingNoted]
    assert [(name, payload["by"]) for name, payload in await told_since(ports)] == [
        ("finding.acknowledged", "ada"),
        ("finding.noted", "bob"),
    ]


async def test_two_notes_are_two_events_and_an_acknowledgement_is_one(ports, steward):
    await raised(ports)
    for _ in range(2):
        await steward.acknowledge("disk", by="ada")
        await steward.note("disk", by="ada", text="ordered a disk")

    assert [name for name, _ in await told_since(ports)] == [
        "finding.acknowledged",
        "finding.noted",
        "finding.noted",
    ]


async def test_what_there_never_was_is_refused(steward):
    with pytest.raises(NoFinding, match="'disk'"):
        await steward.clear("disk", by="ada")
    with pytest.raises(BadName):
        await steward.note("", by="ada", text="x")


async def test_nobody_is_no_person(ports, steward):
    await raised(ports)
    with pytest.raises(BadRequest, match="by"):
        await steward.acknowledge("disk", by="")


async def test_of_a_dry_run_the_world_hears_nothing(ports, steward):
    kept = Overrides(persist_findings="test")
    dry = msgspec.structs.replace(opening(APP), mode=Mode.DRY_RUN, overrides=kept)
    await raised(ports, opened=dry)
    assert (await steward.clear("disk", by="ada")).is_made
    await react(ports)
    assert told(ports) == []


class Contested:
    """A log on which others are faster a number of times."""

    def __init__(self, log, *, times):
        self._log, self._times, self.last = log, times, log.last

    async def append(self, subject, commit, *, after):
        if self._times:
            self._times -= 1
            raise VersionConflict(subject, expected=after)
        return await self._log.append(subject, commit, after=after)


async def test_a_person_who_is_overtaken_decides_again(ports):
    await raised(ports)
    steward = FindingRequests(replace(ports, log=Contested(ports.log, times=3)), CLOCK)
    assert (await steward.clear("disk", by="ada")).is_made

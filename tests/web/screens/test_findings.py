"""The history of a finding: what has changed it, and how often it was seen again as it was."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from engine.people.identity import Role
from projections.records import FindingEventRow
from vigil.web.screen import PageRequest
from vigil.web.screens.findings import folded, history

NOW = datetime(2030, 1, 31, 19, tzinfo=UTC)
ASKED = PageRequest(path="/findings/k", role=Role.VIEWER, now=NOW, asked_at=NOW)
SEEN = FindingEventRow(
    journal_seq=1,
    event_no=0,
    kind="finding_updated",
    raise_no=1,
    at=NOW - timedelta(minutes=20),
    episode_id=None,
    status="active",
    severity="low",
    from_severity=None,
    confidence=1.0,
    summary="it is slow",
    evidence_refs=None,
    person=None,
    reason=None,
    expires_at=None,
)
RAISED = replace(SEEN, kind="finding_raised")


def latest_first(*changes: FindingEventRow) -> list[FindingEventRow]:
    """A change a minute, the given ones in order."""
    timed = (
        replace(each, journal_seq=number, at=SEEN.at + timedelta(minutes=number))
        for number, each in enumerate(changes, start=1)
    )
    return [*timed][::-1]


def sizes(*changes: FindingEventRow) -> list[int]:
    return [len(run) for run in folded(latest_first(*changes))][::-1]


def test_what_was_seen_again_as_it_was_is_one_entry():
    assert sizes(RAISED, *[SEEN] * 5) == [1, 5]


def test_what_changes_a_finding_stands_alone():
    worse = replace(SEEN, severity="high")

    assert sizes(RAISED, SEEN, SEEN, worse, worse, worse) == [1, 2, 1, 2]


def test_what_a_person_did_or_gave_a_reason_for_stands_alone():
    noted = replace(SEEN, kind="finding_noted", person="ann", reason="I look")

    assert sizes(RAISED, SEEN, noted, SEEN, SEEN) == [1, 1, 1, 2]


def test_another_raise_begins_anew():
    anew = replace(SEEN, raise_no=2)

    assert sizes(RAISED, SEEN, replace(RAISED, raise_no=2), anew, anew) == [1, 1, 1, 2]


def test_an_entry_of_several_says_how_many_and_from_when_to_when():
    page = str(history(latest_first(RAISED, *[SEEN] * 9), ASKED))

    (told,) = re.findall(r"<summary>(.*?)</summary>", page)
    assert "Seen again 9 times" in told
    assert re.findall(r">([^<]*ago)<", told) == ["18m ago", "10m ago"]

"""What people do to findings."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.app.findings import clear_finding, raise_finding, update_finding
from engine.errors import BadRequest
from engine.findings.finding import acknowledge, clear, note, person
from streams.model.findings import FindingStatus, Person
from tests.spec import EPOCH, given_finding

ADA = Person(by="ada", reason="false alarm")
NOW = EPOCH + timedelta(seconds=9)

raised = raise_finding("disk", class_="full", ttl_s=60)
cleared = clear_finding("disk", reason="freed")


def after(*said):
    found = given_finding(*said).finding
    assert found is not None
    return found


def test_a_person_ends_a_finding_and_says_why():
    event = clear(after(raised), cause=ADA, at=NOW)
    ended = event.finding
    assert event.cause == ADA
    assert (ended.status, ended.cleared_at, ended.updated_at) == (FindingStatus.CLEARED, NOW, NOW)
    assert (ended.cleared_by, ended.cleared_reason) == ("ada", "false alarm")
    assert ended.cleared_by_episode_id == ""


def test_clearing_what_has_ended_changes_nothing():
    assert clear(after(raised, cleared), cause=ADA, at=NOW) is None


def test_a_person_takes_note_of_a_finding_which_goes_on_as_before():
    before = after(raised)
    known = acknowledge(before, cause=ADA, at=NOW).finding
    assert (known.acknowledged_by, known.acknowledged_at) == ("ada", NOW)
    assert (known.status, known.expires_at) == (FindingStatus.ACTIVE, before.expires_at)
    assert known.updated_at == before.updated_at


def test_a_finding_is_taken_note_of_once_and_only_while_it_is_active():
    known = acknowledge(after(raised), cause=ADA, at=NOW).finding
    assert acknowledge(known, cause=Person(by="bob"), at=NOW) is None
    assert acknowledge(after(raised, cleared), cause=ADA, at=NOW) is None


def test_who_took_note_is_kept_until_the_finding_is_raised_anew():
    known = acknowledge(after(raised), cause=ADA, at=NOW).finding
    assert given_finding(update_finding("disk"), finding=known).finding.acknowledged_by == "ada"
    anew = given_finding(cleared, raised, finding=known).finding
    assert (anew.acknowledged_by, anew.acknowledged_at) == ("", None)


@pytest.mark.parametrize("past", [(raised,), (raised, cleared)], ids=["active", "cleared"])
def test_a_note_leaves_a_finding_as_it_is(past):
    finding = after(*past)
    event = note(finding, cause=ADA)
    assert (event.finding, event.cause) == (finding, ADA)


@pytest.mark.parametrize(
    ("by", "reason", "field"),
    [("", "", "by"), ("x" * 201, "", "by"), ("ada", "x" * 4_001, "reason"), (7, "", "by")],
)
def test_a_person_has_a_name_and_few_words(by, reason, field):
    with pytest.raises(BadRequest) as refused:
        person(by, reason)
    assert refused.value.field == field

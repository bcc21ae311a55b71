"""What strategies say about the world, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.app.findings import SUMMARY_CHARS_MAX, clear_finding, raise_finding, update_finding
from engine.errors import InvalidFinding
from engine.findings.finding import decide, is_of, outcome_of
from streams.json import NOTHING, raw
from streams.model.events import FindingCleared, FindingRaised, FindingUpdated
from streams.model.findings import Cause, FindingOutcome, FindingStatus, Severity
from tests.spec import EPOCH, given_finding

full = raise_finding(
    "disk",
    class_="disk_full",
    severity="high",
    confidence=0.5,
    summary="nearly full",
    subject=("host", "web-1"),
    evidence={"used": 0.9},
    caused_by="rack",
)
bare = raise_finding("disk", class_="disk_full")
cleared = clear_finding("disk", reason="freed")


def test_the_first_raise_makes_it_active():
    given_finding().when(full).then(
        FindingRaised,
        finding_key="disk",
        raise_no=1,
        status=FindingStatus.ACTIVE,
        actor_id="monitor",
        expectation_id="limits",
        class_="disk_full",
        severity=Severity.HIGH,
        confidence=0.5,
        summary="nearly full",
        subject_kind="host",
        subject_id="web-1",
        evidence_json=raw({"used": 0.9}),
        caused_by_key="rack",
        raised_by_episode_id="e1",
        raised_at=EPOCH + timedelta(seconds=1),
        updated_at=EPOCH + timedelta(seconds=1),
        cleared_at=None,
    )


def test_a_raise_that_says_little_is_medium_and_certain():
    given_finding().when(bare).then(
        FindingRaised, severity=Severity.MEDIUM, confidence=1.0, summary="", evidence_json=NOTHING
    )


def test_raising_an_active_one_refreshes_it():
    given_finding(full).when(raise_finding("disk", class_="disk_gone", severity="critical")).then(
        FindingUpdated,
        raise_no=1,
        class_="disk_gone",
        severity=Severity.CRITICAL,
        raised_by_episode_id="e1",
        raised_at=EPOCH + timedelta(seconds=1),
        updated_at=EPOCH + timedelta(seconds=2),
    )


@pytest.mark.parametrize("intent", [bare, update_finding("disk")])
def test_what_is_not_said_is_kept(intent):
    given_finding(full).when(intent).then(
        FindingUpdated,
        severity=Severity.HIGH,
        confidence=0.5,
        summary="nearly full",
        subject_kind="host",
        subject_id="web-1",
        evidence_json=raw({"used": 0.9}),
        caused_by_key="rack",
    )


def test_an_update_changes_what_it_says():
    intent = update_finding(
        "disk", severity="low", confidence=0.0, summary="", evidence={"used": 0.1}
    )
    given_finding(full).when(intent).then(
        FindingUpdated,
        severity=Severity.LOW,
        confidence=0.0,
        summary="",
        evidence_json=raw({"used": 0.1}),
        class_="disk_full",
    )


@pytest.mark.parametrize("intent", [update_finding("disk", summary="x"), cleared])
@pytest.mark.parametrize("past", [(), (full, cleared)], ids=["never raised", "cleared"])
def test_without_an_active_one_there_is_nothing_to_change(past, intent):
    given_finding(*past).when(intent).then_nothing()


def test_a_clear_ends_it_and_keeps_what_was_known():
    given_finding(full).when(cleared).then(
        FindingCleared,
        status=FindingStatus.CLEARED,
        cleared_by_episode_id="e2",
        cleared_at=EPOCH + timedelta(seconds=2),
        cleared_reason="freed",
        summary="nearly full",
        raised_by_episode_id="e1",
        raise_no=1,
    )


def test_a_raise_after_a_clear_starts_anew_and_is_counted():
    given_finding(full, cleared).when(bare).then(
        FindingRaised,
        raise_no=2,
        status=FindingStatus.ACTIVE,
        summary="",
        caused_by_key="",
        raised_by_episode_id="e3",
        cleared_reason="",
        cleared_at=None,
    )


def test_an_event_names_its_cause_and_a_cause_is_found_again():
    cause = Cause(episode_id="e1", index=3)
    event = decide(None, full, cause=cause, actor_id="a", expectation_id="x", at=EPOCH)
    assert is_of(event, cause)
    assert not is_of(event, Cause(episode_id="e1", index=4))
    assert not is_of(event, Cause(episode_id="e2", index=3))


def test_the_episode_records_what_became_of_each_intent():
    cause = Cause(episode_id="e1", index=0)

    def put(before, intent):
        return decide(before, intent, cause=cause, actor_id="a", expectation_id="x", at=EPOCH)

    raised = put(None, full)
    assert outcome_of(full, raised) == FindingOutcome(
        finding_key="disk", outcome="raised", raise_no=1
    )
    assert outcome_of(bare, put(raised.finding, bare)).outcome == "updated"
    assert outcome_of(cleared, put(raised.finding, cleared)).outcome == "cleared"
    assert outcome_of(cleared, None) == FindingOutcome(finding_key="disk", outcome="unchanged")


@pytest.mark.parametrize(
    ("intend", "problem"),
    [
        (lambda: raise_finding("", class_="c"), "finding key: not a key"),
        (lambda: raise_finding("ä" * 600, class_="c"), "finding key: not a key"),
        (lambda: raise_finding("\ud800", class_="c"), "finding key: not a key"),
        (lambda: raise_finding(7, class_="c"), "finding key 7: must be text"),
        (lambda: raise_finding("k", class_="c", severity="awful"), "severity 'awful': must be one"),
        (lambda: raise_finding("k", class_="c", severity=3), "severity 3: must be one of low,"),
        (
            lambda: raise_finding("k", class_="c", confidence=1.1),
            "confidence 1.1: must be a number",
        ),
        (lambda: raise_finding("k", class_="c", confidence=-0.1), "confidence -0.1: must be a"),
        (
            lambda: raise_finding("k", class_="c", confidence="1"),
            "confidence '1': must be a number",
        ),
        (lambda: raise_finding("k", class_="c", confidence=float("nan")), "confidence nan"),
        (lambda: raise_finding("k", class_="c", subject="host"), "subject 'host': must be a pair"),
        (lambda: raise_finding("k", class_="c", subject=("host", 1)), "must be a pair of kind and"),
        (lambda: raise_finding("k", class_="c", caused_by=""), "finding key: not a key"),
        (lambda: raise_finding("k", class_="c", ttl_s=0), "ttl_s 0: must be a number of seconds"),
        (lambda: raise_finding("k", class_="c", ttl_s=True), "ttl_s True: must be a number"),
        (lambda: raise_finding("k", class_="c", ttl_s="60"), "ttl_s '60': must be a number"),
        (lambda: raise_finding("k", class_="c", ttl_s=1e9), "up to 315,360,000"),
        (lambda: raise_finding("k", class_="c", expires_at=3), "expires_at 3: must be a datetime"),
        (
            lambda: raise_finding("k", class_="c", expires_at=EPOCH.replace(tzinfo=None)),
            "expires_at 2030-01-01T00:00:00: must have a time zone",
        ),
        (
            lambda: raise_finding("k", class_="c", expires_at=EPOCH.replace(year=2201)),
            "must have a time zone and be before 2200",
        ),
        (
            lambda: raise_finding("k", class_="c", ttl_s=1, expires_at=EPOCH),
            "ttl_s and expires_at: say one of the two",
        ),
        (lambda: update_finding("k", severity=""), "severity '': must be one of"),
        (lambda: update_finding("k", confidence=2), "confidence 2: must be a number from 0 to 1"),
        (lambda: update_finding(None), "finding key None: must be text"),
        (lambda: clear_finding(""), "finding key: not a key"),
    ],
)
def test_an_impossible_value_is_refused_by_name(intend, problem):
    with pytest.raises(InvalidFinding) as refused:
        intend()
    assert problem in str(refused.value)


def test_a_long_summary_is_cut():
    assert len(raise_finding("k", class_="c", summary="x" * 9_999).summary) == SUMMARY_CHARS_MAX

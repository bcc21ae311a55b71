"""What time makes of findings: given what was said of one, when somebody looks, then this is so."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.app.findings import (
    Escalation,
    clear_finding,
    escalate,
    expire,
    grow_worse,
    problem_of_escalation,
    raise_finding,
    update_finding,
    wakes_at,
)
from engine.findings.finding import clear
from streams.model.events import FindingEscalated, FindingExpired, FindingUpdated
from streams.model.findings import DueTimer, FindingStatus, Person, Severity
from tests.spec import EPOCH, given_finding

TIMER = DueTimer(timer_id="t1")
STEPS = (escalate(after="10s", to="high"), escalate(after="30s", to="critical"))

minute = raise_finding("disk", class_="full", ttl_s=60)
at_noon = raise_finding("disk", class_="full", expires_at=EPOCH + timedelta(hours=12))
bare = raise_finding("disk", class_="full")
update = update_finding("disk", summary="fuller")


def second(number: float):
    return EPOCH + timedelta(seconds=number)


def after(*said, ttl_s=0.0):
    """Return the finding after the intents of e1, e2, …: the first at second 1, then 2, …"""
    found = given_finding(*said, ttl_s=ttl_s).finding
    assert found is not None
    return found


def test_a_finding_that_says_nothing_of_its_end_waits_to_be_cleared():
    finding = after(bare)
    assert (finding.expires_at, finding.ttl_s) == (None, 0)
    assert expire(finding, cause=TIMER, at=second(10**9)) is None
    assert wakes_at(finding, ()) == {}


def test_a_finding_expires_when_its_time_has_come_and_not_before():
    finding = after(minute)
    assert wakes_at(finding, ()) == {"expire": second(61)}
    assert expire(finding, cause=TIMER, at=second(60.999)) is None
    ended = expire(finding, cause=TIMER, at=second(61))
    assert isinstance(ended, FindingExpired)
    assert (ended.finding.status, ended.finding.cleared_at) == (FindingStatus.EXPIRED, second(61))
    assert ended.finding.cleared_by_episode_id == ended.finding.cleared_reason == ""
    assert ended.cause == TIMER


@pytest.mark.parametrize("again", [bare, update], ids=["raised", "updated"])
def test_a_time_to_live_begins_anew_with_every_raise_and_update(again):
    assert after(minute, again).expires_at == second(62)


@pytest.mark.parametrize("again", [bare, update], ids=["raised", "updated"])
def test_a_time_that_was_said_is_kept(again):
    finding = after(at_noon, again)
    assert (finding.expires_at, finding.ttl_s) == (EPOCH + timedelta(hours=12), 0)


def test_a_time_or_a_time_to_live_that_is_said_anew_takes_the_place_of_the_other():
    assert after(minute, at_noon, update).expires_at == EPOCH + timedelta(hours=12)
    assert after(at_noon, minute, update).expires_at == second(63)


def test_what_is_said_goes_before_what_the_expectation_declares():
    assert after(bare, ttl_s=5).expires_at == second(6)
    assert after(minute, ttl_s=5).expires_at == second(61)
    assert after(at_noon, ttl_s=5).expires_at == EPOCH + timedelta(hours=12)
    assert after(minute, bare, ttl_s=5).expires_at == second(62)
    assert after(at_noon, bare, ttl_s=5).expires_at == EPOCH + timedelta(hours=12)


def test_a_raise_gives_an_active_finding_the_declared_time_to_live_and_an_update_does_not():
    without = given_finding(bare).finding
    assert without is not None
    assert given_finding(bare, ttl_s=5, finding=without).finding.expires_at == second(6)
    assert given_finding(update, ttl_s=5, finding=without).finding.expires_at is None


@pytest.mark.parametrize("end", [clear_finding("disk")])
def test_what_has_ended_neither_expires_nor_gets_worse(end):
    finding = after(minute, end)
    assert expire(finding, cause=TIMER, at=second(10**6)) is None
    assert grow_worse(finding, STEPS, cause=TIMER, at=second(10**6)) is None
    assert wakes_at(finding, STEPS) == {}


def test_what_has_expired_does_not_expire_twice():
    ended = expire(after(minute), cause=TIMER, at=second(61))
    assert expire(ended.finding, cause=TIMER, at=second(62)) is None


def test_what_is_raised_after_it_expired_is_another_raise():
    ended = expire(after(minute), cause=TIMER, at=second(61)).finding
    anew = given_finding(bare, finding=ended).finding
    assert (anew.raise_no, anew.status, anew.expires_at) == (2, FindingStatus.ACTIVE, None)


def test_a_finding_gets_worse_at_its_age():
    finding = after(bare)
    assert wakes_at(finding, STEPS) == {"escalate": second(11)}
    assert grow_worse(finding, STEPS, cause=TIMER, at=second(10.999)) is None
    worse = grow_worse(finding, STEPS, cause=TIMER, at=second(11))
    assert isinstance(worse, FindingEscalated)
    assert (worse.from_severity, worse.finding.severity) == (Severity.MEDIUM, Severity.HIGH)
    assert wakes_at(worse.finding, STEPS) == {"escalate": second(31)}


def test_of_several_steps_that_were_missed_only_the_last_is_taken():
    worse = grow_worse(after(bare), STEPS, cause=TIMER, at=second(100))
    assert (worse.from_severity, worse.finding.severity) == (Severity.MEDIUM, Severity.CRITICAL)
    assert wakes_at(worse.finding, STEPS) == {}


def test_age_never_makes_a_finding_better():
    bad = after(raise_finding("disk", class_="full", severity="critical"))
    assert wakes_at(bad, STEPS) == {}
    assert grow_worse(bad, STEPS, cause=TIMER, at=second(100)) is None


def test_age_counts_from_the_raise_whatever_is_said_since():
    assert wakes_at(after(bare, update, bare), STEPS) == {"escalate": second(11)}


def test_a_worse_step_is_looked_for_where_a_finding_is_bad_already():
    high = after(raise_finding("disk", class_="full", severity="high"))
    assert wakes_at(high, STEPS) == {"escalate": second(31)}


@pytest.mark.parametrize("make", [raise_finding, update_finding])
def test_what_age_has_made_of_a_severity_is_the_least_from_then_on(make):
    worse = grow_worse(after(bare), STEPS, cause=TIMER, at=second(11)).finding
    kind = {"class_": "full"} if make is raise_finding else {}
    lower = given_finding(make("disk", severity="low", **kind), finding=worse)
    higher = given_finding(make("disk", severity="critical", **kind), finding=worse)
    assert lower.finding.severity is Severity.HIGH
    assert higher.finding.severity is Severity.CRITICAL
    assert isinstance(lower.event, FindingUpdated)


def test_a_raise_after_the_end_is_as_bad_as_it_says():
    worse = grow_worse(after(bare), STEPS, cause=TIMER, at=second(11)).finding
    ended = clear(worse, cause=Person(by="ada"), at=second(12)).finding
    anew = given_finding(bare, finding=ended).finding
    assert (anew.severity, anew.escalated_to) == (Severity.MEDIUM, None)


def test_an_escalation_is_said_in_words():
    assert escalate(after="30m", to="critical") == Escalation(1_800.0, Severity.CRITICAL)
    assert escalate(after=timedelta(days=1), to="medium").after_s == 86_400
    assert escalate(after=0.5, to="high").after_s == 0.5


@pytest.mark.parametrize(
    ("after_", "to", "problem"),
    [
        ("30", "high", "'30' is not a duration"),
        (0, "high", "is not from 100ms"),
        ("60w", "high", "to 365d long"),
        ("1h", "low", "'low' is not one of medium, high, critical"),
        ("1h", "awful", "'awful' is not one of"),
        ("1h", None, "None is not one of"),
    ],
)
def test_an_impossible_escalation_is_refused_by_value(after_, to, problem):
    with pytest.raises(ValueError, match=problem):
        escalate(after=after_, to=to)


@pytest.mark.parametrize(
    ("escalation", "problem"),
    [
        ([], "is not a dict of a class"),
        ({1: STEPS}, "class 1 is not text"),
        ({"full": ()}, "'full': () is not a list"),
        ({"full": escalate(after="1h", to="high")}, "is not a list of escalate"),
        ({"full": ["1h"]}, "'1h' is not an escalate"),
        ({"full": STEPS[::-1]}, "each step must be later and worse"),
        ({"full": [STEPS[0], escalate(after="40s", to="high")]}, "later and worse"),
    ],
)
def test_an_escalation_that_cannot_work_is_named(escalation, problem):
    assert problem in str(problem_of_escalation(escalation))


def test_an_escalation_that_works_has_no_problem():
    assert problem_of_escalation({"full": list(STEPS), "slow": STEPS[:1]}) is None

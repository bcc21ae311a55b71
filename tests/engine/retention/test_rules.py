"""What may go follows from what is declared, what was cut before, and what is held."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.retention.rules import KeptTimes, RetentionHolds, before, cut_of, cuts_at
from streams.model.retention import HoldKind, RetentionCut, RetentionField
from tests.spec import EPOCH

DAY_S, HOUR_S = 86_400, 3_600
NOW = EPOCH + timedelta(days=1_000, hours=5, minutes=30)
DONE = RetentionField.DONE


def days(count):
    return count * DAY_S


def ago(**spans):
    return NOW - timedelta(**spans)


def cuts(times, *, now=NOW, known=()):
    return {
        (each.what.value, each.actor_id): each.before for each in cuts_at(now, times, known=known)
    }


def test_an_actors_own_time_comes_before_that_of_its_stack():
    times = KeptTimes({"done": 5, "failed": 7}, {"a": {"done": 9}})
    assert (times.of(DONE, "a"), times.of(DONE, "b")) == (9, 5)
    assert times.of(RetentionField.FAILED, "a") == 7
    assert times.of(RetentionField.FINDINGS, "a") is None


@pytest.mark.parametrize(
    ("kept_s", "at"),
    [
        (HOUR_S, ago(hours=1, minutes=30)),
        (days(2) - 1, ago(days=2, minutes=30)),
        (days(2), ago(days=2, hours=5, minutes=30)),
        (days(30), ago(days=30, hours=5, minutes=30)),
    ],
)
def test_times_are_cut_to_the_hour_and_of_two_days_and_more_to_the_day(kept_s, at):
    cut = before(kept_s, now=NOW)
    assert cut <= NOW - timedelta(seconds=kept_s)
    assert cut == at or NOW - timedelta(seconds=kept_s) - cut < timedelta(hours=1)


def test_what_is_kept_for_ever_is_not_cut():
    assert cuts_at(NOW, KeptTimes()) == ()
    assert cuts_at(NOW, KeptTimes({"journal": days(7), "events": days(7)})) == ()


def test_each_actor_that_says_something_has_a_cut_of_its_own():
    times = KeptTimes({"done": days(30)}, {"a": {"done": days(90), "findings": days(9)}})
    found = cuts(times)
    assert found == {
        ("done", ""): before(days(30), now=NOW),
        ("done", "a"): before(days(90), now=NOW),
        ("findings", "a"): before(days(9), now=NOW),
    }


def test_dead_letters_are_the_stacks():
    assert cuts(KeptTimes({}, {"a": {"dead_letters": days(3)}})) == {}


def test_what_was_cut_stays_gone_if_more_is_kept_from_now_on():
    known = cuts_at(NOW, KeptTimes({"done": days(30)}, {"a": {"done": days(10)}}))
    later = NOW + timedelta(days=1)
    found = cuts(KeptTimes({"done": days(60)}, {"a": {"done": days(60)}}), now=later, known=known)
    assert found == {
        ("done", ""): before(days(30), now=NOW),
        ("done", "a"): before(days(10), now=NOW),
    }
    assert cuts(KeptTimes(), known=known) == found


def test_what_was_cut_of_all_was_cut_of_an_actor_that_says_more_from_now_on():
    known = cuts_at(NOW, KeptTimes({"done": days(30)}))
    found = cuts(KeptTimes({"done": days(30)}, {"a": {"done": days(90)}}), known=known)
    assert found[("done", "a")] == before(days(30), now=NOW)


def test_an_actor_that_says_nothing_any_more_is_cut_as_all_are_once_that_is_later():
    own = KeptTimes({"done": days(30)}, {"a": {"done": days(10)}})
    known = cuts_at(NOW, own)
    whole = KeptTimes({"done": days(30)})
    assert cuts(whole, known=known)[("done", "a")] == before(days(10), now=NOW)
    later = NOW + timedelta(days=20)
    assert ("done", "a") not in cuts(whole, now=later, known=known)
    longer = cuts_at(NOW, KeptTimes({"done": days(30)}, {"a": {"done": days(90)}}))
    assert ("done", "a") not in cuts(whole, known=longer)


def test_the_cut_of_an_actor_is_its_own_or_that_of_all():
    known = (
        RetentionCut(what=DONE, before=ago(days=3)),
        RetentionCut(what=DONE, actor_id="a", before=ago(days=9)),
    )
    assert cut_of(known, DONE, "a") == ago(days=9)
    assert cut_of(known, DONE, "b") == ago(days=3)
    assert cut_of(known, RetentionField.OUTPUTS, "a") is None


HELD = RetentionHolds(
    frozenset({(HoldKind.ACTOR, "a"), (HoldKind.EPISODE, "e1"), (HoldKind.SUBJECT, "web 1")})
)


def test_what_is_held_says_by_what():
    assert HELD.reasons(actor_id="a", episode_id="e1", subject_id="web 1") == [
        "actor a", "episode e1", "subject web 1",
    ]  # fmt: skip
    assert HELD.reasons(actor_id="b", episode_id="e2", subject_id="web 2") == []
    assert HELD.reasons(actor_id="web 1", episode_id="a", subject_id="e1") == []


def test_what_is_about_nothing_is_held_by_no_subject():
    assert RetentionHolds(frozenset({(HoldKind.SUBJECT, "")})).reasons(subject_id="") == []

"""Which instances a sweep has a node look at, and what it tells them."""

from __future__ import annotations

import pytest

from engine.app.workflow import retrying
from engine.episodes.recovery import SweepVerdict
from engine.operations.sweep import SweptAttempt, calls_for, judge_instance, running
from engine.workflows.instance import UNSTARTED
from streams.model.commands import Advance, StepDone
from tests.engine.workflows.flows import (
    cancel,
    done,
    fails,
    flow,
    given,
    missed,
    needs,
    undoable,
)

STALE_AFTER_S = 120.0


def attempts(after, *, is_open=True, has_ended=False):
    return [
        SweptAttempt(told=each, is_open=is_open, has_ended=has_ended)
        for each in running(after.flow.instance)
    ]


def judged(after, *, is_armed=True, silent_s=STALE_AFTER_S, **seen):
    said = {"is_armed": is_armed, "silent_s": silent_s, "stale_after_s": STALE_AFTER_S}
    return judge_instance(after.flow.instance, attempts(after, **seen), **said)


def test_what_has_ended_needs_nothing():
    assert judged(given(flow("a")).when(done("a"))) is SweepVerdict.ENDED
    said = {"is_armed": False, "silent_s": 9e9, "stale_after_s": STALE_AFTER_S}
    assert judge_instance(UNSTARTED, [], **said) is SweepVerdict.ENDED


def test_what_happened_a_moment_ago_is_left_alone():
    assert judged(given(flow("a")), silent_s=STALE_AFTER_S - 1, is_open=False) is SweepVerdict.HELD


def test_an_instance_waits_for_an_attempt_that_runs():
    assert judged(given(flow("a"))) is SweepVerdict.WAITING


@pytest.mark.parametrize("seen", [{"is_open": False}, {"has_ended": True}])
def test_an_attempt_that_was_not_opened_or_whose_end_is_not_known_is_seen_to(seen):
    assert judged(given(flow("a")), **seen) is SweepVerdict.RECOVERED


def test_an_instance_waits_for_people():
    assert judged(given(flow(("a", {"requires_approval": True})))) is SweepVerdict.WAITING
    paused = given(flow(("a", {"on_failure": "pause"}))).when(fails("a"))
    assert judged(paused, is_armed=False) is SweepVerdict.WAITING


@pytest.mark.parametrize(
    ("is_armed", "verdict"), [(True, SweepVerdict.WAITING), (False, SweepVerdict.RECOVERED)]
)
def test_an_instance_waits_for_a_time_only_if_a_timer_says_so(is_armed, verdict):
    put_off = given(flow(("a", {"on_failure": retrying(2, backoff_s=600)}))).when(fails("a"))
    assert judged(put_off, is_armed=is_armed) is verdict
    expiring = given(flow(("a", {"requires_approval": True, "approval_expires_s": 9})))
    assert judged(expiring, is_armed=is_armed) is verdict


def test_what_is_prepared_and_was_not_begun_is_seen_to():
    assert judged(given(flow(("a", {"reuse_s": 60})))) is SweepVerdict.RECOVERED
    assert judged(given(flow(("a", {"reuse_s": 60}))).when(missed("a"))) is SweepVerdict.WAITING


def test_what_stops_is_seen_to_for_what_runs_may_not_know_of_it():
    assert judged(given(flow("a")).when(cancel())) is SweepVerdict.RECOVERED


def test_an_instance_is_told_the_ends_that_it_may_not_know_and_then_to_go_on():
    after = given(flow("a", "b"))
    one, other = attempts(after, has_ended=True)
    other = SweptAttempt(told=other.told, is_open=True, has_ended=False)
    *ends, last = calls_for(after.flow.instance, [one, other])
    assert ends == [one.told]
    assert (ends[0].step, ends[0].attempt) == ("a", 1)
    assert isinstance(last, Advance)


def test_what_undoes_something_is_an_attempt_too():
    undoing = given(flow(undoable("a"), ("b", needs("a")))).when(done("a"), fails("b"))
    (told,) = running(undoing.flow.instance)
    assert isinstance(told, StepDone)
    assert told.is_compensation

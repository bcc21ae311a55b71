"""Which answers stand, what comes of them, and why others do not."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial

import pytest

from engine.app.actions import RequestApproval, approval, problem_of, wait
from engine.episodes.episode import Status, decide, evolve, fold
from engine.errors import InvalidAction, Refused, Unencodable
from engine.waits import answer as answers
from engine.waits.answer import WaitAnswer, denied
from engine.waits.wait import Blocked, block_for, block_in, is_answered
from streams.json import raw, unraw
from streams.model.commands import Decide, Resolve, Verdict
from streams.model.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    StepRecorded,
)
from streams.model.waits import OnExpiry
from tests.engine.dead_letters.test_dead import OPENED
from tests.spec import EPOCH, at

STARTED = EpisodeStarted(node="n1", attempt=1, claim_revision=1)
PLAN = {"restart": "db1"}


def block(action, *, at_s=10) -> EpisodeBlocked:
    """Return what a node records for `action`, `at_s` seconds after the epoch."""
    command = block_for(action, at=EPOCH + timedelta(seconds=at_s))
    return decide(fold([at(0, OPENED, STARTED)]), command)


def past(action, *more):
    return [at(0, OPENED), at(1, STARTED), at(10, block(action)), *more]


def decided(action=None, verdict=Verdict.APPROVE, *, id="d1", by="ada", step_no=1, hash_=None):
    asked = block(action or approval(PLAN)).approval
    return Decide(
        actor_id="monitor",
        episode_id="e1",
        id=id,
        verdict=verdict,
        plan_hash=hash_ or (asked.plan_hash if asked else "0" * 64),
        by=by,
        reason="because",
        step_no=step_no,
    )


def said(ref="payment:42", *, id="r1", result=7):
    return Resolve(
        actor_id="monitor", episode_id="e1", id=id, ref=ref, by="billing", result=raw(result)
    )


def ruled(records, command, *, after_s=20):
    return answers.answer(records, command, at=EPOCH + timedelta(seconds=after_s))


def answered(records, command, *, seq_s=20):
    """Return `records` with what comes of `command`."""
    ruling = ruled(records, command)
    assert isinstance(ruling, WaitAnswer), ruling
    return [*records, at(seq_s, *ruling.events)]


LIMITED = approval(PLAN, approvers=["ada", "bob"], expires_s=60)
PAYMENT = wait("payment:42", expires_s=60)


@pytest.mark.parametrize(
    ("action", "command", "resolution", "result", "error"),
    [
        (
            LIMITED,
            decided(LIMITED),
            Resolution.APPROVED,
            {"resolution": "approved", "by": "ada", "reason": "because"},
            ("", ""),
        ),
        (
            LIMITED,
            decided(LIMITED, Verdict.DENY, by="bob"),
            Resolution.DENIED,
            None,
            ("denied", "by bob: because"),
        ),
        (PAYMENT, said(result={"paid": 1}), Resolution.RESOLVED, {"paid": 1}, ("", "")),
    ],
)
def test_an_answer_is_the_step_and_the_end_of_the_wait(action, command, resolution, result, error):
    ruling = ruled(past(action), command)
    step, resolved = ruling.events
    assert isinstance(step, StepRecorded)
    assert (step.step_no, step.fingerprint) == (1, block(action).fingerprint)
    assert (unraw(step.result), (step.error_class, step.error_detail)) == (result, error)
    assert (resolved.step_no, resolved.resolution) == (1, resolution)
    assert (resolved.by, resolved.decision_id) == (command.by, command.id)
    episode = fold(past(action))
    for event in ruling.events:
        episode = evolve(episode, event)
    assert episode.status is Status.QUEUED


def test_a_step_shows_what_was_asked():
    plan, _ = ruled(past(LIMITED), decided(LIMITED)).events
    ref, _ = ruled(past(PAYMENT), said()).events
    assert (unraw(plan.args), unraw(ref.args)) == (PLAN, {"ref": "payment:42"})


TAKEN = answered(past(LIMITED), decided(LIMITED, Verdict.DENY, id="d0", by="bob"))
CANCELED = past(LIMITED, at(15, EpisodeFinished(status=EndStatus.CANCELED)))


@pytest.mark.parametrize(
    ("records", "command", "after_s", "why"),
    [
        ([at(0, OPENED), at(1, STARTED)], decided(), 20, "does not ask for approval as its step 1"),
        ([at(0, OPENED), at(1, STARTED)], said(), 20, "does not wait for 'payment:42'"),
        (past(PAYMENT), decided(), 20, "does not ask for approval as its step 1"),
        (past(LIMITED), said(), 20, "does not wait for 'payment:42'"),
        (past(PAYMENT), said("payment:43"), 20, "does not wait for 'payment:43'"),
        (past(LIMITED), decided(LIMITED, step_no=2), 20, "as its step 2"),
        (past(LIMITED), decided(LIMITED, hash_="0" * 64), 20, "about another plan"),
        (past(LIMITED), decided(LIMITED, by="eve"), 20, "'eve' is none of those"),
        (past(LIMITED), decided(LIMITED), 71, "it expired at 2030-01-01 00:01:10 UTC"),
        (past(PAYMENT), said(), 71, "it expired at 2030-01-01 00:01:10 UTC"),
        (TAKEN, decided(LIMITED), 30, "denied by bob at 2030-01-01 00:00:20 UTC (because)"),
        (CANCELED, decided(LIMITED), 30, "it was canceled at 2030-01-01 00:00:15 UTC"),
    ],
)
def test_an_answer_that_cannot_stand_is_refused_and_says_why(records, command, after_s, why):
    with pytest.raises(Refused, match=re.escape(why)):
        ruled(records, command, after_s=after_s)


def test_the_same_decision_is_a_repeat_whatever_has_happened_since():
    again = decided(LIMITED, Verdict.DENY, id="d0", by="bob")
    assert ruled(TAKEN, again, after_s=1_000) is None
    later = [*TAKEN, at(30, STARTED), at(31, EpisodeFinished(status=EndStatus.DONE))]
    assert ruled(later, again) is None


def test_a_decision_counts_up_to_the_very_moment_of_the_expiry():
    assert isinstance(ruled(past(LIMITED), decided(LIMITED), after_s=70), WaitAnswer)


def test_a_wait_for_the_same_again_is_another_wait():
    once = answered(past(PAYMENT), said(id="r1"))
    second = EpisodeBlocked(
        step_no=2,
        reason=block(PAYMENT).reason,
        fingerprint=block(PAYMENT).fingerprint,
        wait=block(PAYMENT).wait,
        path="2",
    )
    records = [*once, at(30, STARTED), at(31, second)]
    assert ruled(records, said(id="r1"), after_s=40) is None
    assert ruled(records, said(id="r2"), after_s=40).resolved.step_no == 2


# Expiry.


def expired(action, *, after_s=70):
    return answers.expire(past(action), at=EPOCH + timedelta(seconds=after_s))


@pytest.mark.parametrize(
    ("action", "result", "error_class"),
    [
        (approval(PLAN, expires_s=60), None, "denied"),
        (
            approval(PLAN, expires_s=60, on_expiry="approve"),
            {"resolution": "approved", "by": "", "reason": answers.IN_TIME},
            "",
        ),
        (approval(PLAN, expires_s=60, on_expiry="fail"), None, "approval_expired"),
        (wait("x", expires_s=60), None, "wait_expired"),
        (wait("x", expires_s=60, on_expiry="continue"), None, ""),
    ],
)
def test_an_expiry_means_what_was_said(action, result, error_class):
    step, resolved = expired(action).events
    assert (unraw(step.result), step.error_class) == (result, error_class)
    assert (resolved.resolution, resolved.by) == (Resolution.EXPIRED, "")
    assert resolved.decision_id == "expiry.1"


def test_nothing_expires_before_its_time_nor_what_has_none_nor_what_was_answered():
    assert expired(LIMITED, after_s=69) is None
    assert expired(approval(PLAN), after_s=1e9) is None
    assert answers.expire(TAKEN, at=EPOCH + timedelta(days=1)) is None
    assert answers.expire(CANCELED, at=EPOCH + timedelta(days=1)) is None


# Denials.


@pytest.mark.parametrize(
    ("action", "resolved", "error_class", "detail"),
    [
        (LIMITED, {"resolution": "denied", "by": "ada", "reason": "no"}, "denied", "by ada: no"),
        (LIMITED, {"resolution": "denied", "by": "ada"}, "denied", "by ada"),
        (
            LIMITED,
            {"resolution": "expired", "reason": answers.IN_TIME},
            "denied",
            answers.IN_TIME,
        ),
        (LIMITED, {"resolution": "denied", "by": "ada"}, "crash", None),
        (LIMITED, {"resolution": "approved", "by": "ada"}, "denied", None),
        (PAYMENT, {"resolution": "expired"}, "denied", None),
        (
            approval(PLAN, expires_s=60, on_expiry="fail"),
            {"resolution": "expired"},
            "denied",
            None,
        ),
    ],
)
def test_an_episode_that_people_said_no_to_is_canceled_and_any_other_fails(
    action, resolved, error_class, detail
):
    fields = {**resolved, "resolution": Resolution(resolved["resolution"])}
    step = StepRecorded(step_no=1, kind=block(action).reason, fingerprint="a", path="1")
    episode = fold([*past(action), at(20, step, EpisodeResolved(step_no=1, **fields))])
    ending = denied(episode, error_class, "")
    assert (ending and ending.error_detail) == detail


def test_what_the_strategy_says_about_it_stands_behind_who_said_no():
    episode = fold(TAKEN)
    assert denied(episode, "denied", "no way round").error_detail == "by bob: because; no way round"
    assert denied(episode, "denied", "by bob: because").error_detail == "by bob: because"


# When it is looked after.


def waiting(action) -> Blocked:
    return block_in(at(10, block(action)))


def at_s(seconds):
    return EPOCH + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("action", "after_s", "wake_s"),
    [
        (approval(PLAN), 10, None),
        (approval(PLAN, expires_s=60), 10, 70),
        (approval(PLAN, remind_every_s=20), 10, 30),
        (approval(PLAN, remind_every_s=20), 30, 50),
        (approval(PLAN, remind_every_s=20), 31, 50),
        (approval(PLAN, expires_s=60, remind_every_s=20), 60, 70),
        (approval(PLAN, expires_s=60, remind_every_s=20), 500, 70),
        (wait("x", expires_s=60, remind_every_s=25), 10, 35),
    ],
)
def test_it_is_looked_after_when_something_is_due_next(action, after_s, wake_s):
    wake = waiting(action).pending.next_wake(after=at_s(after_s))
    assert wake == (None if wake_s is None else at_s(wake_s))


@pytest.mark.parametrize(("now_s", "number"), [(10, 0), (29, 0), (30, 1), (49, 1), (95, 4)])
def test_the_newest_reminder_that_is_due_is_the_one_that_people_get(now_s, number):
    asked = waiting(approval(PLAN, remind_every_s=20))
    assert asked.pending.reminder_no(at=at_s(now_s)) == number


def test_only_the_newest_commit_says_whether_it_waits():
    assert block_in(None) is None
    assert block_in(at(1, STARTED)) is None
    assert block_in(TAKEN[-1]) is None
    assert is_answered(TAKEN[-1])
    assert not is_answered(at(30, STARTED))
    assert not is_answered(None)


# What can be asked.


@pytest.mark.parametrize(
    ("action", "problem"),
    [
        (RequestApproval(plan=PLAN, approvers=("",)), "approvers: 0 characters, not 1 to 200"),
        (approval(PLAN, approvers=["a"] * 65), "approvers: 65 of them, the limit is 64"),
        (RequestApproval(plan=PLAN, approvers=(7,)), "approvers: 7 is not text"),
        (approval(PLAN, summary="s" * 4_001), "summary: 4,001 characters"),
        (RequestApproval(plan=PLAN, expires_s=-1.0), "expires_s: -1 is not from 0"),
        (RequestApproval(plan=PLAN, on_expiry=OnExpiry.CONTINUE), "on_expiry: 'continue'; use"),
        (RequestApproval(plan=PLAN, on_expiry=["deny"]), "use approve or deny or fail"),
        (approval(PLAN, expires_s="1h"), "expires_s must be a number of seconds"),
        (approval(PLAN, expires_s=float("nan")), "expires_s: nan is not"),
        (approval(PLAN, remind_every_s=0.5), "remind_every_s: 0.5 is not from 1"),
        (approval(PLAN, remind_every_s=True), "remind_every_s must be a number"),
        (wait(""), "ref: 0 characters"),
        (wait("r" * 257), "ref: 257 characters, not 1 to 256"),
        (wait("\ud800"), "not valid Unicode"),
        (wait(7), "ref: 7 is not text"),
    ],
)
def test_a_request_with_impossible_values_is_no_action(action, problem):
    assert problem in problem_of(action)


def test_an_expiry_means_only_what_it_can_mean():
    with pytest.raises(InvalidAction, match="use approve or deny or fail"):
        approval(PLAN, on_expiry="continue")
    with pytest.raises(InvalidAction, match="use continue or fail"):
        wait("x", on_expiry="deny")


@pytest.mark.parametrize("ask", [partial(approval, PLAN), partial(wait, "x")])
@pytest.mark.parametrize("seconds", [0, 0.0, -1])
@pytest.mark.parametrize("field", ["expires_s", "remind_every_s"])
def test_no_time_at_all_is_not_taken_for_ever(ask, field, seconds):
    with pytest.raises(InvalidAction, match=f"{field}: .* is not more than 0; write more"):
        ask(**{field: seconds})


def test_one_approver_may_be_given_by_name():
    assert approval(PLAN, approvers="ada").approvers == ("ada",)
    assert problem_of(approval(PLAN, approvers="ada")) is None


@pytest.mark.parametrize("nobody", [[], (), iter([])])
def test_an_empty_list_of_who_may_decide_is_not_taken_for_anybody(nobody):
    with pytest.raises(InvalidAction, match="approvers: an empty list names nobody; leave it out"):
        approval(PLAN, approvers=nobody)
    assert approval(PLAN).approvers == approval(PLAN, approvers=None).approvers == ()


@pytest.mark.parametrize("names", ["", [""], ["ada", ""], ["a" * 201], [7]])
def test_what_is_no_name_is_refused_as_soon_as_it_is_given(names):
    with pytest.raises(InvalidAction, match=r"approvers: .* is no name of 1 to 200 characters"):
        approval(PLAN, approvers=names)


def test_a_plan_that_json_cannot_say_is_refused():
    with pytest.raises(Unencodable):
        block_for(approval(object()), at=EPOCH)


def test_the_hash_of_a_plan_depends_on_what_it_says_and_on_nothing_else():
    one, other = block(approval({"a": 1, "b": 2})), block(approval({"b": 2, "a": 1}, summary="x"))
    assert one.approval.plan_hash == other.approval.plan_hash
    assert one.approval.plan_hash != block(approval({"a": 1, "b": 3})).approval.plan_hash

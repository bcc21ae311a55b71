"""What several people have to approve: who counts, who does not, and what a change does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.app.actions import approval, problem_of
from engine.app.outputs import plan_hash
from engine.episodes.episode import Status, decide, fold
from engine.errors import InvalidAction, Refused
from engine.waits import answer as answers
from engine.waits.approval import request_of
from engine.waits.wait import block_for, block_in
from streams.json import raw, unraw
from streams.model.commands import Decide, Verdict
from streams.model.events import (
    EpisodeApprovalGiven,
    EpisodeResolved,
    EpisodeStarted,
    Resolution,
    requester_of,
)
from streams.model.triggers import ManualTrigger
from tests.engine.dead_letters.test_dead import OPENED
from tests.spec import EPOCH, at

PLAN = {"restart": "db1"}
OTHER = {"restart": "db2"}
STARTED = EpisodeStarted(node="n1", attempt=1, claim_revision=1)
TWO = approval(PLAN, quorum=2, editable=True)


def past(action=TWO, *, requester=""):
    command = block_for(action, at=EPOCH, requester=requester)
    blocked = decide(fold([at(0, OPENED, STARTED)]), command)
    return [at(0, OPENED), at(1, STARTED), at(10, blocked)]


def asked(records):
    return answers.waits_of(records)[-1].blocked.event.approval


def said(records, by, *, verdict=Verdict.APPROVE, plan=None, hash_=None, groups=(), id=None):
    edited = {} if plan is None else {"edited_hash": plan_hash(raw(plan)), "edited_plan": raw(plan)}
    return Decide(
        actor_id="monitor",
        episode_id="e1",
        id=id or f"d-{by}-{len(records)}",
        verdict=verdict,
        plan_hash=hash_ or asked(records).plan_hash,
        by=by,
        step_no=1,
        groups=groups,
        **edited,
    )


def told(records, by, **more):
    """The journal after a decision, or why it is refused."""
    command = said(records, by, **more)
    answer = answers.answer(records, command, at=EPOCH + timedelta(seconds=20))
    return [*records, at(10 * len(records), *answer.events)]


def end(records):
    events = [event for record in records for event in record.commit.events]
    return next((each for each in events if isinstance(each, EpisodeResolved)), None)


def test_an_approval_of_two_waits_on_and_the_second_one_ends_it():
    one = told(past(), "ann")
    assert end(one) is None
    assert fold(one).status is Status.BLOCKED
    assert [each.by for each in asked(one).given] == ["ann"]
    two = told(one, "bob")
    assert (end(two).resolution, end(two).by) == (Resolution.APPROVED, "ann, bob")
    assert fold(two).status is Status.QUEUED
    result = unraw(answers.waits_of(two)[-1].blocked.event.approval.plan)
    assert result == PLAN


def test_the_newest_commit_says_all_that_is_waited_for():
    one = told(past(), "ann")
    block = block_in(one[-1])
    assert [each.by for each in block.event.approval.given] == ["ann"]
    assert block.at == block_in(past()[-1]).at  # Reminders and expiry count from the first.


def test_one_denial_denies_whoever_has_approved_it():
    denied = told(told(past(), "ann"), "bob", verdict=Verdict.DENY)
    assert (end(denied).resolution, end(denied).by) == (Resolution.DENIED, "bob")
    mine = told(told(past(), "ann"), "ann", verdict=Verdict.DENY)  # A mistake can be stopped.
    assert end(mine).resolution is Resolution.DENIED


@pytest.mark.parametrize("again", ["ann", "Ann", " ANN "])
def test_nobody_approves_twice(again):
    one = told(past(), "ann")
    with pytest.raises(Refused, match="has approved it already; somebody else has to as well"):
        told(one, again)
    three = told(past(approval(PLAN, quorum=3)), "ann")
    with pytest.raises(Refused, match="'ann' has approved it already; 2 others have to as well"):
        told(three, "ann")


def test_the_same_decision_that_comes_again_is_recorded_once():
    records = past()
    command = said(records, "ann", id="d1")
    one = [*records, at(20, *answers.answer(records, command, at=EPOCH).events)]
    assert answers.answer(one, command, at=EPOCH) is None
    two = told(one, "bob")
    assert answers.answer(two, command, at=EPOCH) is None


def test_who_has_asked_for_it_does_not_decide_on_it():
    asks = approval(PLAN, requester_may_approve=False)
    barred = past(asks, requester="ann")
    for verdict in Verdict:
        with pytest.raises(Refused, match="'Ann' has asked for it, and may not decide on it"):
            told(barred, "Ann", verdict=verdict)
    assert end(told(barred, "bob")).by == "bob"
    assert end(told(past(asks), "ann")).by == "ann"  # Nobody has asked: an event has.
    assert end(told(past(approval(PLAN), requester="ann"), "ann")).by == "ann"


def test_a_quorum_with_the_requester_among_them_is_not_reached():
    asks = approval(PLAN, quorum=2, requester_may_approve=False)
    one = told(past(asks, requester="ann"), "bob")
    with pytest.raises(Refused, match="'ann' has asked for it"):
        told(one, "ann")
    assert end(told(one, "cid")).by == "bob, cid"


def test_whoever_is_in_a_group_may_decide():
    asks = approval(PLAN, approvers=["ann", "group:oncall"])
    assert end(told(past(asks), "bob", groups=("dba", "oncall"))).by == "bob"
    assert end(told(past(asks), "ann")).by == "ann"
    for by, groups in (("bob", ("dba",)), ("bob", ()), ("group:oncall", ()), ("oncall", ())):
        if by == "group:oncall":  # A name that nobody among the people can have.
            continue
        with pytest.raises(Refused, match="none of those who may decide: ann, group:oncall"):
            told(past(asks), by, groups=groups)


def test_a_changed_plan_is_approved_anew_by_the_others():
    one = told(past(), "ann")
    changed = told(one, "bob", plan=OTHER)
    now = asked(changed)
    assert ([each.by for each in now.given], unraw(now.plan)) == (["bob"], OTHER)
    with pytest.raises(Refused, match="it is about another plan; the one that waits has hash"):
        told(changed, "cid", hash_=asked(past()).plan_hash)
    done = told(changed, "ann")  # She approved something else before.
    assert (end(done).by, end(done).edited_hash) == ("bob, ann", now.plan_hash)
    step = next(e for e in done[-1].commit.events if not isinstance(e, EpisodeResolved))
    assert unraw(step.result)["plan"] == OTHER


def test_a_change_that_is_taken_back_is_the_plan_as_it_was():
    changed = told(past(), "bob", plan=OTHER)
    back = told(changed, "ann", plan=PLAN)
    done = told(back, "bob")
    assert (end(done).by, end(done).edited_hash) == ("ann, bob", "")


def test_what_was_not_approved_by_enough_expires_as_it_says():
    one = told(past(approval(PLAN, quorum=2, expires_s=60)), "ann")
    expired = answers.expire(one, at=EPOCH + timedelta(seconds=100))
    assert expired.resolved.resolution is Resolution.EXPIRED


def test_a_decision_that_says_it_comes_from_an_equal_request_approves_no_quorum():
    forged = replace(said(past(), "eve"), acting_episode_id="e0")
    answer = answers.answer(past(), forged, at=EPOCH + timedelta(seconds=20))
    assert isinstance(answer.events[-1], EpisodeApprovalGiven)


def test_requests_of_several_people_are_of_one_episode_alone():
    about = replace(OPENED, trigger=ManualTrigger(requested_by="ann", entity_id="db1"))
    assert request_of(about, approval(PLAN), mark="m")
    assert request_of(about, TWO, mark="m") == ""
    assert request_of(about, approval(PLAN, requester_may_approve=False), mark="m") == ""
    assert requester_of(about) == "ann"


def test_a_quorum_that_cannot_be_is_refused_where_it_is_written():
    for wrong in (0, 17, True, 1.5, "2"):
        with pytest.raises(InvalidAction, match=r"quorum: .* is not a whole number from 1 to 16"):
            approval(PLAN, quorum=wrong)
    asks = approval(PLAN, quorum=2, approvers=["ann"])
    assert problem_of(asks) == "quorum: 2 have to approve it, and only 1 may"
    assert problem_of(approval(PLAN, quorum=2, approvers=["ann", "group:oncall"])) is None

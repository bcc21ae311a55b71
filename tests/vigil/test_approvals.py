"""Requests for approval as they are read from a journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.json import raw, unraw
from streams.model.events import (
    BlockReason,
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
    OutputApproved,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
    Resolution,
    StepApprovalAsked,
    StepApproved,
    StepDenied,
    WorkflowCancelAsked,
)
from streams.model.waits import Approval, OnExpiry, Wait
from streams.ports.log import Commit, Recorded
from tests.projections.lives import opened
from vigil.asking.approval_requests import ApprovalDecision, owner_of, requests
from vigil.commands.choice import as_row

AT = datetime(2030, 1, 1, tzinfo=UTC)
ASKED = Approval(plan_hash="ab" * 32, plan=raw({"drop": "t1"}), summary="drop it")


def blocked(step_no: int = 1, approval: Approval = ASKED) -> EpisodeBlocked:
    return EpisodeBlocked(
        step_no=step_no, reason=BlockReason.APPROVAL, fingerprint="f", approval=approval
    )


def waits(step_no: int = 1) -> EpisodeBlocked:
    wait = Wait(ref="payment:42")
    return EpisodeBlocked(step_no=step_no, reason=BlockReason.WAIT, fingerprint="f", wait=wait)


def resolved(resolution: Resolution, step_no: int = 1, **fields: str) -> EpisodeResolved:
    return EpisodeResolved(step_no=step_no, resolution=resolution, **fields)


def proposed(proposal_no: int = 1, approval: Approval | None = ASKED) -> OutputProposed:
    return OutputProposed(
        output_key="mail:1",
        adapter="mail",
        payload=raw({"to": "ann"}),
        episode_id="e1",
        actor_id="mailer",
        expectation_id="tell",
        proposal_no=proposal_no,
        approval=approval,
    )


def step(name: str = "pay", *inputs: object) -> StepApprovalAsked:
    return StepApprovalAsked(step=name, inputs=tuple(map(raw, inputs)), approval=ASKED)


def lived(*events) -> list[Recorded]:
    """A commit for each event, an hour apart."""
    return [
        Recorded(
            subject="s",
            seq=seq,
            commit=Commit(id=f"c{seq}", at=AT + timedelta(hours=seq - 1), events=(event,)),
        )
        for seq, event in enumerate(events, 1)
    ]


def test_a_request_waits_until_it_is_decided():
    (request,) = requests(lived(opened(), blocked()))
    assert (request.number, request.approval, request.decision) == (1, ASKED, None)
    assert request.asked_at == AT + timedelta(hours=1)


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        (
            (blocked(), resolved(Resolution.DENIED, by="ann", reason="no", decision_id="d")),
            "denied",
        ),
        ((proposed(), OutputApproved(by="ann", reason="no", decision_id="d")), "approved"),
        ((proposed(), OutputRejected(by="ann", reason="no", decision_id="d")), "rejected"),
        ((step(), StepApproved(step="pay", by="ann", reason="no", decision_id="d")), "approved"),
        ((step(), StepDenied(step="pay", by="ann", reason="no", decision_id="d")), "denied"),
    ],
)
def test_a_decision_says_who_when_why_and_which_request_it_follows(events, outcome):
    (request,) = requests(lived(*events))
    assert request.decision == ApprovalDecision(
        outcome=outcome, at=AT + timedelta(hours=1), by="ann", reason="no", id="d"
    )
    assert request.decision.in_words == f"{outcome} by ann at 2030-01-01 01:00:00 UTC (no)"


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((blocked(), resolved(Resolution.EXPIRED)), "expired"),
        ((proposed(), OutputApproved(by="")), "expired"),
        ((proposed(), OutputRejected(by="", is_expiry=True)), "expired"),
        ((proposed(), OutputFailed(attempt=0, error_class="approval_expired")), "expired"),
        ((blocked(), EpisodeFinished(status=EndStatus.CANCELED)), "canceled"),
        ((proposed(), OutputCanceled()), "canceled"),
        ((step(), StepDenied(step="pay", by="", is_expiry=True)), "expired"),
        ((step(), WorkflowCancelAsked(by="ann")), "canceled"),
    ],
)
def test_a_request_may_end_without_anybody(events, outcome):
    (request,) = requests(lived(*events))
    assert request.decision is not None
    assert request.decision.in_words == f"{outcome} at 2030-01-01 01:00:00 UTC"


def test_what_follows_a_decision_does_not_change_it():
    records = lived(
        proposed(),
        OutputApproved(by="ann"),
        OutputFailed(attempt=1, error_class="away"),
        proposed(2, approval=None),
        OutputDelivered(attempt=1),
        OutputCanceled(),
    )
    (request,) = requests(records)
    assert request.decision is not None
    assert request.decision.by == "ann"


def test_what_people_left_may_be_asked_once_more():
    late = OutputFailed(attempt=0, error_class="approval_expired")
    again = OutputRetried(by="bob", approval=ASKED)
    first, second = requests(lived(proposed(), late, again, OutputApproved(by="ann")))
    assert first.decision is not None
    assert second.decision is not None
    assert (first.decision.outcome, second.decision.by) == ("expired", "ann")
    assert (second.asked_at, second.plan) == (AT + timedelta(hours=2), first.plan)


def test_each_request_keeps_its_own_decision():
    denied, approved = resolved(Resolution.DENIED, by="ann"), resolved(Resolution.APPROVED, 3)
    first, third = requests(
        lived(blocked(), denied, waits(2), resolved(Resolution.RESOLVED, 2), blocked(3), approved)
    )
    assert first.decision is not None
    assert third.decision is not None
    assert (first.number, first.decision.outcome) == (1, "denied")
    assert (third.number, third.decision.outcome) == (2, "approved")


def test_a_decision_about_one_step_is_about_no_other():
    pay, ship = requests(lived(step("pay"), step("ship"), StepApproved(step="pay", by="ann")))
    assert (pay.step, pay.decision is None) == ("pay", False)
    assert (ship.step, ship.decision) == ("ship", None)


def test_a_step_is_asked_about_with_its_inputs():
    (request,) = requests(lived(step("pay", {"to": "ann"}, {"to": "bob"})))
    assert unraw(request.plan) == [{"to": "ann"}, {"to": "bob"}]


def test_what_waits_for_word_from_outside_asks_nobody():
    assert requests(lived(opened(), waits())) == []


def test_an_output_is_asked_about_with_what_is_to_be_delivered():
    (request,) = requests(lived(proposed()))
    assert as_row(request)["plan"] == '{\n  "to": "ann"\n}'


def test_people_read_what_is_to_be_done_before_they_decide():
    terms = {"approvers": ("ann", "bob"), "expires_at": AT, "on_expiry": OnExpiry.APPROVE}
    approval = Approval(plan_hash="cd" * 32, plan=raw({"drop": "t1"}), **terms)
    (request,) = requests(lived(blocked(approval=approval)))
    assert as_row(request) == {
        "summary": None,
        "approvers": "ann, bob",
        "asked_at": AT,
        "expires_at": AT,
        "on_expiry": "approve",
        "plan_hash": "cd" * 32,
        "plan": '{\n  "drop": "t1"\n}',
    }


def test_a_request_belongs_to_its_episode_or_to_that_of_its_newest_proposal():
    assert owner_of(lived(opened(), blocked())) == ("monitor", opened().episode_id, "")
    assert owner_of(lived(proposed())) == ("mailer", "e1", "")
    assert owner_of([]) == ("", "", "")

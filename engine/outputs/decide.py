"""The rules for an output: its next move, and the result of an attempt or a command. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.app.actions import RETRY_AFTER_S_MAX
from engine.app.outputs import NO_ADAPTER
from engine.app.workflow import APPROVAL_EXPIRED
from engine.errors import OUTCOME_UNKNOWN, Refused
from engine.outputs.output import Output, is_own, outcome_of
from engine.waits.approval import (
    approved_by,
    asked_anew,
    changed_hash,
    end_in_words,
    is_enough,
    one_more,
    problem_of_command,
)
from engine.waits.wait import block_in
from streams.json import NOTHING
from streams.model.commands import CancelOutput, Decide, RetryOutput, Verdict
from streams.model.events import (
    OutputApprovalGiven,
    OutputApproved,
    OutputCanceled,
    OutputFailed,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
)
from streams.model.outputs import OutputOutcome, OutputStatus
from streams.model.waits import Approval, OnExpiry
from streams.ports.log import Recorded

EARLY_S: Final = 1.0
"""How much too early a retry may be, in seconds: the clocks of nodes differ."""

EARLY_SHARE: Final = 0.1
"""The largest share of a pause that `EARLY_S` may take."""

LACKS_MAX: Final = 64
"""How often in a row an output is put off by nodes that lack its adapter, until it fails. That is
an hour, as long as a command that no node can handle is kept: pauses of 1 to 32 s, and 58 of 60 s.
Not a time: while the nodes are stopped, or one that has the adapter is busy, nobody lacks it."""

LACKED_PAUSE_S_MAX: Final = 60.0
"""Longest pause after a node lacked an adapter, in seconds. The first is 1 s, and it doubles."""


class Settled(msgspec.Struct, frozen=True):
    """Nothing is left to do for this episode."""

    outcome: OutputOutcome


class Later(msgspec.Struct, frozen=True):
    """Nothing can be done before `at`; None: before somebody decides."""

    at: datetime | None


class Propose(msgspec.Struct, frozen=True):
    """The key is free; this is its `proposal_no`-th proposal."""

    proposal_no: int


class TryDelivery(msgspec.Struct, frozen=True):
    """Call the adapter, for the `number`-th time."""

    number: int


class FailDelivery(msgspec.Struct, frozen=True):
    """It cannot be delivered."""

    event: OutputFailed


Move: TypeAlias = Settled | Later | Propose | TryDelivery | FailDelivery


def next_move(
    output: Output, key: str, *, episode_id: str, attempts_max: int | None, at: datetime
) -> Move:
    """Return the next move for an output of an episode.

    `attempts_max` None: this node cannot know how many there may be.
    """
    outcome = outcome_of(output, key, episode_id=episode_id)
    if outcome is not None:
        return Settled(outcome)
    if not is_own(output, episode_id=episode_id):
        return Propose(output.proposed.proposal_no + 1 if output.proposed else 1)
    if output.status is OutputStatus.AWAITING_APPROVAL:  # guard: no-attempt-before-approval
        return Later(wakes_at(output, at=at))
    if output.retry_at is not None and output.retry_at - at > _early(output):
        return Later(output.retry_at)
    # guard: crashed-attempts-run-out
    if attempts_max is not None and output.is_attempted and output.attempts_counted >= attempts_max:
        detail = f"a node died during attempt {output.attempts}, the last there may be"
        event = OutputFailed(
            attempt=output.attempts, error_class=OUTCOME_UNKNOWN, error_detail=detail
        )
        return FailDelivery(event)
    return TryDelivery(output.attempts + 1)


def _early(output: Output) -> timedelta:
    assert output.retry_at is not None, "it is put off"
    assert output.postponed_at is not None, "what is put off was so at some time"
    pause = output.retry_at - output.postponed_at
    # guard: short-pause-kept
    return max(min(timedelta(seconds=EARLY_S), pause * EARLY_SHARE), timedelta())


def after_failure(
    output: Output,
    *,
    error_class: str,
    detail: str,
    is_permanent: bool,
    attempts_max: int,
    pause_s: float,
    retry_after_s: float | None,
    at: datetime,
) -> OutputPostponed | OutputFailed:
    """Return the event of an attempt that failed at `at`."""
    if is_permanent or output.attempts_counted >= attempts_max:
        return OutputFailed(attempt=output.attempts, error_class=error_class, error_detail=detail)
    wanted_s = min(max(retry_after_s or 0.0, 0.0), RETRY_AFTER_S_MAX)
    return OutputPostponed(
        attempt=output.attempts,
        error_class=error_class,
        error_detail=detail,
        retry_at=at + timedelta(seconds=max(pause_s, wanted_s)),
    )


def lacked(output: Output, *, detail: str, at: datetime) -> OutputPostponed | OutputFailed:
    """Return the event of a node that lacks the adapter at `at`: another node may have it."""
    if output.lacks >= LACKS_MAX:  # guard: lacked-fails-in-the-end
        is_unknown = output.is_attempted  # guard: lacked-hides-no-attempt
        return OutputFailed(
            attempt=output.attempts,
            error_class=OUTCOME_UNKNOWN if is_unknown else NO_ADAPTER,
            error_detail=f"a node died during attempt {output.attempts}, and {detail}"
            if is_unknown
            else detail,
        )
    pause_s = min(2.0**output.lacks, LACKED_PAUSE_S_MAX)
    return OutputPostponed(
        attempt=output.attempts,
        error_class=NO_ADAPTER,
        error_detail=detail,
        retry_at=at + timedelta(seconds=pause_s),
        lacked=True,
    )


def wakes_at(output: Output, *, at: datetime) -> datetime | None:
    """Return when an unsettled output is due next, which may be in the past; None: never."""
    if output.status is OutputStatus.PROPOSED:
        return output.retry_at or at
    return output.pending.next_wake(after=at) if output.pending else None


def expired(
    output: Output, *, at: datetime
) -> OutputApproved | OutputRejected | OutputFailed | None:
    """Return the event if nobody has decided on an output by `at`; None: it is not late."""
    pending = output.pending
    if pending is None or not pending.is_expired(at=at):
        return None
    reason = f"nobody decided by {pending.terms.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    if pending.terms.on_expiry is OnExpiry.APPROVE:
        return OutputApproved(by="", reason=reason)
    if pending.terms.on_expiry is OnExpiry.FAIL:  # guard: expired-approval-may-fail
        return OutputFailed(attempt=0, error_class=APPROVAL_EXPIRED, error_detail=reason)
    return OutputRejected(by="", reason=reason, is_expiry=True)


def has_expired(output: Output) -> bool:
    """Return whether an output has failed because nobody approved it in time."""
    return output.failed is not None and output.failed.error_class == APPROVAL_EXPIRED


def answered(
    output: Output, command: Decide, *, at: datetime
) -> OutputApprovalGiven | OutputApproved | OutputRejected | None:
    """Return the event of a decision at `at`, or raise `Refused`; None: it was recorded before."""
    if output.proposed is None:
        raise Refused("there is no such output")
    _check_whose(output.proposed, command)
    decided = output.decided
    # guard: same-output-decision-twice
    if decided is not None and decided.decision_id == command.id:
        return None
    if decided is not None:
        what = "approved" if isinstance(decided, OutputApproved) else "rejected"
        end = end_in_words(what, by=decided.by, at=output.decided_at, reason=decided.reason)
        raise Refused(f"it does not wait any more: it was {end}")
    if output.pending is None:
        why = f" ({output.failed.error_class})" if output.failed else ""
        raise Refused(f"it does not wait for approval: it is {output.status}{why}")
    asked = output.pending.terms
    # guard: same-output-approval-twice
    if any(each.decision_id == command.id for each in asked.given):
        return None
    if problem := problem_of_command(asked, command, at=at):
        raise Refused(problem)
    if command.verdict is Verdict.APPROVE:
        return _approved(one_more(asked, command, at=at, plan=command.edited_plan), command)
    return OutputRejected(by=command.by, reason=command.reason, decision_id=command.id)


def _approved(now: Approval, command: Decide) -> OutputApprovalGiven | OutputApproved:
    if not is_enough(now):
        return OutputApprovalGiven(
            by=command.by, reason=command.reason, decision_id=command.id, approval=now
        )
    edited = changed_hash(now)
    return OutputApproved(
        by=approved_by(now),
        reason=command.reason,
        decision_id=command.id,
        edited_hash=edited,  # guard: edited-output-hash-kept
        edited_payload=now.plan if edited else NOTHING,
    )


def tried_again(output: Output, command: RetryOutput, *, at: datetime) -> OutputRetried | None:
    """Return the event of a person's retry, or raise `Refused`; None: it was recorded before."""
    # An output that nobody approved in time waits for approval again, for as long as at first.
    if output.proposed is None:
        raise Refused("there is no such output")
    if command.id in output.retry_ids:  # guard: output-retry-followed-once
        return None
    if output.status is not OutputStatus.FAILED and not _is_put_off(output):
        raise Refused(
            f"it is {output.status}; only what has failed, or is put off, can be tried again"
        )
    _check_whose(output.proposed, command)
    return OutputRetried(
        by=command.by,
        reason=command.reason,
        retry_id=command.id,
        approval=_asked_again(output, at=at),
    )


def called_off(output: Output, command: CancelOutput) -> OutputCanceled | None:
    """Return the event of a person's cancellation, or raise `Refused`; None: recorded before."""
    if output.proposed is None:
        raise Refused("there is no such output")
    # guard: repeated-cancel-is-one
    if output.canceled is not None and output.canceled.cancel_id == command.id:
        return None
    _check_whose(output.proposed, command)
    if output.status not in (OutputStatus.AWAITING_APPROVAL, OutputStatus.PROPOSED):
        raise Refused(f"it is {output.status}; only what is still to be delivered can be canceled")
    return OutputCanceled(by=command.by, reason=command.reason, cancel_id=command.id)


def check_round(output: Output, command: CancelOutput | Decide) -> None:
    """Refuse a command about an earlier round of the output."""
    # Another node has handled it, though a frozen node may still have it.
    if command.round_no != output.round_no:  # guard: word-names-round
        raise Refused("it was proposed or tried again since; look at it, and say it again")


def check_is_carried(newest: Recorded | None) -> None:
    """Refuse to retry outputs while their episode is blocked: no node would deliver them."""
    if block_in(newest) is not None:  # guard: uncarried-not-retried
        raise Refused("its episode waits for an answer; try it again once it has one")


def _check_whose(proposed: OutputProposed, command: CancelOutput | Decide | RetryOutput) -> None:
    """Refuse a command about one episode's output once another episode has its key."""
    if proposed.episode_id != command.episode_id:  # guard: word-of-one-episodes-output
        raise Refused(f"it is of episode {proposed.episode_id} by now")


def _is_put_off(output: Output) -> bool:
    # guard: trying-not-retried
    is_tried = output.is_attempted and not output.lacks
    return output.status is OutputStatus.PROPOSED and not is_tried and output.retry_at is not None


def _asked_again(output: Output, *, at: datetime) -> Approval | None:
    approval = output.proposed.approval if output.proposed else None
    if approval is None or output.decided is not None:  # guard: unapproved-retry-asks-again
        return None
    approval = asked_anew(approval)  # guard: lapsed-approvals-do-not-count
    if approval.expires_at is None or output.asked_at is None:
        return approval
    return replace(approval, expires_at=at + (approval.expires_at - output.asked_at))

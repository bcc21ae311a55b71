"""The Output aggregate: its state, `decide` and `evolve`. Pure.

    (nothing) ──▶ awaiting_approval ──approved──▶ proposed ──▶ delivered
                          │                        │   ▲ └───▶ failed ──retried by hand──▶ proposed
                          └──▶ rejected            └───┘ attempted, postponed

A proposal is owned by the episode that made it, and delivered by the node that has the episode. For
any other episode with the same key the output is a duplicate, unless it failed, was canceled, or
was not approved in time: then the key may be proposed again. A rejection holds for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.errors import Rejected
from engine.waits.approval import Pending
from streams.model.events import (
    OutputApprovalGiven,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputEvent,
    OutputFailed,
    OutputForgone,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
)
from streams.model.outputs import DUPLICATE, OUTCOMES, OutputOutcome, OutputStatus
from streams.model.waits import Approval
from streams.ports.log import Recorded

EARLIER_MAX: Final = 100
"""Earlier proposals of one key whose end is kept: only episodes that still run while others propose
the key again need it."""

RETRY_IDS_MAX: Final = 100
"""Retry commands that are remembered, to recognise one that comes again."""

TRANSITIONS: Final[Mapping[OutputStatus | None, frozenset[type[OutputEvent]]]] = {
    None: frozenset({OutputProposed, OutputForgone}),
    OutputStatus.AWAITING_APPROVAL: frozenset(
        {OutputApprovalGiven, OutputApproved, OutputRejected, OutputFailed, OutputCanceled}
    ),
    OutputStatus.PROPOSED: frozenset(
        {
            OutputAttempted,
            OutputPostponed,
            OutputDelivered,
            OutputFailed,
            OutputRetried,
            OutputCanceled,
        }
    ),
    OutputStatus.FAILED: frozenset({OutputRetried, OutputProposed, OutputForgone}),
    OutputStatus.CANCELED: frozenset({OutputProposed, OutputForgone}),
    OutputStatus.DELIVERED: frozenset(),
    OutputStatus.REJECTED: frozenset({OutputProposed, OutputForgone}),
}
"""Status → possible events. Only outputs that are `is_free` are proposed again, and only for those
is it recorded that an episode will not propose them.
"""


_FORGONE: Final = OutputOutcome(output_key="", outcome=OUTCOMES[OutputStatus.CANCELED])
"""The end for an episode that will not propose it. The reader knows the key."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """The fold of an output's events."""

    status: OutputStatus | None = None
    """None: it was never proposed."""
    proposed: OutputProposed | None = None
    """The newest proposal, with its newest request for approval; all other fields are about it."""
    asked_at: datetime | None = None
    """When people were asked."""
    attempts: int = 0
    attempts_before: int = 0
    """Attempts before a person last retried it."""
    is_attempted: bool = False
    """Whether an attempt was begun and its result is unknown."""
    postponed_at: datetime | None = None
    """When the last attempt failed for now."""
    retry_at: datetime | None = None
    """Not before then; None: now."""
    lacks: int = 0
    """How often in a row it was put off by nodes whose app lacks its adapter."""
    decided: OutputApproved | OutputRejected | None = None
    decided_at: datetime | None = None
    retries: int = 0
    """How often a person retried it."""
    round_no: int = 0
    """How often it was proposed, by whomever, or retried after a failure: what is said about one
    round holds for no other."""
    retry_ids: tuple[str, ...] = ()
    """Ids of the retry commands, newest last; at most `RETRY_IDS_MAX`."""
    failed: OutputFailed | None = None
    """Why it failed, if it has."""
    canceled: OutputCanceled | None = None
    earlier: tuple[tuple[str, OutputOutcome], ...] = ()
    """Episode → the end of its proposal, of earlier ones; or that it will make none."""

    @property
    def pending(self) -> Pending[Approval] | None:
        """What people are asked, if it waits for their approval."""
        approval = self.proposed.approval if self.proposed else None
        is_asked = self.status is OutputStatus.AWAITING_APPROVAL
        if not is_asked or approval is None or self.asked_at is None:
            return None
        return Pending(approval, self.asked_at)

    @property
    def attempts_counted(self) -> int:
        """Attempts that count towards the limit."""
        return self.attempts - self.attempts_before

    @property
    def is_free(self) -> bool:
        """Whether the key may be proposed again."""
        match self.decided:
            case OutputRejected(is_expiry=is_expiry):
                return is_expiry
            case _:
                return self.status in (None, OutputStatus.FAILED, OutputStatus.CANCELED)


UNPROPOSED: Final = Output()


def decide(output: Output, event: OutputEvent) -> OutputEvent:
    """Return `event` if it may happen to `output`; raise `Rejected` otherwise."""
    is_taken = isinstance(event, OutputProposed | OutputForgone) and not output.is_free
    # guard: rejected-not-proposed-anew
    if is_taken or type(event) not in TRANSITIONS[output.status]:
        raise Rejected(f"{type(event).__name__} while {output.status or 'not proposed'}")
    return event


def evolve(output: Output, event: OutputEvent, *, at: datetime) -> Output:
    """Return `output` after `event`, recorded at `at`. Never refuses: it has already happened."""
    match event:
        case OutputProposed():
            return _proposed(output, event, at=at)
        case OutputApproved():
            return replace(
                output,
                status=OutputStatus.PROPOSED,
                proposed=_edited(output.proposed, event),
                decided=event,
                decided_at=at,
                retry_at=None,
            )
        case OutputApprovalGiven(approval=approval) if output.proposed is not None:
            return replace(output, proposed=replace(output.proposed, approval=approval))
        case OutputApprovalGiven():
            return output
        case OutputRejected():
            return replace(output, status=OutputStatus.REJECTED, decided=event, decided_at=at)
        case OutputRetried():
            return _retried(output, event, at=at)
        case OutputCanceled():
            return replace(output, status=OutputStatus.CANCELED, is_attempted=False, canceled=event)
        case OutputForgone(episode_id=episode_id):
            # guard: forgoing-is-known
            return replace(output, earlier=_with(output.earlier, episode_id, _FORGONE))
        case _:
            return _attempted(output, event, at=at)


def _attempted(
    output: Output,
    event: OutputAttempted | OutputPostponed | OutputDelivered | OutputFailed,
    *,
    at: datetime,
) -> Output:
    match event:
        case OutputAttempted(attempt=attempt):
            return replace(output, attempts=attempt, is_attempted=True, lacks=0)
        case OutputPostponed(lacked=lacked, retry_at=retry_at):
            put_off = replace(output, postponed_at=at, retry_at=retry_at)
            if lacked:  # guard: lacked-ends-no-attempt
                return replace(put_off, lacks=output.lacks + 1)
            return replace(put_off, is_attempted=False)
        case OutputDelivered():
            return replace(output, status=OutputStatus.DELIVERED, is_attempted=False)
        case OutputFailed():
            return replace(output, status=OutputStatus.FAILED, is_attempted=False, failed=event)


def _retried(output: Output, event: OutputRetried, *, at: datetime) -> Output:
    has_failed = output.status is OutputStatus.FAILED
    again = replace(
        output,
        status=OutputStatus.PROPOSED,
        attempts_before=output.attempts if has_failed else output.attempts_before,
        retry_at=None,
        lacks=0,
        retries=output.retries + 1,
        round_no=output.round_no + (1 if has_failed else 0),  # guard: retry-begins-round
        retry_ids=(*output.retry_ids, event.retry_id)[-RETRY_IDS_MAX:],
        failed=None,
    )
    if event.approval is None or output.proposed is None:
        return again
    proposed = replace(output.proposed, approval=event.approval)
    return replace(again, status=OutputStatus.AWAITING_APPROVAL, proposed=proposed, asked_at=at)


def _edited(proposed: OutputProposed | None, approved: OutputApproved) -> OutputProposed | None:
    """Return the proposal with what is delivered, if who approved it has changed that."""
    if proposed is None or not approved.edited_hash:  # guard: edited-output-delivered
        return proposed
    return replace(proposed, payload=approved.edited_payload)


def _proposed(before: Output, event: OutputProposed, *, at: datetime) -> Output:
    waits = event.approval is not None
    earlier = before.earlier
    if before.proposed is not None and (ended := _own_outcome(before)):
        earlier = _with(earlier, before.proposed.episode_id, ended)
    return Output(
        status=OutputStatus.AWAITING_APPROVAL if waits else OutputStatus.PROPOSED,
        proposed=event,
        asked_at=at if waits else None,
        round_no=before.round_no + 1,
        retry_ids=before.retry_ids,  # guard: command-before-reproposal-known
        earlier=earlier,
    )


def _with(
    earlier: tuple[tuple[str, OutputOutcome], ...], episode_id: str, outcome: OutputOutcome
) -> tuple[tuple[str, OutputOutcome], ...]:
    return (*earlier, (episode_id, outcome))[-EARLIER_MAX:]


def fold(records: Iterable[Recorded], output: Output = UNPROPOSED) -> Output:
    """Return `output` after all of `records`, oldest first."""
    for record in records:
        for event in record.commit.events:
            if isinstance(event, OutputEvent):
                output = evolve(output, event, at=record.commit.at)
    return output


def outcome_of(output: Output, key: str, *, episode_id: str) -> OutputOutcome | None:
    """Return the outcome of an output for an episode; None: nothing so far."""
    if is_own(output, episode_id=episode_id):
        return _own_outcome(output)
    earlier = dict(output.earlier)
    if episode_id in earlier:
        return replace(earlier[episode_id], output_key=key)
    if output.is_free:  # guard: other-episodes-key-duplicate
        return None
    is_rejected = output.status is OutputStatus.REJECTED  # guard: rejected-for-every-episode
    outcome = OUTCOMES[OutputStatus.REJECTED] if is_rejected else DUPLICATE
    return OutputOutcome(output_key=key, outcome=outcome)


def _own_outcome(output: Output) -> OutputOutcome | None:
    if output.proposed is None or output.status is None or output.status not in OUTCOMES:
        return None
    return OutputOutcome(
        output_key=output.proposed.output_key,
        outcome=OUTCOMES[output.status],
        error_class=output.failed.error_class if output.failed else "",
    )


def is_own(output: Output, *, episode_id: str) -> bool:
    """Return whether the newest proposal is this episode's."""
    return output.proposed is not None and output.proposed.episode_id == episode_id

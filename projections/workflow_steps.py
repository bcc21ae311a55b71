"""The items of workflows' steps, as rows. Pure.

An item's row is placed when its instance begins, or once it is known how many items its step has.
What follows moves it on. What a person says of all items that are paused, and the end of all that
has not begun, are about rows that nobody here has seen: those change where they stand.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, TypeAlias, assert_never

import msgspec

from projections.statement import Row, Statement
from projections.values import uuid_or_none
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
    StepApproved,
    StepBegun,
    StepDenied,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepReused,
    StepSkipped,
)
from streams.model.workflows import StepOutcome, StepStatus


class ItemProgress(Row, omit_defaults=True, kw_only=True):
    """One row of `sql/advance_workflow_steps.sql`; None leaves a column as it is, but for four."""

    instance_id: str
    step_id: str
    item: int
    journal_seq: int
    status: str | None = None
    error_class: str | None = None
    """With a status: None says that nothing is known to be wrong."""
    error_detail: str | None = None
    """As `error_class`."""
    retry_at: datetime | None = None
    """As `error_class`: None says that no attempt is put off."""
    attempts: int | None = None
    episode_id: str | None = None
    reused_episode_id: str | None = None
    """The earlier episode whose result stands for it."""
    result: msgspec.Raw | None = None
    plan_hash: str | None = None
    summary: str | None = None
    approvers: tuple[str, ...] | None = None
    asked_at: datetime | None = None
    expires_at: datetime | None = None
    decided_by: str | None = None
    decided_reason: str | None = None
    compensation_status: str | None = None
    compensation_episode_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    """As `error_class`: None says that it is not over."""


class PlacedItem(ItemProgress, omit_defaults=True, kw_only=True):
    """One row of `sql/place_workflow_steps.sql`: an item, and what is known to have followed."""

    input: msgspec.Raw | None = None


class ResumedItems(Row, omit_defaults=True, kw_only=True):
    """One row of `sql/resume_workflow_steps.sql`: what was paused before is this from then on."""

    instance_id: str
    step_id: str
    journal_seq: int
    status: str


class StoppedItems(Row, omit_defaults=True, kw_only=True):
    """One row of `sql/stop_workflow_steps.sql`: what had not begun by then never will."""

    instance_id: str
    journal_seq: int


_TABLE: Final = "workflow_steps"
_KEYS: Final = ("instance_id", "step_id", "item")

PLACE: Final = Statement(name="place_workflow_steps", table=_TABLE, keys=_KEYS)
ADVANCE: Final = Statement(name="advance_workflow_steps", table=_TABLE, keys=_KEYS)
RESUME: Final = Statement(name="resume_workflow_steps", table=_TABLE, keys=())
STOP: Final = Statement(name="stop_workflow_steps", table=_TABLE, keys=())

UNBEGUN: Final = frozenset(
    {
        StepStatus.PENDING.value,
        StepStatus.AWAITING_APPROVAL.value,
        StepStatus.RETRYING.value,
        StepStatus.PAUSED.value,
    }
)
"""Statuses of items that a stop ends."""

ItemEvent: TypeAlias = (
    StepApprovalAsked
    | StepApproved
    | StepDenied
    | StepBegun
    | StepEnded
    | StepReused
    | StepPostponed
    | StepSkipped
    | StepPaused
    | CompensationBegun
    | CompensationEnded
)
"""What happens to one item."""


def item_of(event: ItemEvent) -> int:
    """Return which item of its step `event` is about: the first, if it is about the whole step."""
    return 0 if isinstance(event, StepApprovalAsked | StepApproved | StepDenied) else event.item


def move(row: ItemProgress, event: ItemEvent, *, at: datetime) -> None:
    """Put into `row` what `event`, decided `at` a time, makes of the item."""
    match event:
        case CompensationBegun():
            row.compensation_status = "running"
            row.compensation_episode_id = uuid_or_none(event.episode_id)
        case CompensationEnded():
            row.compensation_status = event.outcome.value
        case StepBegun():
            _settle(row, StepStatus.RUNNING)
            row.attempts, row.episode_id = event.attempt, uuid_or_none(event.episode_id)
            row.started_at = at
        case StepEnded():
            _settle(row, StepStatus(event.outcome.value))
            row.error_class, row.error_detail = (
                event.error_class or None,
                event.error_detail or None,
            )
            row.attempts, row.finished_at = event.attempt, at
            row.result = event.result if event.outcome is StepOutcome.DONE else None
        case StepApprovalAsked() | StepApproved() | StepDenied():
            _ask(row, event, at=at)
        case StepReused():
            _settle(row, StepStatus.DONE)
            row.reused_episode_id = uuid_or_none(event.episode_id)
            row.result, row.finished_at = event.result, at
        case StepPostponed():
            row.status, row.retry_at = StepStatus.RETRYING.value, event.retry_at
        case StepSkipped():
            row.status, row.finished_at = StepStatus.SKIPPED.value, at
        case StepPaused():
            row.status = StepStatus.PAUSED.value
        case _:
            assert_never(event)


def _settle(row: ItemProgress, status: StepStatus) -> None:
    """Put a status into `row`, of which nothing is known to be wrong."""
    row.status, row.retry_at, row.finished_at = status.value, None, None
    row.error_class = row.error_detail = None


def _ask(
    row: ItemProgress, event: StepApprovalAsked | StepApproved | StepDenied, *, at: datetime
) -> None:
    match event:
        case StepApprovalAsked(approval=approval):
            _settle(row, StepStatus.AWAITING_APPROVAL)
            row.plan_hash, row.summary = approval.plan_hash, approval.summary or None
            row.approvers, row.expires_at = approval.approvers, approval.expires_at
            row.asked_at = at
        case StepApproved():
            _settle(row, StepStatus.PENDING)
            row.decided_by, row.decided_reason = event.by or None, event.reason or None
        case StepDenied():
            _settle(row, StepStatus.FAILED)
            row.error_class = "approval_expired" if event.is_expiry else "denied"
            row.error_detail = event.reason or None
            row.decided_by, row.decided_reason = event.by or None, event.reason or None
            row.finished_at = at

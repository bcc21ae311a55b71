"""The workflows read model: a row per instance, and one per item of its steps. Pure.

An item's row is created when its instance starts, or once the number of its step's items is known;
later events update it. Events about all paused items, or all that have not started, change rows
that this fold has not seen: the SQL finds those.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Final, TypeAlias, assert_never, get_args

import msgspec

from projections.rows import Row, RowChange, Statement, events_of, key, uuid_or_none
from streams.errors import UnreadableEvent
from streams.json import raw
from streams.model.events import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
    StepBegun,
    StepDenied,
    StepEnded,
    StepPaused,
    StepPostponed,
    StepPrepared,
    StepReused,
    StepSkipped,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowResumed,
    WorkflowStarted,
)
from streams.model.triggers import Trigger
from streams.model.workflows import ResumeHow, StepOutcome, StepStatus, WorkflowSpec, WorkflowStatus
from streams.ports.log import Recorded

_TABLE: Final = "workflow_instances"

_STEPS_TABLE: Final = "workflow_steps"

_KEYS: Final = ("instance_id", "step_id", "item")

PLACE: Final = Statement(
    name="place_workflow_steps", table=_STEPS_TABLE, keys=_KEYS, part_of=_TABLE
)

ADVANCE: Final = Statement(name="advance_workflow_steps", table=_STEPS_TABLE, keys=_KEYS)

# guard: resumed-before-it-begins
RESUME: Final = Statement(name="resume_workflow_steps", table=_STEPS_TABLE, keys=(), rank=-2)

# guard: stopped-before-others-move-on
STOP: Final = Statement(name="stop_workflow_steps", table=_STEPS_TABLE, keys=(), rank=-1)

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
    | StepApprovalGiven
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


_OF_STEPS: Final = (StepApprovalAsked, StepApprovalGiven, StepApproved, StepDenied)
"""Events about a whole step."""

BEGIN_INSTANCE: Final = Statement(
    name="begin_workflow_instances", table=_TABLE, keys=("instance_id",)
)

ADVANCE_INSTANCE: Final = Statement(
    name="advance_workflow_instances", table=_TABLE, keys=("instance_id",)
)

_EVENTS: Final[frozenset[type[WorkflowEvent]]] = frozenset(get_args(WorkflowEvent))


class ItemProgress(Row, kw_only=True):
    """A row of `sql/advance_workflow_steps.sql`; None leaves a column as it is, but for four."""

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
    quorum: int | None = None
    barred: str | None = None
    approved_by: tuple[str, ...] | None = None
    asked_at: datetime | None = None
    expires_at: datetime | None = None
    decided_by: str | None = None
    decided_reason: str | None = None
    edited_hash: str | None = None
    decided_at: datetime | None = None
    paused_at: datetime | None = None
    resumed_at: datetime | None = None
    compensation_status: str | None = None
    compensation_episode_id: str | None = None
    compensation_begun_at: datetime | None = None
    compensation_ended_at: datetime | None = None
    begun_at: datetime | None = None
    """When its first attempt began; a row that has it keeps it."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    """As `error_class`: None says that it is not over."""


class PlacedItem(ItemProgress, kw_only=True):
    """One row of `sql/place_workflow_steps.sql`: an item, and what is known to have followed."""

    input: msgspec.Raw | None = None
    placed_at: datetime


class ResumedItems(Row, kw_only=True):
    """A row of `sql/resume_workflow_steps.sql`: what was paused before is this from then on."""

    instance_id: str
    step_id: str
    journal_seq: int
    status: str
    at: datetime


class StoppedItems(Row, kw_only=True):
    """A row of `sql/stop_workflow_steps.sql`: what had not begun by then never will."""

    instance_id: str
    journal_seq: int
    at: datetime


def item_of(event: ItemEvent) -> int:
    """Return the item that `event` is about: the first, if it is about the whole step."""
    return 0 if isinstance(event, _OF_STEPS) else event.item


def move(row: ItemProgress, event: ItemEvent, *, at: datetime) -> None:
    """Put into `row` what `event`, decided `at` a time, makes of the item."""
    match event:
        case CompensationBegun():
            row.compensation_status, row.compensation_begun_at = "running", at
            row.compensation_episode_id = uuid_or_none(event.episode_id)
        case CompensationEnded():
            row.compensation_status, row.compensation_ended_at = event.outcome.value, at
        case StepBegun():
            _settle(row, StepStatus.RUNNING)
            row.attempts, row.episode_id = event.attempt, uuid_or_none(event.episode_id)
            row.started_at, row.begun_at = at, row.begun_at or at
        case StepEnded():
            _settle(row, StepStatus(event.outcome.value))
            row.error_class, row.error_detail = (
                event.error_class or None,
                event.error_detail or None,
            )
            row.attempts, row.finished_at = event.attempt, at
            row.result = event.result if event.outcome is StepOutcome.DONE else None
        case StepApprovalAsked() | StepApprovalGiven() | StepApproved() | StepDenied():
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
            row.status, row.paused_at = StepStatus.PAUSED.value, at
        case _:
            assert_never(event)


def _settle(row: ItemProgress, status: StepStatus) -> None:
    row.status, row.retry_at, row.finished_at = status.value, None, None
    row.error_class = row.error_detail = None


def _ask(
    row: ItemProgress,
    event: StepApprovalAsked | StepApprovalGiven | StepApproved | StepDenied,
    *,
    at: datetime,
) -> None:
    match event:
        case StepApprovalAsked(approval=approval):
            _settle(row, StepStatus.AWAITING_APPROVAL)
            row.plan_hash, row.summary = approval.plan_hash, approval.summary or None
            row.approvers, row.expires_at = approval.approvers, approval.expires_at
            row.quorum, row.barred = approval.quorum, approval.barred or None
            row.asked_at, row.approved_by = at, ()
        case StepApprovalGiven(approval=approval):
            row.plan_hash = approval.plan_hash
            row.approved_by = tuple(each.by for each in approval.given)
        case StepApproved():
            _settle(row, StepStatus.PENDING)
            row.decided_by, row.decided_reason = event.by or None, event.reason or None
            row.edited_hash = event.edited_hash or None  # guard: changed-step-row
            row.decided_at = at
        case StepDenied():
            _settle(row, StepStatus.FAILED)
            row.error_class = "approval_expired" if event.is_expiry else "denied"
            row.error_detail = event.reason or None
            row.decided_by, row.decided_reason = event.by or None, event.reason or None
            row.finished_at = row.decided_at = at


class InstanceProgress(Row, kw_only=True):
    """One row of `sql/advance_workflow_instances.sql`; None leaves a column as it is."""

    instance_id: str
    journal_seq: int
    updated_at: datetime
    status: str | None = None
    error_class: str | None = None
    error_detail: str | None = None
    failed_step: str | None = None
    canceled_by: str | None = None
    cancel_reason: str | None = None
    not_undone: tuple[str, ...] | None = None
    finished_at: datetime | None = None
    spent_usd: Decimal | None = None
    stopping_at: datetime | None = None
    compensating_at: datetime | None = None
    """As `stopping_at`, the first time; a row that has it keeps it."""


class BegunInstance(InstanceProgress, kw_only=True):
    """One row of `sql/begin_workflow_instances.sql`: how it began, and what followed."""

    workflow_id: str
    mode: str
    trigger_type: str
    trigger_ref: Trigger
    subject_value: str | None
    dedupe_key: str
    steps: msgspec.Raw
    parent_instance_id: str | None
    parent_step_id: str | None
    depth: int
    started_at: datetime
    definition_revision: int | None
    """None: it is declared in code."""
    budget_usd: Decimal | None
    """None: any sum."""


class WorkflowFold:
    """The fold of some consecutive commits of one instance."""

    def __init__(self, instance_id: str) -> None:
        self._instance_id = key(instance_id)
        self._row: InstanceProgress | None = None
        self._items: dict[tuple[str, int], ItemProgress] = {}
        self._resumed: dict[tuple[str, int], ResumedItems] = {}
        self._stopped: StoppedItems | None = None

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is no instance's, and left out."""
        events = events_of(record, _EVENTS, whose="an instance")
        if uuid_or_none(self._instance_id) is None:
            detail = f"{self._instance_id!r} is not a UUID"
            raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)
        for event in events:
            self._add(event, seq=record.seq, at=record.commit.at)

    def changes(self) -> Iterator[RowChange]:
        """Yield each row once."""
        if self._row is not None:
            is_begun = isinstance(self._row, BegunInstance)
            yield RowChange(BEGIN_INSTANCE if is_begun else ADVANCE_INSTANCE, self._row)
        for resumed in self._resumed.values():
            yield RowChange(RESUME, resumed)
        if self._stopped is not None:
            yield RowChange(STOP, self._stopped)
        for item in self._items.values():
            yield RowChange(PLACE if isinstance(item, PlacedItem) else ADVANCE, item)

    def _add(self, event: WorkflowEvent, *, seq: int, at: datetime) -> None:
        if isinstance(event, WorkflowStarted):
            self._begin(event, seq=seq, at=at)
            return
        self._advance(event, seq=seq, at=at)
        match event:
            case StepPrepared():
                self._prepare(event, seq=seq, at=at)
            case WorkflowResumed():
                self._resume(event, seq=seq, at=at)
            case WorkflowAborted() | WorkflowCancelAsked():
                self._stop(seq=seq, at=at)
            case WorkflowFinished():
                pass
            case _:
                self._move(event, seq=seq, at=at)

    def _begin(self, event: WorkflowStarted, *, seq: int, at: datetime) -> None:
        parent = event.parent
        self._row = BegunInstance(
            instance_id=self._instance_id,
            journal_seq=seq,
            updated_at=at,
            status=WorkflowStatus.RUNNING.value,
            workflow_id=event.spec.name,
            mode=event.mode.value,
            trigger_type=str(event.trigger.__struct_config__.tag),
            trigger_ref=event.trigger,
            subject_value=event.subject or None,
            dedupe_key=event.dedupe_key,
            steps=_graph(event.spec),
            parent_instance_id=uuid_or_none(parent.instance_id) if parent else None,
            parent_step_id=parent.step if parent else None,
            depth=event.depth,
            started_at=at,
            definition_revision=event.spec.revision or None,
            budget_usd=event.budget_usd or None,
        )
        for step in event.spec.steps:
            self._place(step.id, 0, seq=seq, at=at).status = StepStatus.PENDING.value

    def _advance(self, event: WorkflowEvent, *, seq: int, at: datetime) -> None:
        row = self._row
        if row is None:
            row = InstanceProgress(instance_id=self._instance_id, journal_seq=seq, updated_at=at)
        self._row = row
        row.journal_seq, row.updated_at = seq, at
        match event:
            case WorkflowAborted():
                row.status = WorkflowStatus.STOPPING.value
                row.stopping_at = row.stopping_at or at
                row.error_class, row.error_detail = event.error_class, event.error_detail or None
                row.failed_step = event.step or None
            case WorkflowCancelAsked():
                row.status = WorkflowStatus.STOPPING.value
                row.stopping_at = row.stopping_at or at
                row.canceled_by, row.cancel_reason = event.by, event.reason or None
            case CompensationBegun():
                row.status = WorkflowStatus.COMPENSATING.value
                row.compensating_at = row.compensating_at or at
            case StepEnded() | CompensationEnded():
                row.spent_usd = event.spent_usd
            case WorkflowFinished():
                row.status, row.finished_at = event.status.value, at
                row.not_undone = event.not_undone
            case _:
                pass

    def _prepare(self, event: StepPrepared, *, seq: int, at: datetime) -> None:
        """Place the items of a step; one that has none is over at once."""
        for number, given in enumerate(event.inputs):
            row = self._place(event.step, number, seq=seq, at=at)
            row.status, row.input = StepStatus.PENDING.value, given
        if not event.inputs:
            row = self._place(event.step, 0, seq=seq, at=at)
            row.status, row.finished_at = StepStatus.DONE.value, at

    def _resume(self, event: WorkflowResumed, *, seq: int, at: datetime) -> None:
        status = StepStatus.PENDING if event.how is ResumeHow.RETRY else StepStatus.SKIPPED
        self._resumed[event.step, seq] = ResumedItems(
            instance_id=self._instance_id,
            step_id=key(event.step),
            journal_seq=seq,
            status=status.value,
            at=at,
        )
        for (step, _), row in self._items.items():
            if step == event.step and row.status == StepStatus.PAUSED.value:
                row.status, row.journal_seq, row.resumed_at = status.value, seq, at

    def _stop(self, *, seq: int, at: datetime) -> None:
        self._stopped = StoppedItems(instance_id=self._instance_id, journal_seq=seq, at=at)
        for row in self._items.values():
            if row.status == StepStatus.AWAITING_APPROVAL.value:
                row.decided_at = at
            elif row.status == StepStatus.PAUSED.value:
                row.resumed_at = at
            if row.status in UNBEGUN:
                row.status, row.journal_seq = StepStatus.CANCELED.value, seq
                row.retry_at = None

    def _move(self, event: ItemEvent, *, seq: int, at: datetime) -> None:
        place = event.step, item_of(event)
        row = self._items.get(place)
        if row is None:
            row = self._items[place] = ItemProgress(
                instance_id=self._instance_id,
                step_id=key(event.step),
                item=item_of(event),
                journal_seq=seq,
            )
        row.journal_seq = seq
        move(row, event, at=at)

    def _place(self, step: str, number: int, *, seq: int, at: datetime) -> PlacedItem:
        """Return the row of an item from its beginning, with people's decisions about it."""
        before = self._items.get((step, number))
        placed = PlacedItem(
            instance_id=self._instance_id,
            step_id=key(step),
            item=number,
            journal_seq=seq,
            placed_at=at,
        )
        if isinstance(before, PlacedItem):
            placed.placed_at = before.placed_at
        if before is not None:
            placed.plan_hash, placed.summary = before.plan_hash, before.summary
            placed.approvers, placed.expires_at = before.approvers, before.expires_at
            placed.asked_at = before.asked_at
            placed.quorum, placed.barred = before.quorum, before.barred
            placed.approved_by = before.approved_by
            placed.decided_by, placed.decided_reason = before.decided_by, before.decided_reason
            placed.edited_hash, placed.decided_at = before.edited_hash, before.decided_at
        self._items[step, number] = placed
        return placed


def _graph(spec: WorkflowSpec) -> msgspec.Raw:
    """Return the steps and their dependencies, as SQL shows them."""
    return raw(
        [
            {
                "step_id": step.id,
                "depends_on": step.depends_on,
                "actor_id": step.task.actor_id if step.task else None,
                "expectation_id": step.task.expectation_id if step.task else None,
                "workflow_id": step.workflow or None,
            }
            for step in spec.steps
        ]
    )

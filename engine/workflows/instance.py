"""The Instance aggregate: one run of a workflow, as its events leave it. Pure.

`history` folds them, `decision` says what happens next, `effects` what follows from it outside, and
`status` which ways are legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from engine.dryrun import merged
from engine.workflows.status import GOES_ON, SETTLED, WAITS_FOR_PEOPLE
from streams.events import (
    CompensationEnded,
    StepApprovalAsked,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowEvent,
    WorkflowFinished,
    WorkflowStarted,
)
from streams.json import NOTHING, unraw
from streams.log import START
from streams.triggers import Mode, Overrides
from streams.workflows import StepSpec, StepStatus, WorkflowStatus

Place: TypeAlias = tuple[str, int]
"""A step, and the number of an item of it."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a step. A step that does not fan out, or is not prepared yet, has one."""

    status: StepStatus = StepStatus.PENDING
    attempt: int = 0
    """The newest; 0: there was none."""
    attempts_before: int = 0
    """Those that count no more: all before a person last had it tried again, and those that were
    called off before they began."""
    episode_id: str = ""
    """Of the newest attempt; empty: nothing has been opened for it."""
    reused_episode_id: str = ""
    """The earlier episode whose result stands for it; empty: none does."""
    begun_at: datetime | None = None
    retry_at: datetime | None = None
    result: msgspec.Raw = NOTHING
    error_class: str = ""
    error_detail: str = ""
    done_no: int = 0
    """Its place in the order in which items were done, from 1; 0: it is not."""


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    items: tuple[Item, ...] = (Item(),)
    inputs: tuple[msgspec.Raw, ...] | None = None
    """Of each item; None: it is not prepared yet."""
    asked: StepApprovalAsked | None = None
    """What people are asked about it now."""
    asked_at: datetime | None = None

    @property
    def is_settled(self) -> bool:
        """Whether those that depend on it may run."""
        return all(item.status in SETTLED for item in self.items)

    def result(self, spec: StepSpec) -> Any:  # noqa: ANN401 - the shape is the user's
        """Return what it brought, decoded: a list, if it fanned out; None, if nothing."""
        if spec.fans_out and self.inputs is not None:
            return [unraw(item.result) for item in self.items]
        return unraw(self.items[0].result)


class Undoing(msgspec.Struct, frozen=True, kw_only=True):
    """How far an item is undone."""

    attempt: int
    episode_id: str
    begun_at: datetime
    ended: CompensationEnded | None = None


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance's events add up to."""

    phase: WorkflowStatus = WorkflowStatus.UNSTARTED
    """Its status, as far as events say it: RUNNING while it is blocked."""
    started: WorkflowStarted | None = None
    started_at: datetime | None = None
    specs: Mapping[str, StepSpec] = {}
    steps: Mapping[str, StepState] = {}
    done: int = 0
    """Items that were done."""
    results_bytes: int = 0
    """What their results come to, as JSON."""
    answers: tuple[str, ...] = ()
    """Ids of what people decided, the newest last."""
    aborted: WorkflowAborted | None = None
    cancel_asked: WorkflowCancelAsked | None = None
    undoings: Mapping[Place, Undoing] = {}
    finished: WorkflowFinished | None = None
    at: datetime | None = None
    """When its newest commit was decided."""
    version: int = START
    newest: tuple[WorkflowEvent, ...] = ()
    """What its newest commit holds."""
    was: WorkflowStatus = WorkflowStatus.UNSTARTED
    """Its status before that."""

    @property
    def status(self) -> WorkflowStatus:
        """Where it is in its life."""
        if self.phase is not WorkflowStatus.RUNNING:
            return self.phase
        statuses = {item.status for _, item in self.items()}
        waits = bool(statuses & WAITS_FOR_PEOPLE)
        moves = bool(statuses & {StepStatus.RUNNING, StepStatus.RETRYING}) or self._is_beginning
        return WorkflowStatus.BLOCKED if waits and not moves else WorkflowStatus.RUNNING

    @property
    def goes_on(self) -> bool:
        """Whether more steps may begin."""
        return self.phase in GOES_ON

    @property
    def begun(self) -> WorkflowStarted:
        """What it began with. Only of one that has begun."""
        assert self.started is not None, "an instance begins with WorkflowStarted"
        return self.started

    @property
    def _is_beginning(self) -> bool:
        """Whether items are prepared that have not begun: it is looked for results of theirs."""
        prepared = (step.items for step in self.steps.values() if step.inputs is not None)
        return any(item.status is StepStatus.PENDING for items in prepared for item in items)

    def overrides(self, step: str, declared: Overrides | None = None) -> Overrides | None:
        """Return what a step uses in the place of the outside; None: it is meant.

        Args:
            step: its name. What a dry run says of this one goes before what it says of all.
            declared: what is used where the dry run says nothing.
        """
        begun = self.begun
        if begun.mode is not Mode.DRY_RUN:
            return None
        return merged(merged(begun.step_overrides.get(step), begun.overrides), declared)

    def items(self) -> Iterator[tuple[Place, Item]]:
        """Yield every item, in the order of the steps."""
        for name, step in self.steps.items():
            for number, item in enumerate(step.items):
                yield (name, number), item

    def with_status(self, status: StepStatus) -> Iterator[tuple[Place, Item]]:
        """Yield the items that have this status."""
        return ((place, item) for place, item in self.items() if item.status is status)


UNSTARTED: Final = Instance()

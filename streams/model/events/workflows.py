"""The life of a workflow instance. Pure.

Each step: (approval asked → approved →) prepared → begun → ended, repeated for each attempt.
`prepared` has the inputs of all attempts, one for each item of a step that fans out. A step that
does not fan out has one item, number 0.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TypeAlias

import msgspec

from streams.json import NOTHING
from streams.model.money import NO_USD, least_usd
from streams.model.struct import Event
from streams.model.triggers import Mode, Overrides, Trigger, WorkflowTrigger
from streams.model.waits import Approval
from streams.model.workflows import (
    ParentStep,
    ResumeHow,
    SkipReason,
    StepOutcome,
    WorkflowSpec,
    WorkflowStatus,
)


class WorkflowStarted(Event, frozen=True, kw_only=True, tag="workflow.started@1"):
    """A cause has begun a workflow. It has all that the instance is to do."""

    instance_id: str
    spec: WorkflowSpec
    trigger: Trigger
    dedupe_key: str
    subject: str = ""
    """What it is about: the trigger's value under the workflow's `subject_key`."""
    generation: int = 0
    mode: Mode = Mode.LIVE
    """Of all its episodes, too."""
    overrides: Overrides | None = None
    """Of a dry run, for all steps."""
    step_overrides: dict[str, Overrides] = msgspec.field(default_factory=dict)
    """Step → overrides that go before those of all steps."""
    parent: ParentStep | None = None
    """Whose result it is, where it is a step of another instance."""
    depth: int = 0
    """How many instances it is a part of."""
    held_by: str = ""
    """The instance of its subject after whose end it goes on; empty: it goes on at once."""
    cooldown_s: int = 0
    """As in `EpisodeOpened`."""

    @property
    def budget_usd(self) -> Decimal:
        """What it may spend, in US dollars: of a nested one no more than is kept for it; 0: any."""
        kept = self.trigger.budget_usd if isinstance(self.trigger, WorkflowTrigger) else NO_USD
        # guard: nested-instance-within-outer-budget
        return least_usd(self.spec.budget_usd, kept)


class StepPrepared(Event, frozen=True, kw_only=True, tag="workflow.step_prepared@1"):
    """It is settled what a step runs with, for all attempts."""

    step: str
    inputs: tuple[msgspec.Raw, ...]
    """A JSON object for each item; none: there is nothing to do."""


class StepApprovalAsked(Event, frozen=True, kw_only=True, tag="workflow.step_approval_asked@1"):
    """People are asked whether a step may run with these inputs, which they may change."""

    step: str
    inputs: tuple[msgspec.Raw, ...]
    """As in `StepPrepared`."""
    approval: Approval
    """Its plan is the inputs, which are beside."""


class StepApprovalGiven(Event, frozen=True, kw_only=True, tag="workflow.step_approval_given@1"):
    """Somebody has approved a step, and others have to as well."""

    step: str
    by: str
    reason: str = ""
    decision_id: str = ""
    approval: Approval
    """What people are asked from now on, with all approvals so far."""
    inputs: tuple[msgspec.Raw, ...]
    """With which they are asked whether it may run; as in `StepPrepared`."""


class StepApproved(Event, frozen=True, kw_only=True, tag="workflow.step_approved@1"):
    """The step may run."""

    step: str
    by: str
    """Who decided; empty: nobody in time, which means approval by the request's own terms."""
    reason: str = ""
    decision_id: str = ""
    edited_hash: str = ""
    """SHA-256 of the changed inputs, a JSON list, with which the step is then prepared; empty: they
    were not changed."""


class StepDenied(Event, frozen=True, kw_only=True, tag="workflow.step_denied@1"):
    """The step may not run: it has failed."""

    step: str
    by: str
    """As in `StepApproved`."""
    reason: str = ""
    decision_id: str = ""
    is_expiry: bool = False
    """Whether nobody has decided in time."""


class StepBegun(Event, frozen=True, kw_only=True, tag="workflow.step_begun@1"):
    """An attempt at an item: its episode, or its instance of another workflow, is to be opened."""

    step: str
    item: int
    """0-based."""
    attempt: int
    """1-based, over all attempts at the item."""
    episode_id: str
    """Of a step that is another workflow: the id of its instance."""
    budget_usd: Decimal = NO_USD
    """What it may spend, in US dollars; nobody else may until its end. 0: any sum."""


class StepEnded(Event, frozen=True, kw_only=True, tag="workflow.step_ended@1"):
    """An attempt at an item is over."""

    step: str
    item: int
    attempt: int
    episode_id: str = ""
    """Empty: there was none, for its functions could not say what it is to run with."""
    outcome: StepOutcome
    error_class: str = ""
    error_detail: str = ""
    result: msgspec.Raw = NOTHING
    spent_usd: Decimal = NO_USD
    """What all ended attempts of the instance have spent by then, in US dollars: what requests to
    models have cost, those of children and of nested instances among them. A request of which
    nobody knows the cost counts as the most that it can be. An attempt that is given up counts as
    what was kept for it: without a budget, nothing."""


class StepReused(Event, frozen=True, kw_only=True, tag="workflow.step_reused@1"):
    """An item is done by what an earlier episode brought for equal input: nothing runs for it."""

    step: str
    item: int
    episode_id: str
    """The earlier one."""
    result: msgspec.Raw = NOTHING


class StepPostponed(Event, frozen=True, kw_only=True, tag="workflow.step_postponed@1"):
    """An attempt failed; another one will be made."""

    step: str
    item: int
    attempt: int
    """The one that failed."""
    retry_at: datetime
    """Not before then."""


class StepSkipped(Event, frozen=True, kw_only=True, tag="workflow.step_skipped@1"):
    """An item is left out: its dependents get `null`."""

    step: str
    item: int
    reason: SkipReason


class StepPaused(Event, frozen=True, kw_only=True, tag="workflow.step_paused@1"):
    """An item failed for good, and waits for a person."""

    step: str
    item: int


class WorkflowResumed(Event, frozen=True, kw_only=True, tag="workflow.resumed@1"):
    """A person decided what is done about the items of a step that are paused."""

    step: str
    how: ResumeHow
    by: str
    reason: str = ""
    resume_id: str = ""
    """Of the request that it follows: sent again, it is the same one."""


class WorkflowAborted(Event, frozen=True, kw_only=True, tag="workflow.aborted@1"):
    """It has failed: what runs is to be canceled, and what is done undone."""

    error_class: str
    error_detail: str = ""
    step: str = ""
    """Whose failure it is; empty: it took too long."""


class WorkflowCancelAsked(Event, frozen=True, kw_only=True, tag="workflow.cancel_asked@1"):
    """It is not wanted any more: what runs is to be canceled, and what is done undone."""

    by: str
    reason: str = ""


class CompensationBegun(Event, frozen=True, kw_only=True, tag="workflow.compensation_begun@1"):
    """An attempt to undo an item that is done."""

    step: str
    item: int
    attempt: int
    """1-based, over all attempts to undo it."""
    episode_id: str
    budget_usd: Decimal = NO_USD
    """As in `StepBegun`."""


class CompensationEnded(Event, frozen=True, kw_only=True, tag="workflow.compensation_ended@1"):
    """An attempt to undo an item is over."""

    step: str
    item: int
    attempt: int
    episode_id: str
    outcome: StepOutcome
    error_class: str = ""
    error_detail: str = ""
    retry_at: datetime | None = None
    """Another one will be made then; None: none will."""
    spent_usd: Decimal = NO_USD
    """As in `StepEnded`."""


class WorkflowFinished(Event, frozen=True, kw_only=True, tag="workflow.finished@1"):
    """The one terminal event."""

    status: WorkflowStatus
    """`done`, `failed` or `canceled`."""
    error_class: str = ""
    error_detail: str = ""
    step: str = ""
    """Whose failure it is, where it is one's."""
    not_undone: tuple[str, ...] = ()
    """Steps with items that could not be undone."""


WorkflowEvent: TypeAlias = (
    WorkflowStarted
    | StepPrepared
    | StepApprovalAsked
    | StepApproved
    | StepApprovalGiven
    | StepDenied
    | StepBegun
    | StepEnded
    | StepReused
    | StepPostponed
    | StepSkipped
    | StepPaused
    | WorkflowResumed
    | WorkflowAborted
    | WorkflowCancelAsked
    | CompensationBegun
    | CompensationEnded
    | WorkflowFinished
)

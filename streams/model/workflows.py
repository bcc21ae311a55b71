"""Workflows as data: the steps of an instance, and their statuses. Pure.

All of it is in the instance's first event, so a deployment does not change running instances. Only
functions stay in the code; the data names them.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

from streams.model.money import NO_USD
from streams.model.service_levels import ServiceLevel
from streams.model.struct import Struct
from streams.model.triggers import (
    AdaptiveBudget,
    Budget,
    LogStrategy,
    Overlap,
    Overrides,
    PublicEvents,
)


class Remedy(StrEnum):
    """What becomes of an instance one of whose steps has failed for good."""

    ABORT = "abort"
    """What runs is canceled, what is done is undone, and the instance fails."""
    CONTINUE = "continue"
    """It goes on as if the step had brought nothing: those that depend on it get `null`."""
    PAUSE = "pause"
    """The step waits until a person has it tried again, or skipped."""


class OnFailure(Struct, frozen=True, kw_only=True):
    """What is done about a step whose attempt has failed."""

    attempts_max: int = 1
    """Attempts, the first included."""
    backoff_s: float = 0.0
    """Wait after the first attempt, in seconds; it doubles each time, up to an hour."""
    skip_on: tuple[str, ...] = ()
    """Error classes that no other attempt is made after."""
    then: Remedy = Remedy.ABORT
    """After the last attempt."""


class Task(Struct, frozen=True, kw_only=True):
    """What an actor is to find out or do: one of its expectations."""

    actor_id: str
    expectation_id: str
    budget: Budget
    spec_rev: str = ""
    revision: int = 0
    """Of the definition that the actor was made of; 0: it is declared in code."""
    subject_key: str = ""
    """The expectation's path into the input."""
    priority: int = 0
    overrides: Overrides | None = None
    """What the expectation puts in the place of the outside in dry runs."""
    log_strategy: LogStrategy = LogStrategy.FULL_DEBUG
    public_events: PublicEvents = PublicEvents.ALL
    """The actor's."""
    service_level: ServiceLevel | None = None
    """What the expectation promises."""
    adaptive_budget: AdaptiveBudget | None = None
    """How the budget follows what earlier episodes of the expectation used; None: it does not."""


class StepSpec(Struct, frozen=True, kw_only=True):
    """A step of a workflow."""

    id: str
    task: Task | None = None
    """What it runs; None: another workflow."""
    workflow: str = ""
    """The other workflow's name."""
    budget_usd: Decimal = NO_USD
    """The other workflow's budget, in US dollars; 0: it declares none."""
    depends_on: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    """Which of `for_each`, `input` and `when` the code has for it, by name, sorted."""
    on_failure: OnFailure = OnFailure()
    timeout_s: float = 0.0
    """Longest that an attempt may take, in seconds, with the wait for its turn; 0: as long as it
    takes."""
    requires_approval: bool = False
    approvers: tuple[str, ...] = ()
    """As in `Approval`."""
    quorum: int = 1
    """How many different people have to approve it."""
    requester_may_approve: bool = True
    """Whether who has started the instance may decide, too."""
    approval_expires_s: float = 0.0
    """How long it can be approved, in seconds; then it is denied. 0: for as long as it takes."""
    compensation: Task | None = None
    """What undoes it once it is done."""
    reuse_s: float = 0.0
    """Longest that the same work may be done, in seconds, for its result to stand; 0: none does."""

    @property
    def fans_out(self) -> bool:
        """Whether it runs once for each item of a list."""
        return "for_each" in self.functions


class WorkflowSpec(Struct, frozen=True, kw_only=True):
    """A workflow, with what its actors say of their expectations."""

    name: str
    steps: tuple[StepSpec, ...]
    """In the order of their declaration."""
    subject_key: str = ""
    timeout_s: float = 0.0
    """Longest that an instance may take, in seconds; 0: as long as it takes."""
    overlap: Overlap = "allow"
    """What a cause does while an instance of its subject has not ended."""
    budget_usd: Decimal = NO_USD
    """What all requests to models of an instance may cost, in US dollars; 0: any sum."""
    revision: int = 0
    """Of the definition that it was made of; 0: it is declared in code."""


class ParentStep(Struct, frozen=True, kw_only=True):
    """The step of another instance that an instance is run for."""

    workflow: str
    instance_id: str
    step: str
    item: int
    attempt: int


class StepStatus(StrEnum):
    """The state of one item of a step. A step that does not fan out has one item."""

    PENDING = "pending"
    """What it depends on is not settled, or it is about to begin."""
    AWAITING_APPROVAL = "awaiting_approval"
    RUNNING = "running"
    FAILED = "failed"
    """Its attempt has failed. The same commit says what becomes of it."""
    RETRYING = "retrying"
    """Another attempt will be made when its time has come."""
    PAUSED = "paused"
    """A person has to say whether it is tried again, or skipped."""
    DONE = "done"
    SKIPPED = "skipped"
    """There is no result of it, and the instance goes on."""
    CANCELED = "canceled"
    """The instance stopped before it was settled."""


class WorkflowStatus(StrEnum):
    """The state of an instance."""

    UNSTARTED = "unstarted"
    RUNNING = "running"
    BLOCKED = "blocked"
    """Nothing of it runs before a person has decided something."""
    STOPPING = "stopping"
    """It was aborted or canceled; what runs is being canceled."""
    COMPENSATING = "compensating"
    """What was done is being undone."""
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


class SkipReason(StrEnum):
    """Why an item was left out."""

    CONDITION = "condition"
    FAILED = "failed"
    """It failed, and its policy says to go on."""


class StepOutcome(StrEnum):
    """How an attempt at an item ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"
    """Because the instance stopped."""


class ResumeHow(StrEnum):
    """What a person wants done about a step that is paused."""

    RETRY = "retry"
    SKIP = "skip"

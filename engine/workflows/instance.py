"""The workflow instance aggregate: its commands, state, `evolve`, and its ids. Pure.

`STEP_TRANSITIONS` and `WORKFLOW_TRANSITIONS` are its tables; `engine.workflows.decide` decides. Ids
come from causes: starting an instance twice, or an attempt at a step, is a version conflict. The
dedupe key of an attempt's episode names the attempt:

    workflow:<instance>/<step>/<item>/<attempt>         to do it
    compensation:<instance>/<step>/<item>/<attempt>     to undo it
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from engine.app import dedupe
from engine.app.workflow import APPROVAL_EXPIRED, DENIED
from engine.episodes.dry_run import merged
from engine.waits.approval import denial_in_words
from streams.json import NOTHING, raw, unraw
from streams.model.commands import Advance, CancelWorkflow, DecideStep, ResumeWorkflow
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
from streams.model.money import NO_USD
from streams.model.triggers import Mode, Overlap, Overrides
from streams.model.workflows import (
    ResumeHow,
    StepOutcome,
    StepSpec,
    StepStatus,
    Task,
    WorkflowStatus,
)
from streams.ports.log import START, Recorded

S: TypeAlias = StepStatus

W: TypeAlias = WorkflowStatus

INSTANCE_ENDED: Final = frozenset({W.DONE, W.FAILED, W.CANCELED})

GOES_ON: Final = frozenset({W.RUNNING, W.BLOCKED})
"""Steps start as soon as those they depend on are settled."""

SETTLED: Final = frozenset({S.DONE, S.SKIPPED})
"""Of an item: steps that depend on it wait no longer."""

WAITS_FOR_PEOPLE: Final = frozenset({S.AWAITING_APPROVAL, S.PAUSED})

_STOPPABLE: Final = frozenset({S.CANCELED})

STEP_TRANSITIONS: Final[Mapping[StepStatus, Mapping[type, frozenset[StepStatus]]]] = {
    S.PENDING: {
        StepPrepared: frozenset({S.PENDING}),
        StepApprovalAsked: frozenset({S.AWAITING_APPROVAL}),
        StepBegun: frozenset({S.RUNNING}),
        StepEnded: frozenset({S.FAILED}),
        StepReused: frozenset({S.DONE}),
        StepSkipped: frozenset({S.SKIPPED}),
        WorkflowAborted: _STOPPABLE,
        WorkflowCancelAsked: _STOPPABLE,
    },
    S.AWAITING_APPROVAL: {
        StepApprovalGiven: frozenset({S.AWAITING_APPROVAL}),
        StepApproved: frozenset({S.PENDING}),
        StepDenied: frozenset({S.FAILED}),
        WorkflowAborted: _STOPPABLE,
        WorkflowCancelAsked: _STOPPABLE,
    },
    S.RUNNING: {StepEnded: frozenset({S.DONE, S.FAILED, S.CANCELED})},
    S.FAILED: {
        StepPostponed: frozenset({S.RETRYING}),
        StepSkipped: frozenset({S.SKIPPED}),
        StepPaused: frozenset({S.PAUSED}),
    },
    S.RETRYING: {
        StepPrepared: frozenset({S.PENDING}),
        StepApprovalAsked: frozenset({S.AWAITING_APPROVAL}),
        StepBegun: frozenset({S.RUNNING}),
        StepEnded: frozenset({S.FAILED}),
        StepSkipped: frozenset({S.SKIPPED}),
        WorkflowAborted: _STOPPABLE,
        WorkflowCancelAsked: _STOPPABLE,
    },
    S.PAUSED: {
        WorkflowResumed: frozenset({S.PENDING, S.SKIPPED}),
        WorkflowAborted: _STOPPABLE,
        WorkflowCancelAsked: _STOPPABLE,
    },
    S.DONE: {},
    S.SKIPPED: {},
    # Only an attempt that was called off before it began is followed by another one.
    S.CANCELED: {StepPostponed: frozenset({S.RETRYING})},
}
"""Status of an item → event → statuses: every legal transition. Any other event, or one of another
step or item, leaves the item as it is."""

_STEP_EVENTS: Final = (
    StepPrepared,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
    StepDenied,
    StepBegun,
    StepEnded,
    StepReused,
    StepPostponed,
    StepSkipped,
    StepPaused,
    WorkflowResumed,
)

_ON: Final[Mapping[type, frozenset[WorkflowStatus]]] = {
    **dict.fromkeys(_STEP_EVENTS, GOES_ON),
    WorkflowAborted: frozenset({W.STOPPING}),
    WorkflowCancelAsked: frozenset({W.STOPPING}),
    WorkflowFinished: frozenset({W.DONE}),
}

WORKFLOW_TRANSITIONS: Final[Mapping[WorkflowStatus, Mapping[type, frozenset[WorkflowStatus]]]] = {
    W.UNSTARTED: {WorkflowStarted: frozenset({W.RUNNING})},
    W.RUNNING: _ON,
    W.BLOCKED: _ON,
    W.STOPPING: {
        StepEnded: frozenset({W.STOPPING}),
        CompensationBegun: frozenset({W.COMPENSATING}),
        WorkflowFinished: frozenset({W.FAILED, W.CANCELED}),
    },
    W.COMPENSATING: {
        CompensationBegun: frozenset({W.COMPENSATING}),
        CompensationEnded: frozenset({W.COMPENSATING}),
        WorkflowFinished: frozenset({W.FAILED, W.CANCELED}),
    },
    W.DONE: {},
    W.FAILED: {},
    W.CANCELED: {},
}
"""Status of an instance → event → statuses: every legal transition.

It is blocked, and not running, while some item waits for people and none runs or will by itself.
"""

Place: TypeAlias = tuple[str, int]
"""A step, and the number of its item."""

ANSWERS_KEPT: Final = 100
"""How many decisions and resumptions are remembered, to recognise repeated ones."""


_StepEvent: TypeAlias = (
    StepPrepared
    | StepApprovalAsked
    | StepApprovalGiven
    | StepApproved
    | StepDenied
    | StepBegun
    | StepEnded
    | StepReused
    | StepPostponed
    | StepSkipped
    | StepPaused
    | WorkflowResumed
)


_INSTANCE: Final = "workflow:"
"""Replaces the actor in an instance's id. No actor's id has a colon, so no episode can have it."""


CALLED_OFF: Final = "called_off"
"""Error class of a nested instance that never started."""

OVERLAP: Final = "overlap"
"""Error class of an instance that never started because another one held its subject; who cancels
one whose place another one takes, for people."""

NOT_STARTED: Final = "workflow_not_started"
"""Error class of an instance whose cause can start none."""


class AttemptEnded(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt has ended, by the journal of its episode or nested instance."""

    step: str
    item: int
    attempt: int
    episode_id: str
    outcome: StepOutcome
    error_class: str = ""
    error_detail: str = ""
    result: msgspec.Raw = NOTHING
    is_compensation: bool = False
    is_called_off: bool = False
    """Whether it never started and never will: see `engine.workflows.start.called_off`."""
    spent_usd: Decimal = NO_USD
    """What it has spent, in dollars."""


class ResultLookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a `LookUpResult` for an item."""

    step: str
    item: int
    episode_id: str = ""
    """The episode whose result is reused; empty: none, so the item starts."""
    result: msgspec.Raw = NOTHING


InstanceCommand: TypeAlias = (
    Advance | AttemptEnded | ResultLookedUp | ResumeWorkflow | CancelWorkflow | DecideStep
)


class HeldSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A subject of a workflow, of which one instance runs at a time."""

    workflow: str
    subject: str
    overlap: Overlap = "skip"


def was_skipped(end: WorkflowFinished) -> bool:
    """Return whether an instance never started because another one held its subject."""
    # A failure has any error class; what is canceled has only ours.
    return end.status is WorkflowStatus.CANCELED and end.error_class == OVERLAP


def held_subject(started: WorkflowStarted) -> HeldSubject | None:
    """Return the subject that an instance holds until its end.

    None: it is dry, nested, or its workflow allows overlap.
    """
    spec = started.spec
    # guard: dry-instance-locks-nothing
    if spec.overlap == "allow" or started.mode is Mode.DRY_RUN or started.parent is not None:
        return None
    return HeldSubject(workflow=spec.name, subject=started.subject, overlap=spec.overlap)


class StepItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a step. A step that does not fan out, or is not prepared yet, has one."""

    status: StepStatus = StepStatus.PENDING
    attempt: int = 0
    """The newest; 0: there was none."""
    attempts_before: int = 0
    """Attempts that do not count: those before a person's last retry, and those called off."""
    episode_id: str = ""
    """Of the newest attempt; empty: nothing was opened for it."""
    reused_episode_id: str = ""
    """The episode whose result is reused; empty: none."""
    begun_at: datetime | None = None
    budget_usd: Decimal = NO_USD
    """What the newest attempt may spend, in dollars; 0: any sum."""
    retry_at: datetime | None = None
    result: msgspec.Raw = NOTHING
    error_class: str = ""
    error_detail: str = ""
    done_no: int = 0
    """Its number in the order of completion, from 1; 0: it is not done."""


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    items: tuple[StepItem, ...] = (StepItem(),)
    inputs: tuple[msgspec.Raw, ...] | None = None
    """Of each item; None: not prepared yet."""
    asked: StepApprovalAsked | None = None
    """Its pending approval."""
    decision: StepApproved | StepDenied | None = None
    """On what it asked last; None: it did not ask, or waits."""
    decided_at: datetime | None = None

    @property
    def is_settled(self) -> bool:
        """Whether steps that depend on it may run."""
        return all(item.status in SETTLED for item in self.items)

    def result(self, spec: StepSpec) -> Any:  # noqa: ANN401 - the shape is the user's
        """Its result, decoded: a list if it fanned out; None if there is none."""
        if spec.fans_out and self.inputs is not None:
            return [unraw(item.result) for item in self.items]
        return unraw(self.items[0].result)


class Undoing(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an item's compensation."""

    attempt: int
    episode_id: str
    begun_at: datetime
    budget_usd: Decimal = NO_USD
    """As of a `StepItem`."""
    ended: CompensationEnded | None = None


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """The fold of an instance's events."""

    phase: WorkflowStatus = WorkflowStatus.UNSTARTED
    """Its status by its events: RUNNING while it is blocked."""
    started: WorkflowStarted | None = None
    started_at: datetime | None = None
    specs: Mapping[str, StepSpec] = {}
    steps: Mapping[str, StepState] = {}
    done: int = 0
    """Items that were done."""
    results_bytes: int = 0
    """The size of its results, as JSON."""
    spent_usd: Decimal = NO_USD
    """What its ended attempts have spent, in dollars."""
    answers: tuple[str, ...] = ()
    """Ids of people's decisions, the newest last."""
    aborted: WorkflowAborted | None = None
    cancel_asked: WorkflowCancelAsked | None = None
    undoings: Mapping[Place, Undoing] = {}
    finished: WorkflowFinished | None = None
    at: datetime | None = None
    """When its newest commit was decided."""
    version: int = START
    newest: tuple[WorkflowEvent, ...] = ()
    """The events of its newest commit."""
    was: WorkflowStatus = WorkflowStatus.UNSTARTED
    """Its status before that."""
    spent_before_usd: Decimal = NO_USD
    """What it had spent before that."""

    @property
    def status(self) -> WorkflowStatus:
        """Its status for people: BLOCKED is derived."""
        if self.phase is not WorkflowStatus.RUNNING:
            return self.phase
        statuses = {item.status for _, item in self.items()}
        waits = bool(statuses & WAITS_FOR_PEOPLE)
        moves = bool(statuses & {StepStatus.RUNNING, StepStatus.RETRYING}) or self._is_beginning
        return WorkflowStatus.BLOCKED if waits and not moves else WorkflowStatus.RUNNING

    @property
    def is_untouched(self) -> bool:
        """Whether it has begun, and nothing has followed since."""
        return self.started is not None and self.newest == (self.started,)

    @property
    def is_held(self) -> bool:
        """Whether it began behind another one of its subject, and nothing has followed since."""
        return self.is_untouched and bool(self.begun.held_by)

    @property
    def busy_instance_id(self) -> str:
        """The instance that held its subject, so that it never started; empty: it is not so."""
        is_skipped = self.finished is not None and was_skipped(self.finished)
        return self.begun.held_by if is_skipped else ""

    @property
    def why_not_started(self) -> str:
        """Why it never started, for people; empty: it has."""
        end = self.finished
        if end is None or self.begun.spec.steps:
            return ""
        return end.error_detail if was_skipped(end) else f"{end.error_class}: {end.error_detail}"

    @property
    def goes_on(self) -> bool:
        """Whether more steps may start."""
        return self.phase in GOES_ON

    @property
    def begun(self) -> WorkflowStarted:
        """Its first event. Only for one that has started."""
        assert self.started is not None, "an instance begins with WorkflowStarted"
        return self.started

    @property
    def _is_beginning(self) -> bool:
        prepared = (step.items for step in self.steps.values() if step.inputs is not None)
        return any(item.status is StepStatus.PENDING for items in prepared for item in items)

    def overrides(self, step: str, declared: Overrides | None = None) -> Overrides | None:
        """Return the overrides of a step in a dry run; None: it is live."""
        # Those of the step win over those of all steps, and both over `declared`.
        begun = self.begun
        if begun.mode is not Mode.DRY_RUN:
            return None
        return merged(merged(begun.step_overrides.get(step), begun.overrides), declared)

    def items(self) -> Iterator[tuple[Place, StepItem]]:
        """Yield every item, in the order of the steps."""
        for name, step in self.steps.items():
            for number, item in enumerate(step.items):
                yield (name, number), item

    def with_status(self, status: StepStatus) -> Iterator[tuple[Place, StepItem]]:
        """Yield the items with this status."""
        return ((place, item) for place, item in self.items() if item.status is status)


UNSTARTED: Final = Instance()


def denial_of(event: StepDenied) -> tuple[str, str]:
    """Return error class and detail of a step that was not approved."""
    detail = denial_in_words(by=event.by, reason=event.reason)
    return APPROVAL_EXPIRED if event.is_expiry else DENIED, detail


def fold_instance(records: Iterable[Recorded], instance: Instance = UNSTARTED) -> Instance:
    """Return `instance` after all of `records`, oldest first."""
    for record in records:
        events = tuple(e for e in record.commit.events if isinstance(e, WorkflowEvent))
        instance = after(instance, events, at=record.commit.at, version=record.seq)
    return instance


def after(
    instance: Instance, events: Iterable[WorkflowEvent], *, at: datetime, version: int
) -> Instance:
    """Return `instance` after one commit of `events`."""
    was, spent, newest = instance.status, instance.spent_usd, tuple(events)
    for event in newest:
        # What is left in the journal of one that was archived tells how it ended, and no more.
        # guard: cut-off-instance-folds
        if instance.started is None and not isinstance(event, WorkflowStarted | WorkflowFinished):
            continue
        instance = evolve(instance, event, at=at)
    return replace(instance, at=at, version=version, newest=newest, was=was, spent_before_usd=spent)


def evolve(instance: Instance, event: WorkflowEvent, *, at: datetime) -> Instance:
    """Return `instance` after `event`, decided `at` a time. Never refuses."""
    match event:
        case WorkflowStarted():
            return _started(event, at)
        case WorkflowAborted():
            return replace(_stopped(instance), aborted=event)
        case WorkflowCancelAsked():
            return replace(_stopped(instance), cancel_asked=event)
        case CompensationBegun():
            return _undoing(instance, event, at)
        case CompensationEnded():
            return replace(_undoing(instance, event, at), spent_usd=event.spent_usd)
        case WorkflowFinished():
            return replace(instance, phase=event.status, finished=event)
        case StepEnded() | StepReused():
            instance = _over(instance, event)
        case StepApprovalGiven() | StepApproved() | StepDenied():
            instance = _answered(instance, event.decision_id)
        case WorkflowResumed():
            instance = _answered(instance, event.resume_id)
        case _:
            pass
    step = _step_after(instance.steps[event.step], event, at=at, done=instance.done)
    return replace(instance, steps={**instance.steps, event.step: step})


def _started(event: WorkflowStarted, at: datetime) -> Instance:
    return Instance(
        phase=WorkflowStatus.RUNNING,
        started=event,
        started_at=at,
        specs={spec.id: spec for spec in event.spec.steps},
        steps={spec.id: StepState() for spec in event.spec.steps},
    )


def _over(instance: Instance, event: StepEnded | StepReused) -> Instance:
    """Return `instance` with what the end of an item adds up to."""
    if isinstance(event, StepEnded):
        instance = replace(instance, spent_usd=event.spent_usd)
        if event.outcome is not StepOutcome.DONE:
            return instance
    size_bytes = instance.results_bytes + len(bytes(event.result))
    return replace(instance, done=instance.done + 1, results_bytes=size_bytes)


def _answered(instance: Instance, id_: str) -> Instance:
    return replace(instance, answers=(*instance.answers, id_)[-ANSWERS_KEPT:]) if id_ else instance


def _stopped(instance: Instance) -> Instance:
    """Return `instance` stopped: what has not started is canceled."""
    goes_on = SETTLED | {StepStatus.RUNNING, StepStatus.FAILED}
    steps = {
        name: replace(
            step,
            asked=None,
            items=tuple(
                item if item.status in goes_on else replace(item, status=StepStatus.CANCELED)
                for item in step.items
            ),
        )
        for name, step in instance.steps.items()
    }
    return replace(instance, phase=WorkflowStatus.STOPPING, steps=steps)


def _undoing(
    instance: Instance, event: CompensationBegun | CompensationEnded, at: datetime
) -> Instance:
    place = event.step, event.item
    match event:
        case CompensationBegun():
            undoing = Undoing(
                attempt=event.attempt,
                episode_id=event.episode_id,
                begun_at=at,
                budget_usd=event.budget_usd,
            )
        case CompensationEnded():
            undoing = replace(instance.undoings[place], ended=event)
    return replace(
        instance,
        phase=WorkflowStatus.COMPENSATING,
        undoings={**instance.undoings, place: undoing},
    )


def _step_after(step: StepState, event: _StepEvent, *, at: datetime, done: int) -> StepState:
    first = step.items[0] if step.items else StepItem()
    match event:
        case StepPrepared(inputs=inputs):
            ready = replace(first, status=StepStatus.PENDING)
            return replace(step, items=(ready,) * len(inputs), inputs=inputs)
        case StepApprovalAsked():
            waiting = replace(first, status=StepStatus.AWAITING_APPROVAL)
            return StepState(items=(waiting,), asked=event)
        case StepApprovalGiven(approval=approval, inputs=inputs) if step.asked is not None:
            asked = replace(step.asked, approval=approval, inputs=inputs)
            return replace(step, asked=asked)
        case StepApprovalGiven():
            return step
        case StepApproved():
            ready = replace(first, status=StepStatus.PENDING)
            return StepState(items=(ready,), decision=event, decided_at=at)
        case StepDenied():
            return StepState(items=(_denied(first, event),), decision=event, decided_at=at)
        case WorkflowResumed():
            items = tuple(_resumed(item, event.how) for item in step.items)
            return replace(step, items=items)
        case _:
            before, item, rest = _around(step.items, event.item)
            return replace(step, items=(*before, _item_after(item, event, at, done), *rest))


def _around(
    items: tuple[StepItem, ...], n: int
) -> tuple[tuple[StepItem, ...], StepItem, tuple[StepItem, ...]]:
    return items[:n], items[n], items[n + 1 :]


def _denied(item: StepItem, event: StepDenied) -> StepItem:
    error_class, detail = denial_of(event)
    return replace(item, status=StepStatus.FAILED, error_class=error_class, error_detail=detail)


def _resumed(item: StepItem, how: ResumeHow) -> StepItem:
    if item.status is not StepStatus.PAUSED:
        return item
    status = StepStatus.PENDING if how is ResumeHow.RETRY else StepStatus.SKIPPED
    return replace(item, status=status, attempts_before=item.attempt, result=NOTHING)


def _item_after(
    item: StepItem,
    event: StepBegun | StepEnded | StepReused | StepPostponed | StepSkipped | StepPaused,
    at: datetime,
    done: int,
) -> StepItem:
    match event:
        case StepBegun():
            return StepItem(
                status=StepStatus.RUNNING,
                attempt=event.attempt,
                attempts_before=item.attempts_before,
                episode_id=event.episode_id,
                begun_at=at,
                budget_usd=event.budget_usd,
            )
        case StepEnded():
            return replace(
                item,
                status=StepStatus(event.outcome.value),
                attempt=event.attempt,
                # guard: called-off-no-attempt
                attempts_before=item.attempts_before + (event.outcome is StepOutcome.CANCELED),
                result=event.result,
                error_class=event.error_class,
                error_detail=event.error_detail,
                done_no=done if event.outcome is StepOutcome.DONE else 0,
            )
        case StepReused(episode_id=reused, result=result):
            return StepItem(
                status=StepStatus.DONE, reused_episode_id=reused, result=result, done_no=done
            )
        case StepPostponed():
            return replace(item, status=StepStatus.RETRYING, retry_at=event.retry_at)
        case StepSkipped():
            return replace(item, status=StepStatus.SKIPPED, result=NOTHING)
        case StepPaused():
            return replace(item, status=StepStatus.PAUSED)
        case _:
            assert_never(event)


def instance_id(*, stack: str, workflow: str, dedupe_key: str, generation: int = 0) -> str:
    """Return the id of the instance that a cause starts: a UUIDv8, as an episode's."""
    return dedupe.episode_id(
        stack=stack,
        actor=_INSTANCE,
        expectation=workflow,
        dedupe_key=dedupe_key,
        generation=generation,
    )


def attempt_key(
    instance: str, step: str, item: int, attempt: int, *, is_compensation: bool = False
) -> str:
    """Return the dedupe key of one attempt at an item."""
    what = "compensation" if is_compensation else "workflow"
    return f"{what}:{instance}/{step}/{item}/{attempt}"


def attempt_id(*, stack: str, task: Task | None, workflow: str, key: str) -> str:
    """Return the id of one attempt: an episode's, or that of a nested instance of `workflow`."""
    if task is None:
        return instance_id(stack=stack, workflow=workflow, dedupe_key=key)
    return dedupe.episode_id(
        stack=stack, actor=task.actor_id, expectation=task.expectation_id, dedupe_key=key
    )


def reuse_key(
    *, stack: str, task: Task, given: msgspec.Raw, mode: Mode, overrides: Overrides | None
) -> str:
    """Return the key of equal work; the order of keys in `given` does not matter."""
    sorted_input = raw(msgspec.json.decode(given))
    parts = [
        stack,
        task.actor_id,
        task.expectation_id,
        task.spec_rev,
        task.revision,
        mode.value,
        overrides if mode is Mode.DRY_RUN else None,
        sorted_input,
    ]
    return hashlib.blake2b(raw(parts), digest_size=16).hexdigest()

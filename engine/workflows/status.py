"""Where an instance and the items of its steps are in their lives, and every legal way on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from streams.events import (
    CompensationBegun,
    CompensationEnded,
    StepApprovalAsked,
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
    WorkflowFinished,
    WorkflowResumed,
    WorkflowStarted,
)
from streams.workflows import StepStatus, WorkflowStatus

S: TypeAlias = StepStatus
W: TypeAlias = WorkflowStatus

ENDED: Final = frozenset({W.DONE, W.FAILED, W.CANCELED})

GOES_ON: Final = frozenset({W.RUNNING, W.BLOCKED})
"""Steps are begun as soon as those they depend on are settled."""

SETTLED: Final = frozenset({S.DONE, S.SKIPPED})
"""Of an item: those that depend on its step wait for it no longer."""

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
"""Status of an item → event → statuses: every legal transition. An event that is not named, or is
of another step or item, leaves the item as it is."""

_STEP_EVENTS: Final = (
    StepPrepared,
    StepApprovalAsked,
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

"""Which fields of events and commands have contents, and events without them. Pure.

Contents are what users and people have put in: payloads, arguments, results, evidence, texts. All
else is what the engine goes by and people count: ids, keys of subjects and findings, names, times,
states, costs, digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from streams.json import NOTHING, raw, unraw
from streams.model.children import ChildStart
from streams.model.commands import (
    Cancel,
    CancelOutput,
    CancelWorkflow,
    Decide,
    DecideStep,
    Resolve,
    ResumeWorkflow,
    RetryOutput,
)
from streams.model.events import (
    CheckpointSaved,
    CompensationEnded,
    DeadDiscarded,
    DeadLettered,
    EpisodeApprovalGiven,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    Fork,
    KeptJson,
    OutputApprovalGiven,
    OutputApproved,
    OutputCanceled,
    OutputFailed,
    OutputPostponed,
    OutputProposed,
    OutputRejected,
    OutputRetried,
    Parked,
    SignalGiven,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
    StepDenied,
    StepEnded,
    StepKind,
    StepPrepared,
    StepRecorded,
    StepReused,
    WorkflowAborted,
    WorkflowCancelAsked,
    WorkflowFinished,
    WorkflowResumed,
)
from streams.model.findings import (
    ClearFinding,
    Finding,
    Person,
    RaiseFinding,
    UpdateFinding,
)
from streams.model.outputs import OutputIntent
from streams.model.sealed import ERASED_JSON, ERASED_KEY, ERASED_TEXT
from streams.model.triggers import (
    CloudEvent,
    EpisodeTrigger,
    EventTrigger,
    ManualTrigger,
    OverrideFailure,
    Overrides,
    ScheduleTrigger,
    WorkflowTrigger,
)
from streams.model.waits import Approval, GivenApproval

T = TypeVar("T")

CONTENTS: Final[Mapping[type[msgspec.Struct], tuple[str, ...]]] = {
    EpisodeOpened: ("metadata",),
    EventTrigger: ("payload",),
    ScheduleTrigger: ("payload",),
    ManualTrigger: ("payload", "reason"),
    WorkflowTrigger: ("input",),
    EpisodeTrigger: ("payload",),
    CloudEvent: ("subject",),
    Overrides: ("tools", "synthesis"),
    OverrideFailure: ("detail",),
    Fork: ("reason",),
    ChildStart: ("payload",),
    StepRecorded: ("args", "result", "result_shown", "error_detail"),
    KeptJson: ("json",),
    CheckpointSaved: ("state",),
    EpisodeConverged: ("classification", "summary", "result", "metadata"),
    Approval: ("plan", "summary", "asked_plan"),
    GivenApproval: ("reason",),
    Parked: ("how",),
    EpisodeApprovalGiven: ("reason",),
    EpisodeResolved: ("reason",),
    EpisodeFinished: ("error_detail",),
    RaiseFinding: ("summary", "evidence_json"),
    UpdateFinding: ("summary", "evidence_json"),
    ClearFinding: ("reason",),
    Finding: ("summary", "evidence_json", "cleared_reason"),
    Person: ("reason",),
    OutputIntent: ("payload", "summary"),
    OutputProposed: ("payload",),
    OutputApproved: ("reason", "edited_payload"),
    OutputApprovalGiven: ("reason",),
    OutputRejected: ("reason",),
    OutputPostponed: ("error_detail",),
    OutputFailed: ("error_detail",),
    OutputRetried: ("reason",),
    OutputCanceled: ("reason",),
    SignalGiven: ("result",),
    StepPrepared: ("inputs",),
    StepApprovalAsked: ("inputs",),
    StepApprovalGiven: ("inputs", "reason"),
    StepApproved: ("reason",),
    StepDenied: ("reason",),
    StepEnded: ("result", "error_detail"),
    StepReused: ("result",),
    WorkflowResumed: ("reason",),
    WorkflowAborted: ("error_detail",),
    WorkflowCancelAsked: ("reason",),
    CompensationEnded: ("error_detail",),
    WorkflowFinished: ("error_detail",),
    DeadLettered: ("detail", "payload"),
    DeadDiscarded: ("reason",),
    Cancel: ("reason",),
    CancelOutput: ("reason",),
    CancelWorkflow: ("reason",),
    Decide: ("reason", "edited_plan"),
    DecideStep: ("reason", "edited_inputs"),
    Resolve: ("result",),
    ResumeWorkflow: ("reason",),
    RetryOutput: ("reason",),
}
"""Struct → its fields with contents."""

HEADERS: Final = "headers"
"""The field of a dead letter with those of a message, which may say anything; it is emptied."""

_GONE_BY: Final = frozenset({StepKind.OUTPUT, StepKind.CHECKPOINT})
"""Kinds of steps whose results the engine has made, of ids and outcomes, and goes by."""


def without_contents(value: T) -> T:
    """Return `value`, a struct of a log or a command, with what says that contents are erased.

    It folds as before. What has no contents stays the same object.
    """
    return cast("T", _emptied(value))


def _emptied(value: object) -> object:
    match value:
        case msgspec.Struct():
            return _emptied_struct(value)
        case tuple():
            emptied = tuple(map(_emptied, value))
            is_same = all(a is b for a, b in zip(emptied, value, strict=True))
            return value if is_same else emptied
        case dict() if any(isinstance(each, msgspec.Struct) for each in value.values()):
            emptied_values = {name: _emptied(each) for name, each in value.items()}
            is_same = all(each is value[name] for name, each in emptied_values.items())
            return value if is_same else emptied_values
        case _:
            return value


def _emptied_struct(value: msgspec.Struct) -> msgspec.Struct:
    contents = _contents_of(value)
    changes: dict[str, object] = {}
    for name in value.__struct_fields__:
        given = getattr(value, name)
        after = erased(given) if name in contents else _emptied(given)
        if name == HEADERS and given:
            after = {}
        elif name == "result" and isinstance(value, SignalGiven):
            after = _of_decision(value.result) or after
        if after is not given:
            changes[name] = after
    return msgspec.structs.replace(value, **changes) if changes else value


def _contents_of(value: msgspec.Struct) -> tuple[str, ...]:
    if isinstance(value, StepRecorded) and (value.is_grant or value.kind in _GONE_BY):
        # guard: engines-results-stay
        return tuple(each for each in CONTENTS[StepRecorded] if each != "result")
    return CONTENTS.get(type(value), ())


def _of_decision(result: msgspec.Raw) -> msgspec.Raw | None:
    """Return a signal's result without contents, if it is a decision; None: it is none.

    It goes on to whoever asks for the same, so it stays one.
    """
    decision: object = unraw(result)
    if not isinstance(decision, dict) or not decision.get("plan_hash"):
        return None
    emptied = {
        **decision,
        "reason": erased(decision.get("reason", "")),
        "edited_plan": None if decision.get("edited_plan") is None else unraw(ERASED_JSON),
    }
    return result if emptied == decision else raw(emptied)


def erased(given: Any) -> object:  # noqa: ANN401 - contents have any type
    """Return what stands for contents that are erased, of the type of what was `given`."""
    match given:
        case msgspec.Raw():
            is_empty = given in (NOTHING, ERASED_JSON)
            return given if is_empty else ERASED_JSON
        case str():
            return given if given in {"", ERASED_TEXT} else ERASED_TEXT
        case bytes():
            return b"" if given else given
        case dict():
            if not given or ERASED_KEY in given:
                return given
            if all(isinstance(each, msgspec.Raw) for each in given.values()):
                is_empty = all(each == ERASED_JSON for each in given.values())
                return given if is_empty else dict.fromkeys(given, ERASED_JSON)
            return {ERASED_KEY: True}
        case tuple():
            emptied = tuple(map(erased, given))
            is_same = all(a is b for a, b in zip(emptied, given, strict=True))
            return given if is_same else emptied
        case _:
            return given

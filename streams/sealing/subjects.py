"""Whose contents an event, a command or a payload has. Pure.

A subject of data is found in the events themselves, or they name an aggregate that has it: the
episode that raised a finding, the instance whose step an episode is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, get_args

import msgspec

from streams.errors import BadName
from streams.json import UNDECODABLE, JsonObject, text_at
from streams.layout import Kind
from streams.model.commands import Command, WorkflowCommand
from streams.model.events import (
    DeadLettered,
    EpisodeOpened,
    FindingEvent,
    LogEvent,
    OutputProposed,
    SignalGiven,
    SignalWaited,
    WorkflowStarted,
)
from streams.model.findings import Cause
from streams.model.sealed import subject_text
from streams.model.struct import Struct
from streams.model.triggers import EpisodeTrigger, Trigger, WorkflowTrigger
from streams.subjects import Stack

DEPTH_MAX: Final = 4
"""How deep a payload within another one is looked for: a timer has that of the event it is for."""

VALUE_CHARS_MAX: Final = 512
"""Longest value of a subject of data that is told apart: as long as an expectation's."""


class DataOwner(Struct, frozen=True):
    """The aggregate that has the subject of data."""

    kind: Kind
    key: str


Whose: TypeAlias = str | DataOwner | None
"""The subject of data, or who knows it; None: nobody's."""

STANDING: Final = frozenset({Kind.EPISODE, Kind.OUTPUT, Kind.WORKFLOW})
"""Kinds of aggregates all of whose commits are about the subject of the first."""

_FINDINGS: Final = get_args(FindingEvent)

_OWNERS: Final = {
    "episode_id": Kind.EPISODE,
    "raised_by_episode_id": Kind.EPISODE,
    "instance_id": Kind.WORKFLOW,
    "finding_key": Kind.FINDING,
}
"""Field of a public event → what it names. An episode may have left the log, a finding does not."""


def whose_events(events: Iterable[LogEvent], kinds: Sequence[str]) -> Whose:
    """Return whose contents the events of a commit have."""
    found = (_whose_event(each, kinds) for each in events)
    return next((each for each in found if each is not None), None)


def whose_command(command: Command | WorkflowCommand) -> DataOwner:
    """Return whose contents a command has."""
    if isinstance(command, WorkflowCommand):
        return DataOwner(Kind.WORKFLOW, command.instance_id)
    return DataOwner(Kind.EPISODE, command.episode_id)


def whose_payload(payload: JsonObject, kinds: Sequence[str]) -> Sequence[Whose]:
    """Return whose contents an object has that is published, or that a timer carries.

    Of several the first counts of which it is known whose it is.
    """
    level: list[JsonObject] = [payload]
    for _ in range(DEPTH_MAX):
        for each in level:
            if subject := subject_in(each, kinds):
                return (subject,)
        level = [
            child for each in level for child in each.values() if isinstance(child, dict) and child
        ]
    return _owners_in(payload)


def subject_in(payload: JsonObject, kinds: Sequence[str]) -> str:
    """Return the subject of data that an object has a value for; empty: it has none."""
    for kind in kinds:
        if value := text_at(payload, kind)[:VALUE_CHARS_MAX]:
            return subject_text(kind, value)
    return ""


def whose_subject(subject: str, stack: Stack) -> DataOwner | None:
    """Return the aggregate at a subject of the log, as an owner; None: it is none."""
    try:
        return DataOwner(*stack.aggregate_of(subject))
    except BadName:
        return None


def _whose_event(event: LogEvent, kinds: Sequence[str]) -> Whose:
    match event:
        case EpisodeOpened(trigger=trigger, subject_kind=kind):
            return _whose_trigger(trigger, kind, trigger.entity_id, kinds)
        case WorkflowStarted(trigger=trigger, spec=spec, subject=value, parent=parent):
            found = _whose_trigger(trigger, spec.subject_key, value, kinds)
            return found or (DataOwner(Kind.WORKFLOW, parent.instance_id) if parent else None)
        case event if isinstance(event, _FINDINGS):
            return _whose_finding(event, kinds)
        case OutputProposed(episode_id=episode_id):
            return DataOwner(Kind.EPISODE, episode_id)
        case SignalWaited(episode_id=episode_id):
            return DataOwner(Kind.EPISODE, episode_id)
        case SignalGiven(episodes=episodes, ahead=ahead, result=result):
            named = (*episodes, *ahead)
            return _whose_episode(named[0] if named else "", bytes(result), kinds)
        case DeadLettered(episode_id=episode_id, payload=payload):
            return _whose_episode(episode_id, payload, kinds)
        case _:
            return None


def _whose_finding(event: FindingEvent, kinds: Sequence[str]) -> Whose:
    finding, cause = event.finding, event.cause
    if finding.subject_kind in kinds and finding.subject_id:
        return subject_text(finding.subject_kind, finding.subject_id)
    raised_by = finding.raised_by_episode_id
    return DataOwner(Kind.EPISODE, cause.episode_id if isinstance(cause, Cause) else raised_by)


def _whose_episode(episode_id: str, data: bytes, kinds: Sequence[str]) -> Whose:
    """Return the episode that is named, or whose JSON is."""
    return DataOwner(Kind.EPISODE, episode_id) if episode_id else _whose_bytes(data, kinds)


def _whose_trigger(trigger: Trigger, kind: str, value: str, kinds: Sequence[str]) -> Whose:
    if kind in kinds and value:
        return subject_text(kind, value)
    if subject := subject_in(trigger.payload, kinds):
        return subject
    match trigger:
        case EpisodeTrigger(parent_id=parent_id):
            return DataOwner(Kind.EPISODE, parent_id)
        case WorkflowTrigger(workflow_instance_id=instance_id):
            return DataOwner(Kind.WORKFLOW, instance_id)
        case _:
            return None


def _owners_in(payload: JsonObject) -> Sequence[DataOwner]:
    """Return the episode, the instance or the finding that a public event is about."""
    found = payload.get("finding")
    levels = [payload, found] if isinstance(found, dict) else [payload]
    return [
        DataOwner(kind, value)
        for name, kind in _OWNERS.items()
        for level in levels
        if isinstance(value := level.get(name), str) and value
    ]


def _whose_bytes(data: bytes, kinds: Sequence[str]) -> Whose:
    try:
        payload: object = msgspec.json.decode(data)
    except UNDECODABLE:
        return None
    found = whose_payload(payload, kinds) if isinstance(payload, dict) else ()
    return found[0] if found else None

"""The definition aggregate: applied and disabled revisions; and the diff of two of them. Pure.

    (nothing) ──applied──▶ in effect ◀──applied── disabled
                               └──────disabled────▶

`difference` returns lines for people. Omitted options count as defaults; objects in a list that all
have an id, such as the steps of a workflow, are compared by it:

    + expectations.disk.priority: 5
    ~ expectations.disk.cooldown_s: 60 → 120
    - expectations.memory.strategy.ref: "checks:Memory"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from engine.app.conditions import is_same
from engine.errors import Refused
from streams.json import ABSENT, NOTHING, JsonObject
from streams.model.events.definitions import (
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionEvent,
    DefinitionKind,
)

VALUE_CHARS_MAX: Final = 120
"""Longest value in a line; the rest is cut."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The fold of a definition's events."""

    revision: int = 0
    """The last applied one; 0: none."""
    body: msgspec.Raw = NOTHING
    holds: bool = False


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """Make this body the newest revision."""

    kind: DefinitionKind
    id: str
    body: msgspec.Raw
    by: str
    reason: str = ""
    seen: int | None = None
    """The revision that the person has seen, or the change is refused; None: any."""


class Disable(msgspec.Struct, frozen=True, kw_only=True):
    """Disable the newest revision."""

    kind: DefinitionKind
    id: str
    by: str
    reason: str = ""
    seen: int | None = None


Command: TypeAlias = Apply | Disable

UNDEFINED = Definition()


def decide(definition: Definition, command: Command) -> DefinitionEvent | None:
    """Return the event of `command`; None: nothing changes. Raises `Refused` if it cannot."""
    if isinstance(command, Apply) and definition.holds and definition.body == command.body:
        return None
    # guard: changed-definition-looked-again
    if command.seen is not None and command.seen != definition.revision:
        found, seen = definition.revision, command.seen
        raise Refused(f"it is at revision {found} by now, not {seen}; look again")
    match command:
        case Apply(kind=kind, id=id_, body=body, by=by, reason=reason):
            revision = definition.revision + 1
            return DefinitionApplied(
                kind=kind, id=id_, revision=revision, body=body, by=by, reason=reason
            )
        case Disable() if not definition.revision:
            raise Refused(f"there is no {command.kind.value} {command.id!r}")
        case Disable() if not definition.holds:
            return None
        case Disable(kind=kind, id=id_, by=by, reason=reason):
            revision = definition.revision
            return DefinitionDisabled(kind=kind, id=id_, revision=revision, by=by, reason=reason)


def evolve(definition: Definition, event: DefinitionEvent) -> Definition:
    """Return `definition` after `event`."""
    match event:
        case DefinitionApplied(revision=revision, body=body):
            return Definition(revision=revision, body=body, holds=True)
        case DefinitionDisabled():
            return replace(definition, holds=False)


def fold(events: Iterable[DefinitionEvent]) -> Definition:
    """Return the state after all of a definition's `events`, oldest first."""
    definition = UNDEFINED
    for event in events:
        definition = evolve(definition, event)
    return definition


def difference(old: JsonObject | None, new: JsonObject | None) -> list[str]:
    """Return the lines for two canonical definitions, by path; None: there is none."""
    before, after = dict(_paths(old)), dict(_paths(new))
    lines = (
        _line(path, before.get(path, ABSENT), after.get(path, ABSENT))
        for path in sorted(before.keys() | after.keys())
    )
    return [line for line in lines if line]


def _paths(definition: JsonObject | None) -> Iterator[tuple[str, object]]:
    return _leaves(definition, "") if definition else iter(())


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield every value that contains no others, with its path."""
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from _leaves(item, f"{path}.{key}" if path else key)
        case list() if (by_id := _by_id(value)) is not None:
            yield path, list(by_id)
            yield from _leaves(by_id, path)
        case list() if any(isinstance(item, dict) for item in value):
            for index, item in enumerate(value):
                yield from _leaves(item, f"{path}.{index}")
        case _:
            yield path, value


def _by_id(items: list[object]) -> JsonObject | None:
    """Return the objects of a list by their ids; None: an id is missing or repeated."""
    by_id: JsonObject = {}
    for item in items:
        match item:
            case {"id": str(id_), **rest} if id_ not in by_id:
                by_id[id_] = rest
            case _:
                return None
    return by_id or None


def _line(path: str, before: object, after: object) -> str:
    if before is ABSENT:
        return f"+ {path}: {_shown(after)}"
    if after is ABSENT:
        return f"- {path}: {_shown(before)}"
    return "" if is_same(before, after) else f"~ {path}: {_shown(before)} → {_shown(after)}"


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 1]}…"

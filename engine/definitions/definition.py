"""The life of a definition: what holds, and whether it may be changed. Pure.

    (nothing) ──applied──▶ holds ◀──applied── disabled
                             └────disabled────▶

Whoever changes a definition may say which revision they have looked at; if somebody else has
changed it since, nothing happens. The append's version sees to the rest: of two who decide at the
same time, one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from engine.errors import Refused
from streams.json import NOTHING
from streams.model.events.definitions import (
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionEvent,
    DefinitionKind,
)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What a definition's events add up to."""

    revision: int = 0
    """Of the one that was applied last; 0: none ever was."""
    body: msgspec.Raw = NOTHING
    holds: bool = False


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """It is to hold as the body says."""

    kind: DefinitionKind
    id: str
    body: msgspec.Raw
    by: str
    reason: str = ""
    seen: int | None = None
    """The revision that whoever wants it has looked at; None: whatever there is."""


class Disable(msgspec.Struct, frozen=True, kw_only=True):
    """It is to hold no longer."""

    kind: DefinitionKind
    id: str
    by: str
    reason: str = ""
    seen: int | None = None


Command: TypeAlias = Apply | Disable

UNDEFINED = Definition()
"""What nobody has defined."""


def decide(definition: Definition, command: Command) -> DefinitionEvent | None:
    """Return what happens if `command` is put to a definition; None: it is so already.

    Raises:
        Refused: it has changed since it was looked at, or there is nothing to disable.
    """
    if isinstance(command, Apply) and definition.holds and definition.body == command.body:
        return None
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
    """Return `definition` after `event`. Never refuses: it has already happened."""
    match event:
        case DefinitionApplied(revision=revision, body=body):
            return Definition(revision=revision, body=body, holds=True)
        case DefinitionDisabled():
            return replace(definition, holds=False)


def fold(events: Iterable[DefinitionEvent]) -> Definition:
    """Return what all of a definition's `events` add up to, oldest first."""
    definition = UNDEFINED
    for event in events:
        definition = evolve(definition, event)
    return definition

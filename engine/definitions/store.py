"""Reads and writes definitions: the journal, and a copy of the current revision in a bucket.

A change goes to the journal first and then to the bucket that nodes watch. After a crash in
between, nodes have the old revision until the same or another change is applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import uuid4

import msgspec

from engine.definitions.definition import Apply, Command, Definition, Disable, decide, fold
from engine.errors import BadRequest
from engine.runtime.store import Store
from engine.validation import check_cause
from streams.clock import SystemClock
from streams.errors import RevisionConflict, Unavailable
from streams.json import NOTHING
from streams.model.definitions import (
    RegisteredDefinition,
    decode_registered,
    definition_id,
    definition_key,
    encode_registered,
)
from streams.model.events import (
    DefinitionApplied,
    DefinitionDisabled,
    DefinitionEvent,
    DefinitionKind,
)
from streams.ports.all import Ports
from streams.ports.log import Recorded

TRIES_MAX: Final = 8
"""Most tries to write the copy while others write theirs."""

BODY_BYTES_MAX: Final = 256 * 1024
"""Longest definition, as canonical JSON: as long as the file that it may come from."""

_CLOCK: Final = SystemClock()


class DefinitionChange(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a change of a definition."""

    registered: RegisteredDefinition
    """As it is now."""
    happened: bool
    """Whether anything changed."""


class DefinitionCommit(msgspec.Struct, frozen=True, kw_only=True):
    """One change in a definition's history."""

    event: DefinitionEvent
    record: Recorded


async def apply_definition(
    ports: Ports,
    kind: DefinitionKind,
    id_: str,
    body: msgspec.Raw,
    *,
    by: str,
    reason: str = "",
    seen: int | None = None,
) -> DefinitionChange:
    """Put a definition into effect. Doing so again changes nothing.

    Nodes load it within moments. Open episodes and instances continue as they began. `body` is the
    checked definition in its canonical form.

    Args:
        by: who applies it: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.
        seen: the revision that this person has seen, 0 for none; None: any.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        BadName: the id can name nothing of this kind.
        Refused: others have changed it since `seen`.
        Unavailable: the log is away. It may be in effect, and nodes may lack it; apply it again.
    """
    if len(bytes(body)) > BODY_BYTES_MAX:
        problem = f"{len(bytes(body)):,} bytes, the limit is {BODY_BYTES_MAX:,}"
        raise BadRequest(field="definition", problem=problem)
    _check(by=by, reason=reason)
    return await _change(
        ports, Apply(kind=kind, id=id_, body=body, by=by, reason=reason, seen=seen)
    )


async def disable_definition(
    ports: Ports,
    kind: DefinitionKind,
    id_: str,
    *,
    by: str,
    reason: str = "",
    seen: int | None = None,
) -> DefinitionChange:
    """Take a definition out of effect until it is applied again; errors as `apply_definition`."""
    _check(by=by, reason=reason)
    return await _change(ports, Disable(kind=kind, id=id_, by=by, reason=reason, seen=seen))


async def read_definition(ports: Ports, kind: DefinitionKind, id_: str) -> Definition:
    """Return a definition as its journal has it; revision 0: it never existed."""
    return fold(each.event for each in await definition_history(ports, kind, id_))


async def definition_history(
    ports: Ports, kind: DefinitionKind, id_: str
) -> Sequence[DefinitionCommit]:
    """Return all changes of a definition, oldest first."""
    records = await ports.log.read(ports.stack.definition(definition_id(kind, id_)))
    return list(_commits(records))


async def body_of(
    ports: Ports, kind: DefinitionKind, id_: str, revision: int
) -> msgspec.Raw | None:
    """Return a definition as it was applied as `revision`; None: it never was."""
    for chapter in await definition_history(ports, kind, id_):
        match chapter.event:
            case DefinitionApplied(revision=number, body=body) if number == revision:
                return body
            case _:
                continue
    return None


def _check(*, by: str, reason: str) -> None:
    check_cause(by, reason)


async def _change(ports: Ports, command: Command) -> DefinitionChange:
    def rule(definition: Definition, _: datetime) -> Sequence[DefinitionEvent]:
        event = decide(definition, command)
        return () if event is None else (event,)

    store = Store[Definition, DefinitionEvent](ports.log, _CLOCK, _folded)
    subject = ports.stack.definition(definition_id(command.kind, command.id))
    changed = await store.change(subject, rule, id=f"define.{uuid4().hex}")
    registered = _registered(command, changed.after.state, seq=changed.after.version)
    await _copy(ports, registered)
    return DefinitionChange(registered=registered, happened=bool(changed.events))


def _folded(records: Sequence[Recorded]) -> Definition:
    return fold(each.event for each in _commits(records))


def _commits(records: Sequence[Recorded]) -> Iterable[DefinitionCommit]:
    for record in records:
        for event in record.commit.events:
            if isinstance(event, DefinitionApplied | DefinitionDisabled):
                yield DefinitionCommit(event=event, record=record)


def _registered(command: Command, definition: Definition, *, seq: int) -> RegisteredDefinition:
    return RegisteredDefinition(
        kind=command.kind,
        id=command.id,
        revision=definition.revision,
        seq=seq,
        body=definition.body if definition.holds else NOTHING,
    )


async def _copy(ports: Ports, registered: RegisteredDefinition) -> None:
    """Write `registered`, even if it is there: nodes that have failed to make it then try again."""
    key, data = definition_key(registered.kind, registered.id), encode_registered(registered)
    for _ in range(TRIES_MAX):
        stands = await ports.registry.get(key)
        said = None if stands is None or stands.value is None else decode_registered(stands.value)
        if said is not None and said.is_newer_than(registered):  # guard: reapplied-told-again
            return
        try:
            # guard: copy-replaced-by-seer
            await ports.registry.put(key, data, after=stands.revision if stands else 0)
        except RevisionConflict:
            continue
        return
    raise Unavailable(key, detail="others change it at this time")

"""Word from outside that something has come about, for whichever episodes wait for it. Pure.

Any program may publish the domain event `wait.resolved`:

    {"ref": "payment:42", "result": {"paid": true}, "by": "billing"}

`ref` is what the episodes wait for by that name, `result` any JSON value for their strategies
(`null` without one), and `by` who says so, for people (the event's name without one).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from engine import state
from engine.actions import REF_CHARS_MAX
from engine.errors import BadRequest, Unencodable
from engine.fields import BY_CHARS_MAX, check_text
from streams.commands import Resolve
from streams.json import NOTHING, UNDECODABLE
from streams.world import DomainEvent

RESOLVED: Final = "wait.resolved"
"""Name of the domain event."""

_MARK_BYTES: Final = 16
"""Of the hash of an event's id in that of the answer."""


class WaitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry says of an episode that waits for word from outside."""

    actor_id: str
    episode_id: str
    ref: str
    """In full; its key may hold a hash."""


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says has come about."""

    id: str
    """Said again, it is the same word."""
    ref: str
    by: str
    result: msgspec.Raw = NOTHING


def word(id_: str, ref: object, result: object, by: object) -> Word:
    """Return what somebody says.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    check_text("ref", ref, least=1, most=REF_CHARS_MAX)
    check_text("by", by, least=1, most=BY_CHARS_MAX)
    try:
        kept = state.encode(result, what="result")
    except Unencodable as error:
        raise BadRequest(field="result", problem=str(error)) from error
    return Word(id=id_, ref=str(ref), by=str(by), result=kept)


def word_in(event: DomainEvent) -> Word:
    """Return what the event `wait.resolved` says. An event that comes again says the same.

    Raises:
        BadRequest: it says something impossible; the error names the field.
    """
    said = event.payload
    id_ = blake2b(event.id.encode(), digest_size=_MARK_BYTES).hexdigest()
    return word(f"event.{id_}", said.get("ref"), said.get("result"), said.get("by", RESOLVED))


def entry_in(value: bytes) -> WaitEntry | None:
    """Return what an entry of the registry says; None if this version cannot read it."""
    try:
        return msgspec.json.decode(value, type=WaitEntry)
    except UNDECODABLE:
        return None


def command_for(said: Word, entry: WaitEntry) -> Resolve:
    """Return the command that brings `said` to an episode that waits for it."""
    return Resolve(
        actor_id=entry.actor_id,
        episode_id=entry.episode_id,
        id=said.id,
        ref=said.ref,
        by=said.by,
        result=said.result,
    )

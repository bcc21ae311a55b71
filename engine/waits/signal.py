"""Word from outside that something has come about, for whichever episodes wait for it. Pure.

Any program may publish the domain event `wait.resolved`:

    {"ref": "payment:42", "result": {"paid": true}, "by": "billing"}

`ref` is what the episodes wait for by that name, `result` any JSON value for their strategies
(`null` without one), and `by` who says so, for people (the event's name without one).

An episode that waits can be found by an entry in the registry, which is made a moment after it has
begun to wait, or much later if its node dies in between. So word is kept for a while, where an
episode looks for it once it can be found: whichever of the two comes second sees the other.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

import msgspec

from engine.app import context
from engine.app.actions import REF_CHARS_MAX
from engine.errors import BadRequest, Unencodable
from engine.validation import BY_CHARS_MAX, check_text
from streams.json import NOTHING, UNDECODABLE, JsonObject, raw
from streams.model.commands import Resolve
from streams.ports.domain_events import DomainEvent

RESOLVED: Final = "wait.resolved"
"""Name of the domain event."""

KEPT_S: Final = 3_600
"""How long word is kept, in seconds: as long as a command that no node can follow is tried."""

LOOK_S: Final = 2.0
"""First wait before it is looked again who waits for word, in seconds: longer than any replica of
the registry lags."""

CLOCKS_S: Final = 5.0
"""How much sooner word may seem to be given than an episode has begun to wait which it is for, in
seconds: when it began is said by the clock of a node, and when word was given by the server's."""

_MARK_BYTES: Final = 16
"""Of the hash of an event's id in that of the answer."""


class WaitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What the registry says of an episode that waits for word from outside."""

    actor_id: str
    episode_id: str
    ref: str
    """In full; its key may hold a hash."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says has come about."""

    id: str
    """Said again, it is the same word."""
    ref: str
    by: str
    result: msgspec.Raw = NOTHING


class KeptSignal(msgspec.Struct, frozen=True, kw_only=True):
    """Word that is kept for those who may not have been found when it was given."""

    signal: Signal = msgspec.field(name="word")
    at: datetime
    """When it was given, by the server's clock."""


class PutBy(msgspec.Struct, frozen=True, kw_only=True):
    """Word that nobody has waited for so far: the payload of the timer that has it looked at."""

    kept: KeptSignal
    seq: int
    """Of the event that says it, on the events stream."""


def look_at(kept: KeptSignal, *, after: datetime) -> datetime | None:
    """Return when to look again who waits for word; None: it has been looked at for long enough.

    Each wait is as long as all those before: twelve looks in an hour.
    """
    age = after - kept.at
    if age >= timedelta(seconds=KEPT_S):
        return None
    wait = max(age, timedelta(seconds=LOOK_S))
    return min(after + wait, kept.at + timedelta(seconds=KEPT_S))


def put_by_in(payload: JsonObject) -> PutBy | None:
    """Return what the timer of such word says; None if this version cannot read it."""
    try:
        return msgspec.json.decode(bytes(raw(payload)), type=PutBy)
    except UNDECODABLE:
        return None


def signal(id_: str, ref: object, result: object, by: object) -> Signal:
    """Return what somebody says.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    check_text("ref", ref, least=1, most=REF_CHARS_MAX)
    check_text("by", by, least=1, most=BY_CHARS_MAX)
    try:
        kept = context.encode(result, what="result")
    except Unencodable as error:
        raise BadRequest(field="result", problem=str(error)) from error
    return Signal(id=id_, ref=str(ref), by=str(by), result=kept)


def word_in(event: DomainEvent) -> Signal:
    """Return what the event `wait.resolved` says. An event that comes again says the same.

    Raises:
        BadRequest: it says something impossible; the error names the field.
    """
    said = event.payload
    id_ = blake2b(event.id.encode(), digest_size=_MARK_BYTES).hexdigest()
    return signal(f"event.{id_}", said.get("ref"), said.get("result"), said.get("by", RESOLVED))


def entry_in(value: bytes) -> WaitEntry | None:
    """Return what an entry of the registry says; None if this version cannot read it."""
    try:
        return msgspec.json.decode(value, type=WaitEntry)
    except UNDECODABLE:
        return None


def is_newer(value: bytes, *, than: datetime) -> bool:
    """Return whether what is kept, if this version can read it, was given at `than` or later."""
    kept = _kept_in(value)
    return kept is not None and kept.at >= than


def kept_for(value: bytes, ref: str) -> KeptSignal | None:
    """Return the word that is kept for those who wait for `ref`; None: there is none."""
    kept = _kept_in(value)
    return kept if kept is not None and kept.signal.ref == ref else None


def may_be_missed(kept: KeptSignal, *, since: datetime) -> bool:
    """Return whether word may have been given when an episode waited, and could not be found."""
    return kept.at + timedelta(seconds=CLOCKS_S) >= since


def command_for(said: Signal, entry: WaitEntry) -> Resolve:
    """Return the command that brings `said` to an episode that waits for it."""
    return Resolve(
        actor_id=entry.actor_id,
        episode_id=entry.episode_id,
        id=said.id,
        ref=said.ref,
        by=said.by,
        result=said.result,
    )


def _kept_in(value: bytes) -> KeptSignal | None:
    """Return what is kept; None if this version cannot read it."""
    try:
        return msgspec.json.decode(value, type=KeptSignal)
    except UNDECODABLE:
        return None

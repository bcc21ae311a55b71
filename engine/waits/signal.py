"""Signals from outside to the episodes that wait for them, as data. Pure.

Any program may publish the domain event `wait.resolved`:

    {"ref": "payment:42", "result": {"paid": true}, "by": "billing"}

`ref` is what the episodes wait for, `result` any JSON value for their strategies (default `null`),
and `by` the sender, for people (default: the event's name).

A waiting episode is found by an entry in a bucket, which is written a moment after the wait began,
or much later if the node dies in between. So a signal is stored for a while, and an episode looks
for it after its entry is written: whichever of the two comes second sees the other.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Final

import msgspec

from engine import validation
from engine.app.actions import REF_CHARS_MAX
from engine.errors import BadRequest, Unencodable
from engine.validation import check_cause, check_text
from streams.json import NOTHING, UNDECODABLE, JsonObject, raw
from streams.model.commands import Resolve
from streams.ports.domain_events import DomainEvent

RESOLVED: Final = "wait.resolved"
"""Name of the domain event."""

KEPT_S: Final = 3_600
"""How long a signal is stored, in seconds: as long as a command without a node is retried."""

LOOK_S: Final = 2.0
"""First pause before waiting episodes are looked up again, in seconds: longer than any replica of
the bucket lags."""

CLOCKS_S: Final = 5.0
"""Tolerance for clocks, in seconds: the start of a wait has the time of a node, a signal that of
the server."""

_MARK_BYTES: Final = 16
"""Length of the hash of an event's id in the answer's."""


class WaitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of an episode that waits for a signal."""

    actor_id: str
    episode_id: str
    ref: str
    """In full; the key may have a hash."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal."""

    id: str
    """The same for a repeated signal."""
    ref: str
    by: str
    result: msgspec.Raw = NOTHING


class KeptSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A stored signal, for episodes that could not be found when it came."""

    signal: Signal = msgspec.field(name="word")
    at: datetime
    """When it came, by the server's clock."""


class PutBy(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of the timer that looks for waiting episodes again."""

    kept: KeptSignal
    seq: int
    """Of the event, on the events stream."""


def look_at(kept: KeptSignal, *, after: datetime) -> datetime | None:
    """Return when to look again, after as long as so far (12 times in an hour); None: no more."""
    age = after - kept.at
    if age >= timedelta(seconds=KEPT_S):
        return None
    wait = max(age, timedelta(seconds=LOOK_S))
    return min(after + wait, kept.at + timedelta(seconds=KEPT_S))


def retry_in(payload: JsonObject) -> PutBy | None:
    """Return the payload of such a timer; None if this version cannot read it."""
    try:
        return msgspec.json.decode(bytes(raw(payload)), type=PutBy)
    except UNDECODABLE:
        return None


def signal(id_: str, ref: object, result: object, by: object) -> Signal:
    """Return a signal; `BadRequest` names an impossible field."""
    check_text("ref", ref, least=1, most=REF_CHARS_MAX)
    check_cause(by)
    try:
        kept = validation.encode(result, what="result")
    except Unencodable as error:
        raise BadRequest(field="result", problem=str(error)) from error
    return Signal(id=id_, ref=str(ref), by=str(by), result=kept)


def signal_in(event: DomainEvent) -> Signal:
    """Return the signal in the event `wait.resolved`; the same if the event comes again."""
    said = event.payload
    id_ = blake2b(event.id.encode(), digest_size=_MARK_BYTES).hexdigest()
    return signal(f"event.{id_}", said.get("ref"), said.get("result"), said.get("by", RESOLVED))


def entry_in(value: bytes) -> WaitEntry | None:
    """Return the content of an entry; None if this version cannot read it."""
    try:
        return msgspec.json.decode(value, type=WaitEntry)
    except UNDECODABLE:
        return None


def is_newer(value: bytes, *, than: datetime) -> bool:
    """Return whether a stored signal, if readable, came at `than` or later."""
    kept = _kept_in(value)
    return kept is not None and kept.at >= than


def kept_for(value: bytes, ref: str) -> KeptSignal | None:
    """Return the stored signal for `ref`; None: there is none."""
    kept = _kept_in(value)
    return kept if kept is not None and kept.signal.ref == ref else None


def may_be_missed(kept: KeptSignal, *, since: datetime) -> bool:
    """Return whether a signal may have come while an episode waited and had no entry."""
    return kept.at + timedelta(seconds=CLOCKS_S) >= since


def command_for(said: Signal, entry: WaitEntry) -> Resolve:
    """Return the command that brings a signal to an episode."""
    return Resolve(
        actor_id=entry.actor_id,
        episode_id=entry.episode_id,
        id=said.id,
        ref=said.ref,
        by=said.by,
        result=said.result,
    )


def _kept_in(value: bytes) -> KeptSignal | None:
    try:
        return msgspec.json.decode(value, type=KeptSignal)
    except UNDECODABLE:
        return None

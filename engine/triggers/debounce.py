"""Debounce: of the events about one subject, the newest fires after a silence. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from engine.app.actor import Expectation
from streams.json import UNDECODABLE, JsonObject
from streams.ports.domain_events import DomainEvent

PURPOSE: Final = "debounce"


class PendingDebounce(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of a debounce timer."""

    expectation: str
    event: DomainEvent
    """The newest one."""
    since: datetime
    """When the first event came, by a node's clock."""
    coalesced: int = 0
    """How many events it replaced since then."""


class Rearm(msgspec.Struct, frozen=True):
    """Arm the timer with this payload, for this time."""

    debounced: PendingDebounce
    due_at: datetime


def hold(
    expectation: Expectation,
    happened: DomainEvent,
    before: Rearm | None,
    *,
    now: datetime,
    is_repeat: bool = False,
) -> Rearm | None:
    """Return the timer after `happened`; None: it stays."""
    # An older event is only counted; a repeated one may be counted already.
    # guard: newest-event-held
    if before is not None and not is_newer(happened, before.debounced.event):
        is_same = not is_newer(before.debounced.event, happened)
        # guard: passed-over-counted
        return None if is_repeat or is_same else Rearm(_one_more(before.debounced), before.due_at)
    now = max(now, happened.at)  # A slow clock must not make the wait short.
    since = before.debounced.since if before else now  # guard: calm-since-first-event
    due_at = now + timedelta(seconds=expectation.debounce_s)
    if expectation.max_wait_s:  # guard: max-wait-kept
        due_at = min(due_at, since + timedelta(seconds=expectation.max_wait_s))
    coalesced = before.debounced.coalesced + 1 if before else 0
    debounced = PendingDebounce(
        expectation=expectation.name, event=happened, since=since, coalesced=coalesced
    )
    return Rearm(debounced, due_at)


def _one_more(debounced: PendingDebounce) -> PendingDebounce:
    return msgspec.structs.replace(debounced, coalesced=debounced.coalesced + 1)


def is_newer(one: DomainEvent, other: DomainEvent) -> bool:
    """Return whether `one` was stored after `other`."""
    return (one.at, one.seq) > (other.at, other.seq)


def payload_of(debounced: PendingDebounce) -> JsonObject:
    """Return the payload of the timer."""
    said = msgspec.to_builtins(debounced)
    assert isinstance(said, dict), "a struct is an object"
    return said


def calming_in(payload: JsonObject) -> PendingDebounce | None:
    """Return a timer's payload, or None if it is unreadable."""
    try:
        return msgspec.convert(payload, PendingDebounce)
    except UNDECODABLE:
        return None

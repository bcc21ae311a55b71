"""The dead letter aggregate: it waits until a person requeues or discards it. Pure.

    (nothing) ──DeadLettered──▶ waiting ──DeadRequeued──▶ requeued
                                   └─────DeadDiscarded──▶ discarded

The work of a requeue is done before its `DeadRequeued`, with ids from the letter: after a crash in
between the letter still waits, and another requeue completes the work. An output's letter is also
settled when the output is retried by its key, or proposed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.errors import Rejected
from streams.model.events import DeadDiscarded, DeadEvent, DeadLettered, DeadRequeued
from streams.ports.log import Recorded


class DeadLetterStatus(StrEnum):
    """Where a dead letter is in its life."""

    UNWRITTEN = "unwritten"
    WAITING = "waiting"
    REQUEUED = "requeued"
    DISCARDED = "discarded"


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a dead letter."""

    status: DeadLetterStatus = DeadLetterStatus.UNWRITTEN
    lettered: DeadLettered | None = None
    settled: DeadRequeued | DeadDiscarded | None = None
    settled_at: datetime | None = None


UNWRITTEN: Final = DeadLetter()


def decide(letter: DeadLetter, command: DeadRequeued | DeadDiscarded) -> DeadEvent:
    """Return `command` as an event; rejected if `letter` is settled, or does not exist."""
    _waiting(letter)
    return command


def evolve(letter: DeadLetter, event: DeadEvent, *, at: datetime) -> DeadLetter:
    """Return `letter` after `event`, recorded at `at`."""
    match event:
        case DeadLettered():
            return DeadLetter(status=DeadLetterStatus.WAITING, lettered=event)
        case DeadRequeued():
            return replace(letter, status=DeadLetterStatus.REQUEUED, settled=event, settled_at=at)
        case DeadDiscarded():
            return replace(letter, status=DeadLetterStatus.DISCARDED, settled=event, settled_at=at)


def fold(records: Iterable[Recorded]) -> DeadLetter:
    """Return the state after all of a letter's `records`, oldest first."""
    letter = UNWRITTEN
    for record in records:
        for event in record.commit.events:
            if isinstance(event, DeadEvent):
                letter = evolve(letter, event, at=record.commit.at)
    return letter


def _waiting(letter: DeadLetter) -> DeadLettered:
    if letter.lettered is None:
        raise Rejected("there is no such dead letter")
    if letter.settled is not None:  # guard: dead-letter-settled-once
        when = f" at {letter.settled_at:%Y-%m-%d %H:%M:%S} UTC" if letter.settled_at else ""
        raise Rejected(f"it was {letter.status} by {letter.settled.by}{when}")
    return letter.lettered

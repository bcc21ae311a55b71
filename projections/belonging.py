"""Which events belong in which life. Pure."""

from __future__ import annotations

from typing import TypeVar, cast

from streams.errors import UnreadableEvent
from streams.model.events import LogEvent
from streams.ports.log import Recorded

T = TypeVar("T", bound=LogEvent)


def events_of(record: Recorded, known: frozenset[type[T]], *, whose: str) -> tuple[T, ...]:
    """Return the events of a commit in the life of `whose` kind of aggregate.

    Raises:
        UnreadableEvent: one of them is none of those that such a life is made of.
    """
    events = record.commit.events
    strange = set(map(type, events)) - known
    if strange:
        names = ", ".join(sorted(each.__name__ for each in strange))
        detail = f"{names} in the life of {whose}"
        raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)
    # Checked above.
    return cast("tuple[T, ...]", events)

"""What wakes an expectation: which domain events it listens to, and what an episode gets of one.

Pure. Whether an event fires is `engine.gating`'s to rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from engine.filters import Filter, filter_of
from engine.paths import ABSENT, value_at
from streams.events import EventTrigger
from streams.json import JsonObject
from streams.tokens import event_name
from streams.world import DomainEvent

ENTITY_CHARS_MAX: Final = 512
"""Most of a subject key's value that becomes the episode's subject."""

SOURCES_MAX: Final = 64
"""Most triggers of one expectation."""


class EventSource(msgspec.Struct, frozen=True):
    """Fires on domain events of certain names whose payload fits a filter."""

    names: tuple[str, ...]
    filter: Filter = {}


Sources: TypeAlias = tuple[EventSource, ...]
"""What an expectation listens to: the first one that fits fires, once per event."""

On: TypeAlias = EventSource | Sequence[EventSource]
"""The same as it is declared."""


def event(*names: str, filter: Mapping[str, object] | None = None) -> EventSource:
    """Return a trigger that fires on domain events called one of `names`.

    Args:
        names: dotted event names, such as `order.placed`.
        filter: path into the payload, such as `disk.used` (see `engine.paths`) → the value that
            must be there, a list of allowed values, or a condition such as `gt(90)`. All must
            fit; an event that lacks a value does not fire, unless `missing()` is asked for.

    Raises:
        ValueError: no name, or one that is not a dotted name; or the filter cannot work.
    """
    if not names:
        raise ValueError("event(): name at least one domain event")
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"event(): {name!r} is not the name of a domain event")  # noqa: TRY004 - as for its value
        event_name(name)
    try:
        return EventSource(names, filter_of({} if filter is None else filter))
    except ValueError as error:
        raise ValueError(f"event(): {error}") from error


def sources_of(on: On) -> Sources:
    """Return the sources that `on` means, in order, each checked.

    Raises:
        ValueError: it is no trigger and no list of triggers, or one of them cannot work.
        TypeError: the names of one are no names at all.
    """
    given: object = on
    listed = given if isinstance(given, list | tuple) else [given]
    if not 1 <= len(listed) <= SOURCES_MAX:
        raise ValueError(f"{len(listed)} triggers; give 1 to {SOURCES_MAX}")
    return tuple(map(_checked, listed))


def _checked(source: object) -> EventSource:
    if not isinstance(source, EventSource):
        raise ValueError(f"{source!r} is not a trigger; use event('some.name')")  # noqa: TRY004 - as for its value
    return event(*source.names, filter=source.filter)


def trigger_of(happened: DomainEvent, *, subject_key: str) -> EventTrigger:
    """Return what an episode gets to know of the event that fired it."""
    return EventTrigger(
        event_id=happened.id,
        event_type=happened.name,
        payload=happened.payload,
        entity_id=entity_id(happened.payload, subject_key),
        hops=happened.hops,
    )


def entity_id(payload: JsonObject, subject_key: str) -> str:
    """Return the payload's value at the path `subject_key` as text; empty if there is none."""
    value = value_at(payload, subject_key) if subject_key else ABSENT
    if value is ABSENT or value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:ENTITY_CHARS_MAX]

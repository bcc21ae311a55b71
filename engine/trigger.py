"""What wakes an expectation, and the ruling on one event. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from streams.errors import BadName
from streams.events import EventTrigger
from streams.json import JsonObject
from streams.subjects import event_name
from streams.world import HOPS_MAX, DomainEvent

ENTITY_CHARS_MAX: Final = 512
"""Most of a subject key's value that becomes the episode's subject."""


class EventSource(msgspec.Struct, frozen=True):
    """Fires on domain events of certain names whose payload fits a filter."""

    names: tuple[str, ...]
    filter: Mapping[str, object] = {}
    """Payload key → the value it must equal, or a tuple of values it must be one of."""


def event(*names: str, filter: Mapping[str, object] | None = None) -> EventSource:  # noqa: A002
    """Return a trigger that fires on domain events called one of `names`.

    Args:
        names: dotted event names, such as `order.placed`.
        filter: payload key → required value, or a list of allowed values. Every key must fit;
            an event that lacks one does not fire.

    Raises:
        ValueError: no name, or one that is not a dotted name.
    """
    if not names:
        raise ValueError("event(): name at least one domain event")
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"event(): {name!r} is not the name of a domain event")  # noqa: TRY004
        event_name(name)
    choices = (list, tuple, set, frozenset)
    return EventSource(
        names,
        {
            key: tuple(value) if isinstance(value, choices) else value
            for key, value in (filter or {}).items()
        },
    )


class Fire(msgspec.Struct, frozen=True):
    """Open an episode."""

    trigger: EventTrigger


class Refuse(msgspec.Struct, frozen=True):
    """Do nothing, and say why: a gate that is silent cannot be debugged."""

    reason: str
    """A stable class: `not_watched`, `filter`, `filter_key_missing`, `too_many_hops`."""
    detail: str = ""


Ruling: TypeAlias = Fire | Refuse


def rule(source: EventSource, happened: DomainEvent, *, subject_key: str) -> Ruling:
    """Return whether `happened` fires an expectation that listens to `source`."""
    if happened.name not in source.names:
        return Refuse("not_watched")
    if happened.hops > HOPS_MAX:
        return Refuse("too_many_hops", f"{happened.hops} of at most {HOPS_MAX}")
    refusal = _filter(source.filter, happened.payload)
    if refusal is not None:
        return refusal
    return Fire(
        EventTrigger(
            event_id=happened.id,
            event_type=happened.name,
            payload=happened.payload,
            entity_id=entity_id(happened.payload, subject_key),
            hops=happened.hops,
        )
    )


def _filter(wanted: Mapping[str, object], payload: JsonObject) -> Refuse | None:
    for key, expected in wanted.items():
        if key not in payload:
            return Refuse("filter_key_missing", key)
        allowed = expected if isinstance(expected, tuple) else (expected,)
        if not any(_equal(payload[key], value) for value in allowed):
            return Refuse("filter", key)
    return None


def _equal(found: object, wanted: object) -> bool:
    """Return whether two JSON values are the same; unlike Python's, JSON's `true` is not 1."""
    return found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def entity_id(payload: JsonObject, subject_key: str) -> str:
    """Return the payload's value under `subject_key` as text; empty without a key or a value."""
    value = payload.get(subject_key) if subject_key else None
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:ENTITY_CHARS_MAX]


def problem_of(source: object) -> str | None:
    """Return what is wrong with `source` as a trigger, or None."""
    if not isinstance(source, EventSource):
        return f"{source!r} is not a trigger; use event('some.name')"
    try:
        event(*source.names, filter=source.filter)
    except (ValueError, BadName) as error:
        return str(error)
    return None

"""What a webhook sends, and the domain events that it becomes. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from streams.errors import BadName
from streams.json import UNDECODABLE, JsonObject, is_deeper
from streams.ports.domain_events import EVENT_BYTES_MAX
from streams.public_events import PUBLIC_EVENTS
from streams.tokens import event_name
from vigil.asking.listening import SIGNAL

EVENTS_MAX: Final = 1_000
"""Most events that one delivery becomes."""

ID_CHARS_MAX: Final = 512
"""Longest id of an event, in characters."""

DEPTH_MAX: Final = 64
"""Deepest nesting of a payload."""

_NO_WORD: Final = re.compile(r"[^A-Za-z0-9_-]")

_DIGEST_BYTES: Final = 16

T = TypeVar("T")


class BadDelivery(ValueError):
    """What was sent is not what the source of the webhook sends, or no event can be made of it."""


class WebhookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent."""

    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes


class MappedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event that is to be published."""

    name: str
    payload: JsonObject
    id: str
    """What its source knows it by, so that what is sent again is no event of its own; empty: the
    source tells nothing."""


MapsDelivery: TypeAlias = Callable[[WebhookDelivery], Sequence[MappedEvent]]
"""Returns the events of a delivery; raises `BadDelivery`."""


def decoded(body: bytes, type_: type[T]) -> T:
    """Return the JSON of a body; `BadDelivery`: it is none, or of another shape."""
    try:
        return msgspec.json.decode(body, type=type_)
    except UNDECODABLE as error:
        raise BadDelivery(f"the body: {error}") from error


def object_of(body: bytes) -> JsonObject:
    """Return the JSON object that a body is."""
    found: JsonObject = decoded(body, dict[str, Any])
    return found


def as_word(text: str) -> str:
    """Return `text` as one word of an event's name: what can be in none becomes `_`."""
    return _NO_WORD.sub("_", text)  # guard: sent-name-adds-no-word


def as_name(text: str) -> str:
    """Return `text`, whose dots separate words, as the name of an event."""
    return ".".join(as_word(each) for each in text.split("."))


def as_id(*parts: str) -> str:
    """Return an id of parts; one that is too long is replaced by its digest."""
    whole = "/".join(parts)
    if len(whole) <= ID_CHARS_MAX:
        return whole
    return hashlib.blake2b(whole.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def checked(events: Sequence[MappedEvent]) -> Sequence[MappedEvent]:
    """Return `events` if each can be published; otherwise none is: the sender does not come again.

    `BadDelivery` says which cannot, and why.
    """
    if len(events) > EVENTS_MAX:
        raise BadDelivery(f"{len(events):,} events, the limit of a delivery is {EVENTS_MAX:,}")
    for number, each in enumerate(events, 1):
        if problem := _problem(each):  # guard: delivery-is-all-or-nothing
            raise BadDelivery(f"event {number}: {problem}")
    return events


def _problem(event: MappedEvent) -> str:
    try:
        event_name(event.name)
        size_bytes = len(msgspec.json.encode(event.payload))
    except (BadName, ValueError, TypeError, RecursionError) as error:
        return str(error)
    if event.name in (*PUBLIC_EVENTS, SIGNAL):  # guard: webhook-speaks-for-none
        return f"{event.name} is an event of the engine or of people, and of no webhook"
    if size_bytes > EVENT_BYTES_MAX:
        return f"{size_bytes:,} bytes, the limit of an event is {EVENT_BYTES_MAX:,}"
    if is_deeper(event.payload, levels=DEPTH_MAX):
        return f"nested deeper than {DEPTH_MAX} levels"
    return ""

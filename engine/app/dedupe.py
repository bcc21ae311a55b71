"""Episode ids from causes: the same cause always gives the same episode. Pure.

Each kind of dedupe key has its own prefix, so keys of two kinds never collide: `event:<id>`,
`payload:<hash>[@<window>]`, `value:<path>=<JSON>[@<window>]`, `own:<text>` of a user's function,
and `manual:<text>` or `dry_run:<text>` of a fire by hand. The time at which the server stored an
event selects its window, so redelivery does not change it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, assert_never
from uuid import UUID

import msgspec

from engine.errors import StrategyError
from engine.validation import problem_of_path
from streams.json import ABSENT, JsonObject, raw, value_at
from streams.ports.domain_events import DomainEvent

Window: TypeAlias = Literal["m1", "m5", "m15", "h1", "h4", "h24", "h48", "w1"]
"""A bucket of minutes, hours or weeks."""

WINDOWS: Final[Mapping[Window, timedelta]] = {
    "m1": timedelta(minutes=1),
    "m5": timedelta(minutes=5),
    "m15": timedelta(minutes=15),
    "h1": timedelta(hours=1),
    "h4": timedelta(hours=4),
    "h24": timedelta(hours=24),
    "h48": timedelta(hours=48),
    "w1": timedelta(weeks=1),
}

FIRST_WINDOW: Final = datetime(1970, 1, 5, tzinfo=UTC)
"""The start of all windows: a Monday at midnight UTC, so that a week is a calendar week."""

KEY_CHARS_MAX: Final = 512
"""Longest key that a user's function may return. The episode, its rows and its id contain it."""

VALUE_CHARS_MAX: Final = 256
"""Longest value, as JSON, that a key contains; a longer one is replaced by its hash."""


class ByEvent(msgspec.Struct, frozen=True):
    """One episode per event."""


class ByPayload(msgspec.Struct, frozen=True):
    """One episode per content, in a window."""

    paths: tuple[str, ...] = ()
    window: Window | None = None


class ByValue(msgspec.Struct, frozen=True):
    """One episode per value, in a window."""

    path: str
    window: Window | None = None


Dedupe: TypeAlias = ByEvent | ByPayload | ByValue | Callable[[DomainEvent], str]
"""What makes two events the same cause."""


def by_event() -> Dedupe:
    """Return the rule that every event is a cause of its own: one episode for each."""
    return ByEvent()


def by_payload(*paths: str, window: Window | None = None) -> Dedupe:
    """Return the rule that events with the same values at `paths` are one cause.

    Without paths the whole payload is compared. An absent value equals `null`; if all of them are
    absent, the event's id is the key. `window` limits how long; without one, for ever.
    """
    return ByPayload(paths, window)


def by_value(path: str, *, window: Window | None = None) -> Dedupe:
    """Return the rule that events with the same value at `path`, such as `order.id`, are one cause.

    An event with no value there, or `null`, is identified by its id. `window` limits how long;
    without one, for ever.
    """
    return ByValue(path, window)


def problem_of_dedupe(dedupe: object) -> str | None:
    """Return why `dedupe` cannot work, or None."""
    match dedupe:
        case ByEvent():
            return None
        case ByPayload(paths=paths, window=window):
            return _problem_of_key(paths, window)
        case ByValue(path=path, window=window):
            return _problem_of_key((path,), window)
        case _ if dedupe in (by_event, by_payload, by_value):
            return f"{getattr(dedupe, '__name__', '')} must be called, as in by_value('order.id')"
        case _ if inspect.iscoroutinefunction(dedupe):
            return f"{dedupe!r} is async; a key is made without waiting"
        case _ if callable(dedupe):
            return None
        case _:
            return f"{dedupe!r} is no rule; use by_value('order.id'), by_payload() or a function"


def _problem_of_key(paths: tuple[str, ...], window: Window | None) -> str | None:
    if problem := next(filter(None, map(problem_of_path, paths)), None):
        return problem
    if window is not None and window not in tuple(WINDOWS):
        return f"window {window!r} is not one of {', '.join(WINDOWS)}"
    return None


def event_key(event_id: str) -> str:
    """Return the dedupe key of an event that is a cause of its own."""
    return f"event:{event_id}"


def key_of(dedupe: Dedupe, event: DomainEvent) -> str:
    """Return the dedupe key of an episode that `event` opens; `StrategyError`: it can be none."""
    match dedupe:
        case ByEvent():
            return event_key(event.id)
        case ByPayload(paths=(), window=window):
            return f"payload:{_digest(event.payload)}{_bucket(window, event.at)}"
        case ByPayload(paths=paths, window=window):
            values = [_value(event.payload, path) for path in paths]
            if all(value is None for value in values):  # guard: missing-value-known-by-id
                return event_key(event.id)
            return f"payload:{_digest([paths, values])}{_bucket(window, event.at)}"
        case ByValue(path=path, window=window):
            value = _value(event.payload, path)
            if value is None:
                return event_key(event.id)
            return f"value:{path}={_spelled(value)}{_bucket(window, event.at)}"
        case _ if callable(dedupe):
            return f"own:{_checked(dedupe(event))}"
        case _:
            assert_never(dedupe)


def episode_id(
    *, stack: str, actor: str, expectation: str, dedupe_key: str, generation: int = 0
) -> str:
    """Return the episode's id: a UUIDv8 (RFC 9562) over BLAKE2b-128 of its cause.

    The parts are hashed as a JSON list, so that different lists never hash alike. Each retry by a
    person has its own `generation`.
    """
    parts = msgspec.json.encode([stack, actor, expectation, dedupe_key, generation])
    digest = bytearray(hashlib.blake2b(parts, digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80  # Version 8: the bits mean what their maker says.
    digest[8] = digest[8] & 0x3F | 0x80  # The RFC 9562 variant.
    return str(UUID(bytes=bytes(digest)))


def _value(payload: JsonObject, path: str) -> object:
    value = value_at(payload, path)
    return None if value is ABSENT else value


def _digest(value: object) -> str:
    return hashlib.blake2b(raw(value), digest_size=16).hexdigest()


def _spelled(value: object) -> str:
    text = bytes(raw(value)).decode()
    return text if len(text) <= VALUE_CHARS_MAX else f"#{_digest(value)}"


def _bucket(window: Window | None, at: datetime) -> str:
    if window is None:
        return ""
    start = at - (at - FIRST_WINDOW) % WINDOWS[window]
    return f"@{window}/{start.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _checked(key: object) -> str:
    if not isinstance(key, str):
        raise StrategyError(f"dedupe= returned a value of type {type(key).__name__}, not a text")
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise StrategyError(f"dedupe= returned {len(key):,} characters, not 1 to {KEY_CHARS_MAX}")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise StrategyError(f"dedupe= returned {key!r}, which is not Unicode text") from error
    return key

"""Fires by hand: what is asked for, as data, and the episode that it opens. Pure.

A person or a program asks an actor for an episode of one of its expectations, at once or at a
later time. The request travels as a timer, so it waits for the actor while no node runs it, and
whoever receives it opens the episode. No event is needed, and so no filter is asked.

The idempotency key is the cause: two requests with one key, to one expectation, are one episode. A
dry run is another cause than the real thing, so that one may be tried before the other.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine import dedupe
from engine.budget import COUNT_MAX, is_whole
from engine.dedupe import KEY_CHARS_MAX
from engine.errors import BadRequest
from engine.expectation import PRIORITY_MAX
from engine.overrides import problem_of_overrides
from engine.trigger import entity_id
from streams.errors import BadName
from streams.json import JsonObject, raw
from streams.timers import Timer
from streams.tokens import encode_token
from streams.tokens import name as checked_name
from streams.triggers import ManualTrigger, Mode, Overrides
from streams.world import EVENT_BYTES_MAX

PURPOSE: Final = "fire"
"""Of the timers that carry fires by hand."""

BY_CHARS_MAX: Final = 200
"""Longest name of who asks, in characters; every episode keeps it."""

REASON_CHARS_MAX: Final = 4_000
"""Longest reason, in characters."""


class Fire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request for an episode."""

    expectation: str
    requested_by: str
    """Who asks, for people: 1 to `BY_CHARS_MAX` characters."""
    key: str
    """The idempotency key: 1 to `KEY_CHARS_MAX` characters."""
    reason: str = ""
    payload: JsonObject = {}
    """What the strategy finds in its trigger, like the payload of an event."""
    priority: int = 0
    """From -`PRIORITY_MAX` to `PRIORITY_MAX`: the higher, the sooner its turn comes."""
    mode: Mode = Mode.LIVE
    overrides: Overrides | None = None
    """Of a dry run. They hold before those that the expectation declares."""
    hops: int = 0
    """How many engine-made events lie between the outside world and whoever asks."""


def fire_timer(fire: Fire, *, actor: str) -> Timer:
    """Return the timer that tells `actor` of `fire`.

    It is named after the cause, so that a request with the key of one that is pending takes its
    place, and one to another expectation does not.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    _check_name("actor", actor)
    _check(fire)
    return Timer(
        actor=actor, purpose=PURPOSE, key=_timer_key(fire), payload=msgspec.json.decode(raw(fire))
    )


def parse_fire(said: JsonObject) -> Fire:
    """Return the fire that the payload of a timer says.

    Raises:
        BadRequest: it says none that can work. Timers may come from anyone.
    """
    try:
        fire = msgspec.json.decode(raw(said), type=Fire)
    except (TypeError, ValueError) as error:
        raise BadRequest(field="fire", problem=str(error)) from error
    _check(fire)
    return fire


def manual_trigger(fire: Fire, *, subject_key: str) -> ManualTrigger:
    """Return what an episode gets to know of the `fire` that opened it."""
    return ManualTrigger(
        requested_by=fire.requested_by,
        reason=fire.reason,
        payload=fire.payload,
        entity_id=entity_id(fire.payload, subject_key),
        hops=fire.hops,
    )


def fire_dedupe_key(key: str, mode: Mode = Mode.LIVE) -> str:
    """Return the dedupe key of the episode that a fire with the idempotency key `key` opens."""
    return f"{'manual' if mode is Mode.LIVE else mode.value}:{key}"


def fired_episode_id(
    *, stack: str, actor: str, expectation: str, key: str, mode: Mode = Mode.LIVE
) -> str:
    """Return the id of the episode that a fire with the idempotency key `key` opens."""
    return dedupe.episode_id(
        stack=stack, actor=actor, expectation=expectation, dedupe_key=fire_dedupe_key(key, mode)
    )


def _timer_key(fire: Fire) -> str:
    return f"{fire.expectation}.{fire_dedupe_key(fire.key, fire.mode)}"


def _check(fire: Fire) -> None:
    _check_name("expectation", fire.expectation)
    _check_text("by", fire.requested_by, least=1, most=BY_CHARS_MAX)
    _check_text("reason", fire.reason, least=0, most=REASON_CHARS_MAX)
    _check_key(fire)
    _check_number("priority", fire.priority, least=-PRIORITY_MAX, most=PRIORITY_MAX)
    _check_number("hops", fire.hops, least=0, most=COUNT_MAX)
    _check_payload(fire.payload)
    if fire.overrides is None:
        return
    if fire.mode is Mode.LIVE:
        raise BadRequest(field="overrides", problem="only a dry run has any; ask for one")
    if problem := problem_of_overrides(fire.overrides):
        raise BadRequest(field="overrides", problem=problem)


def _check_name(field: str, value: str) -> None:
    try:
        checked_name(value, of=field)
    except (BadName, TypeError) as error:
        problem = f"{value!r} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -"
        raise BadRequest(field=field, problem=problem) from error


def _check_text(field: str, value: object, *, least: int, most: int) -> None:
    if not isinstance(value, str):
        raise BadRequest(field=field, problem=f"{value!r} is not text")
    if not least <= len(value) <= most:
        problem = f"{len(value):,} characters, not {least} to {most:,}"
        raise BadRequest(field=field, problem=problem)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(field=field, problem=f"{value!r} is not valid Unicode text") from error


def _check_key(fire: Fire) -> None:
    _check_text("key", fire.key, least=1, most=KEY_CHARS_MAX)
    try:
        encode_token(_timer_key(fire))
    except BadName as error:
        problem = "too long; of other characters than A-Z a-z 0-9 _ - it may hold fewer"
        raise BadRequest(field="key", problem=problem) from error


def _check_number(field: str, value: int, *, least: int, most: int) -> None:
    if not is_whole(value) or not least <= value <= most:
        problem = f"{value!r} is not a whole number from {least:,} to {most:,}"
        raise BadRequest(field=field, problem=problem)


def _check_payload(payload: object) -> None:
    if not isinstance(payload, dict):
        raise BadRequest(field="payload", problem=f"a {type(payload).__name__}, not a JSON object")
    try:
        size_bytes = len(bytes(raw(payload)))
    except (TypeError, ValueError) as error:
        raise BadRequest(field="payload", problem=str(error)) from error
    if size_bytes > EVENT_BYTES_MAX:
        problem = f"{size_bytes:,} bytes, the limit is {EVENT_BYTES_MAX:,}"
        raise BadRequest(field="payload", problem=problem)

"""Why an event did not fire an expectation, and what it was compared with. Pure.

Unlike all else that is written, a refusal may be lost: see `streams/ports/refusals.py`. What an
event or a declaration brings is cut, so that a refusal is short whatever they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from streams.json import raw
from streams.model.struct import Struct

SHOWN_CHARS_MAX: Final = 200
"""Longest value that a refusal holds, as JSON; of a longer one, its beginning as text."""

TICK: Final = "tick"
"""In the place of an event's name: what was refused is a tick of a schedule."""


class AgainstFilter(Struct, frozen=True, kw_only=True, tag_field="kind", tag="filter"):
    """A condition on a value of the payload."""

    path: str
    wanted: Any
    """The condition, as definitions spell it: `"/"`, `["/", "/var"]` or `{"gt": 90}`."""
    found: Any = None
    """The event's value."""
    is_missing: bool = False
    """Whether the event has no value there."""


class AgainstHops(Struct, frozen=True, kw_only=True, tag_field="kind", tag="hops"):
    """The longest chain of events that the engine makes."""

    hops: int
    hops_max: int


class AgainstCooldown(Struct, frozen=True, kw_only=True, tag_field="kind", tag="cooldown"):
    """The cooldown of the subject."""

    episode_id: str
    """The episode that began it."""
    until: datetime | None = None


class AgainstDebounce(Struct, frozen=True, kw_only=True, tag_field="kind", tag="debounce"):
    """The silence that the newest event about the subject waits for."""

    debounce_s: float
    max_wait_s: float = 0.0
    """0: without a limit."""


class AgainstBreaker(Struct, frozen=True, kw_only=True, tag_field="kind", tag="breaker"):
    """The circuit breaker."""

    status: str
    failures: tuple[str, ...] = ()
    """The episodes that opened it, the newest last."""
    until: datetime | None = None
    """When the next event may be the probe."""


class AgainstSample(Struct, frozen=True, kw_only=True, tag_field="kind", tag="sample"):
    """The share of the events that fire."""

    share: float
    """The place of the event in 0 to 1: it fires at a larger sample."""
    sample: float


class AgainstHolder(Struct, frozen=True, kw_only=True, tag_field="kind", tag="holder"):
    """The episode that holds the subject."""

    episode_id: str


class AgainstEpisode(Struct, frozen=True, kw_only=True, tag_field="kind", tag="episode"):
    """The episode that the same cause has opened before, or the instance."""

    episode_id: str = ""
    instance_id: str = ""
    dedupe_key: str


class AgainstLane(Struct, frozen=True, kw_only=True, tag_field="kind", tag="lane"):
    """The room in the actor's lane."""

    admitted: int
    """Episodes that have a turn."""
    waiting: int
    queue_max: int = 0
    """Most that may wait; 0: none."""
    overflow: str


StateComparison: TypeAlias = (
    AgainstCooldown
    | AgainstDebounce
    | AgainstBreaker
    | AgainstHolder
    | AgainstEpisode
    | AgainstLane
)
"""What the cluster remembers."""

Comparison: TypeAlias = AgainstFilter | AgainstHops | AgainstSample | StateComparison


class Refusal(Struct, frozen=True, kw_only=True):
    """One event did not fire one expectation."""

    event_id: str
    """Of a tick: its dedupe key."""
    event: str
    """The event's name; of a tick, `TICK`."""
    actor: str
    expectation: str
    subject: str = ""
    """The value of the expectation's subject key; empty: it has none."""
    at: datetime
    """When it was refused, by the node's clock."""
    node: str
    reason: str
    """A stable class, as `vigil.gate.rulings` counts it."""
    against: Comparison | None = None
    """What it was compared with; None: the reason says it all."""

    @property
    def words(self) -> str:
        """What it was compared with, for people."""
        return in_words(self)

    @property
    def why(self) -> str:
        """Its reason and its words, for people; where they begin with the reason, they alone."""
        words = self.words
        return words if words.startswith(self.reason) else f"{self.reason}: {words}"


def shown(value: object) -> object:
    """Return a JSON value as a refusal holds it: as it is, or the beginning of its JSON."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else bytes(raw(value)).decode()
    return value if len(text) <= SHOWN_CHARS_MAX else cut(text)


def cut(text: str) -> str:
    """Return as much of `text` as a refusal holds."""
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[: SHOWN_CHARS_MAX - 1]}…"


def in_words(refusal: Refusal) -> str:
    """Return why an event did not fire an expectation, in one line."""
    match refusal.against:
        case None:
            return ALONE.get(refusal.reason, refusal.reason)
        case AgainstFilter() | AgainstHops() | AgainstSample() as against:
            return _declared_in_words(against)
        case against:
            about = f"subject {refusal.subject}" if refusal.subject else "it"
            return _state_in_words(against, about, waits=refusal.reason == WAITS)


def _declared_in_words(against: AgainstFilter | AgainstHops | AgainstSample) -> str:
    match against:
        case AgainstFilter(path=path, wanted=wanted):
            return f"filter {path} {_wanted_in_words(wanted)}: {_found_in_words(against)}"
        case AgainstHops(hops=hops, hops_max=most):
            return f"it is {hops} events of the engine away from the outside, of at most {most}"
        case AgainstSample(share=share, sample=sample):
            return f"its place is {share:.4f}, and the sample is {sample:g}"


def _state_in_words(against: StateComparison, about: str, *, waits: bool) -> str:
    match against:
        case AgainstCooldown(episode_id=episode_id, until=until):
            return f"cooldown{_until(until)}, begun by episode {episode_id}"
        case AgainstDebounce(debounce_s=debounce_s):
            what = "it waits to fire" if waits else "a newer event waits to fire, or has fired"
            return f"{what}: {about} must have had no event for {debounce_s:g} s"
        case AgainstBreaker(status=status, failures=failures, until=until):
            failed = f", failed: {', '.join(failures)}" if failures else ""
            return f"circuit breaker {status.replace('_', ' ')}{_until(until)}{failed}"
        case AgainstHolder(episode_id=episode_id):
            return f"{about} is held by episode {episode_id}"
        case AgainstEpisode(episode_id=episode_id, instance_id=instance_id, dedupe_key=dedupe_key):
            what = f"instance {instance_id}" if instance_id else f"episode {episode_id}"
            return f"{what} was opened by the same cause: {dedupe_key}"
        case AgainstLane(admitted=admitted, overflow=overflow):
            waiting = f"{against.waiting} of at most {against.queue_max} wait"
            room = f"{admitted} episodes have a turn{f', {waiting}' if against.queue_max else ''}"
            return f"{room}, and the overflow is {overflow}"


WAITS: Final = "waits_for_calm"
"""Reason of a debounced event: it may still fire."""

ALONE: Final[Mapping[str, str]] = {
    "superseded": "a newer event about the subject waits to fire, or has fired",
}
"""Reasons that are compared with nothing else, in words."""

_ORDERS: Final[Mapping[str, str]] = {
    "eq": "=",
    "neq": "is not",
    "gt": ">",
    "gte": ">=",
    "lt": "<",
    "lte": "<=",
    "in": "is one of",
    "between": "is between",
}
"""Operators of conditions, in words."""


def _wanted_in_words(wanted: object) -> str:
    match wanted:
        case dict() if wanted:
            return " and ".join(_operator_in_words(name, value) for name, value in wanted.items())
        case list():
            return _operator_in_words("in", wanted)
        case _:
            return _operator_in_words("eq", wanted)


def _operator_in_words(name: str, value: object) -> str:
    if name == "exists":
        return "is there" if value else "is not there"
    return f"{_ORDERS.get(name, name)} {_value_in_words(value)}"


def _found_in_words(against: AgainstFilter) -> str:
    return f"the event has {'none' if against.is_missing else _value_in_words(against.found)}"


def _value_in_words(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and value:
        return value
    return msgspec.json.encode(value).decode()


def _until(until: datetime | None) -> str:
    return f" until {until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if until is not None else ""

"""Routes: the way that outputs of one kind take to the outside, as an app declares it. Pure.

    App(outputs={
        "pager": Webhook(url="https://pager.example/alerts"),
        "mail": Route(Email(…), retries=Retries(attempts_max=3), max_concurrent=2, rate_per_s=5),
    })

An adapter alone is a route with the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from engine.adapter import AdapterLike, OutputAdapter, as_adapter
from engine.budget import is_whole
from streams.errors import BadName
from streams.tokens import name as checked_name

NO_ADAPTER: Final = "no_adapter"
"""Error class of an output whose adapter the app here does not have."""

ATTEMPTS_MAX: Final = 100
"""Most attempts that a route may make at one output."""

RETRY_S_MAX: Final = 86_400.0
"""Longest wait between two attempts that a route may ask for, in seconds: a day."""

TIMEOUT_S_MAX: Final = 600.0
"""Longest that one attempt may take, in seconds."""

CONCURRENT_MAX: Final = 1_000
"""Most deliveries of one route at a time on a node."""

RATE_MAX: Final = 10_000.0
"""Highest rate that a route may keep to, per second."""


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often, and when, a delivery that failed for now is tried again."""

    attempts_max: int = 20
    """Attempts, the first included; the last one that fails makes the output a dead letter. The
    defaults spread them over about an hour: nine waits that double, 511 s together, and ten of
    300 s are 3,511 s at most, and no less than half of that."""
    first_s: float = 1.0
    """Wait after the first attempt, in seconds; it doubles each time. A part of each wait, up to
    half, is left off, another one for each output, so that not all come again at once."""
    most_s: float = 300.0
    """Longest such wait, in seconds."""


@dataclass(frozen=True)
class Route:
    """An adapter, and how it is to be used."""

    adapter: AdapterLike
    retries: Retries = field(default=Retries(), kw_only=True)
    timeout_s: float = field(default=30.0, kw_only=True)
    """How long one attempt may take, in seconds. Past it nobody knows whether the outside has
    accepted the output: it is tried again, with the same idempotency key."""
    max_concurrent: int = field(default=8, kw_only=True)
    """Deliveries at a time, on each node."""
    rate_per_s: float | None = field(default=None, kw_only=True)
    """Deliveries that may begin in a second, on each node; None: as many as there are."""

    @property
    def outlet(self) -> OutputAdapter:
        """Return the adapter, which `checked_routes` has made one."""
        return as_adapter(self.adapter)


Outputs: TypeAlias = Mapping[str, AdapterLike | Route]
"""What `App(outputs=…)` takes: name → adapter, or a route to one."""


def checked_routes(outputs: object) -> Mapping[str, Route]:
    """Return what `App(outputs=…)` was given, every value as a route with an `OutputAdapter`.

    Raises:
        ValueError, TypeError: something cannot work; the message says what.
    """
    if not isinstance(outputs, Mapping):
        raise TypeError(f"{outputs!r} is not a dict of name to adapter")
    return {_name(name): _route(name, value) for name, value in outputs.items()}


def missing(adapter: str) -> str:
    """Return what people are told of an adapter that the app does not have."""
    return f"the app has no output {adapter!r}"


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r}: a name, please")
    try:
        return checked_name(name, of="output")
    except BadName as error:
        raise ValueError(str(error)) from error


def _route(name: str, value: object) -> Route:
    route = value if isinstance(value, Route) else None
    try:
        adapter = as_adapter(route.adapter if route else value)
    except TypeError as error:
        raise ValueError(f"{name!r}: {error}") from error
    checked = replace(route, adapter=adapter) if route else Route(adapter)
    if problem := problem_of_route(checked):
        raise ValueError(f"{name!r}: {problem}")
    return checked


def problem_of_route(route: Route) -> str | None:
    """Return why `route` cannot work, or None."""
    if not isinstance(route.retries, Retries):
        return f"retries: {route.retries!r} is not Retries(…)"
    return (
        _problem_of_retries(route.retries)
        or _within("timeout_s", route.timeout_s, most=TIMEOUT_S_MAX)
        or _count("max_concurrent", route.max_concurrent, most=CONCURRENT_MAX)
        or (
            None
            if route.rate_per_s is None
            else _within("rate_per_s", route.rate_per_s, most=RATE_MAX)
        )
    )


def _problem_of_retries(retries: Retries) -> str | None:
    problem = (
        _count("attempts_max", retries.attempts_max, most=ATTEMPTS_MAX)
        or _within("first_s", retries.first_s, most=RETRY_S_MAX)
        or _within("most_s", retries.most_s, most=RETRY_S_MAX)
    )
    if problem is None and retries.most_s < retries.first_s:
        return f"most_s={retries.most_s:g} is less than first_s={retries.first_s:g}"
    return problem


def _count(field_: str, value: object, *, most: int) -> str | None:
    if is_whole(value) and isinstance(value, int) and 1 <= value <= most:
        return None
    return f"{field_}: {value!r} is not a whole number from 1 to {most:,}"


def _within(field_: str, value: object, *, most: float) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(value, int | float) and 0 < value <= most:
        return None
    return f"{field_}: {value!r} is not a number over 0 and up to {most:,g}"

"""What a model answers while it answers, piece by piece; and in which order pieces belong. Pure.

Deltas are for people who look on. The journal has the whole answer once it is there, so any of them
may be lost: see `streams/ports/deltas.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from streams.model.struct import Struct

DELTA: Final = "delta"
"""The `kind` of a delta among the rows of a log."""

NO_DELTAS: Final = "no_deltas"
"""The `kind` of a row that says why none are heard."""


class DeltaEnd(StrEnum):
    """How a request has ended."""

    DONE = "done"
    FAILED = "failed"
    """Or was cut off. It may be made again, at a path or in an attempt of its own."""


class Delta(Struct, frozen=True, kw_only=True):
    """The next piece of the answer to one request of an agent."""

    path: str
    """Of the request, as its step has it, such as `1.m2.1`."""
    attempt: int
    """Which attempt at the episode makes the request, from 1."""
    place: int
    """Which delta of this request in this attempt it is, from 0 without gaps."""
    text: str = ""
    """What the model goes on with."""
    tools: tuple[str, ...] = ()
    """The tools of calls that begin after that text."""
    end: DeltaEnd | None = None
    """Set by the last one."""


class PlacedDelta(NamedTuple):
    """A delta, and how it continues those before it."""

    delta: Delta
    missing: int
    """How many were lost right before it."""
    is_anew: bool
    """Whether it replaces what came of an earlier attempt, which has died."""


class DeltaOrder:
    """Puts the deltas of one episode in order, as they come."""

    def __init__(self) -> None:
        self._newest: dict[str, Delta] = {}
        """By path; requests that have ended stay, and an episode has few."""

    @property
    def newest(self) -> Mapping[str, Delta]:
        """The newest delta of each request, by its path."""
        return self._newest

    def place(self, delta: Delta) -> PlacedDelta | None:
        """Return how `delta` continues what came; None: it is of an attempt that was given up."""
        last = self._newest.get(delta.path)
        # guard: dead-attempt-not-shown
        if last is not None and delta.attempt < last.attempt:
            return None
        is_anew = last is not None and delta.attempt > last.attempt
        follows = last.place + 1 if last is not None and not is_anew else 0
        if delta.place < follows:
            return None
        self._newest[delta.path] = delta
        return PlacedDelta(delta, delta.place - follows, is_anew)

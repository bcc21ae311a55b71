"""Up to where a journal may be purged, and what keeps it from more. Pure.

The floor is the first sequence that stays. Whatever needs the journal has a bound of its own, and
the floor is the lowest of them. A bound that nobody could tell is one at the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from engine.archive.lives import OpenLife
from streams.clock import SKEW_S
from streams.ports.log import Recorded

SKEW: Final = timedelta(seconds=SKEW_S)


class FloorHold(StrEnum):
    """Why a journal is kept from a sequence on. Of equal bounds the first here is told."""

    OPEN = "open"
    """An episode, output or instance is open since then."""
    ELSEWHERE = "open_elsewhere"
    """One is in another partition, and may ask for what happened here since; or one is held there,
    and what came of it may be here."""
    LEGAL = "hold"
    """A person wants it kept."""
    AGE = "age"
    """The rest is too young to be archived."""
    ROWS = "rows"
    """The tables do not have more yet."""
    REACTOR = "reactor"
    """What follows from something old enough is not published yet."""


_ORDER: Final = [*FloorHold]


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """What must stay in a journal from a sequence on, and why."""

    seq: int
    hold: FloorHold
    about: str = ""
    """The subject of an aggregate, for people."""
    since: datetime | None = None

    @property
    def words(self) -> str:
        """What holds, in words."""
        about = self.about.partition(".")[2]
        match self.hold:
            case FloorHold.OPEN:
                return f"open: {about}"
            case FloorHold.ELSEWHERE:
                return "open or held in another partition"
            case FloorHold.LEGAL:
                return f"kept by a person: {about}"
            case FloorHold.ROWS:
                return "the tables"
            case FloorHold.REACTOR:
                return "the reactor"
            case FloorHold.AGE:
                return "age"


def floor_of(bounds: Iterable[Bound]) -> Bound:
    """Return the lowest of the bounds, at least one."""
    return min(bounds, key=lambda each: (each.seq, _ORDER.index(each.hold)))


def bound_of_lives(lives: Mapping[str, OpenLife]) -> Bound | None:
    """Return the bound of the oldest open aggregate; None: there is none.

    Those that ended for now are not open: whoever asks has looked up that they did not go on.
    """
    open_ones = [(life.seq, subject) for subject, life in lives.items() if not life.is_ended]
    if not open_ones:
        return None
    seq, subject = min(open_ones)
    return Bound(seq=seq, hold=FloorHold.OPEN, about=subject, since=lives[subject].at)


def bound_of_position(position: int, hold: FloorHold) -> Bound:
    """Return the bound of whoever has read up to `position`."""
    return Bound(seq=position + 1, hold=hold)


def oldest_time(
    lives: Iterable[Mapping[str, OpenLife]], held: Iterable[Recorded]
) -> datetime | None:
    """Return since when anything is open or held in any partition, by the earliest of clocks.

    None: nothing is.
    """
    times = [life.at for each in lives for life in each.values() if not life.is_ended]
    times += [each.commit.at for each in held]  # guard: held-elsewhere-stays
    return min(times) - SKEW if times else None

"""What may go, and when: the times that follow from what is declared, and what is held. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from streams.model.retention import OF_ACTORS, ROWS, HoldKind, RetentionCut, RetentionField

DAY_S: Final = 86_400
HOUR_S: Final = 3_600

FINE_S: Final = 2 * DAY_S
"""What is kept for less is cut to the hour; the rest to the day, so that the log of a year has a
cut a day."""


@dataclass(frozen=True)
class KeptTimes:
    """How long things are kept: of each kind, in seconds; what is not named, for ever."""

    stack: Mapping[str, int] = field(default_factory=dict)
    actors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What actors say for themselves, by actor."""

    def of(self, what: RetentionField, actor_id: str = "") -> int | None:
        """Return how long something of an actor is kept, in seconds; None: for ever."""
        own = self.actors.get(actor_id, {}).get(what.value)
        return self.stack.get(what.value) if own is None else own  # guard: own-retention-first

    @property
    def is_any(self) -> bool:
        """Whether anything ever goes."""
        return bool(self.stack) or any(self.actors.values())


@dataclass(frozen=True)
class RetentionHolds:
    """What people hold: nothing of it may go."""

    held: frozenset[tuple[HoldKind, str]] = frozenset()

    def reasons(
        self, *, actor_id: str = "", episode_id: str = "", subject_id: str = ""
    ) -> Sequence[str]:
        """Return by what something is held, such as `actor a`; none: by nothing.

        Args:
            subject_id: what it is about; empty: about nothing.
        """
        asked = (
            (HoldKind.ACTOR, actor_id),
            (HoldKind.EPISODE, episode_id),
            (HoldKind.SUBJECT, subject_id),
        )
        # guard: held-stays
        return [f"{kind.value} {of}" for kind, of in asked if of and (kind, of) in self.held]

    def of(self, kind: HoldKind) -> Sequence[str]:
        """Return what is held of a kind, in order."""
        return sorted(held for each, held in self.held if each is kind)


def before(kept_s: int, *, now: datetime) -> datetime:
    """Return the time before which things must have ended to be over due at `now`."""
    step_s = HOUR_S if kept_s < FINE_S else DAY_S
    at_s = int(now.timestamp()) - kept_s
    return datetime.fromtimestamp(at_s - at_s % step_s, tz=now.tzinfo)


def cuts_at(
    now: datetime, times: KeptTimes, *, known: Sequence[RetentionCut] = ()
) -> tuple[RetentionCut, ...]:
    """Return the cuts that hold from `now` on, where `known` held until then.

    What was cut stays so, also if it is kept for longer from now on: it is gone.
    """
    stood = {(each.what, each.actor_id): each.before for each in known}
    wanted = {
        (what, actor_id): before(kept_s, now=now) for what, actor_id, kept_s in _all_times(times)
    }
    cuts: dict[tuple[RetentionField, str], datetime] = {}
    for what in ROWS:
        whole = _latest(stood.get((what, "")), wanted.get((what, "")))
        if whole is not None:
            cuts[what, ""] = whole
        for actor_id in sorted(_actors_of(what, stood, wanted)):
            # Until it said so itself, what holds for all held for it.
            stood_of = stood.get((what, actor_id), stood.get((what, "")))
            if (what, actor_id) in wanted:
                own = _latest(stood_of, wanted[what, actor_id])  # guard: cut-never-recedes
            else:
                own = _latest(stood_of, wanted.get((what, "")))
            if own is not None and ((what, actor_id) in wanted or own != whole):
                cuts[what, actor_id] = own
    return tuple(
        RetentionCut(what=what, actor_id=actor_id, before=at)
        for (what, actor_id), at in cuts.items()
    )


def _all_times(times: KeptTimes) -> Iterable[tuple[RetentionField, str, int]]:
    for what in ROWS:
        if (kept_s := times.stack.get(what.value)) is not None:
            yield what, "", kept_s
    for actor_id, own in times.actors.items():
        for what in OF_ACTORS:
            if (kept_s := own.get(what.value)) is not None:
                yield what, actor_id, kept_s


def _actors_of(
    what: RetentionField, *cuts: Mapping[tuple[RetentionField, str], datetime]
) -> set[str]:
    return {actor for each in cuts for kind, actor in each if kind is what and actor}


def _latest(one: datetime | None, other: datetime | None) -> datetime | None:
    return max(one, other) if one and other else one or other


def cut_of(
    cuts: Iterable[RetentionCut], what: RetentionField, actor_id: str = ""
) -> datetime | None:
    """Return the time before which things of an actor are gone; None: none of them is."""
    found = {each.actor_id: each.before for each in cuts if each.what is what}
    return found.get(actor_id, found.get(""))


def is_due(ran_at: datetime | None, *, now: datetime, every_s: float) -> bool:
    """Return whether it is time for the next run."""
    # Whoever noted it may have had a clock that is far ahead.
    return ran_at is None or abs(now - ran_at) >= timedelta(seconds=every_s)

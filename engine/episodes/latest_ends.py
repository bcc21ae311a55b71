"""How the latest episodes of an expectation have ended: whether enough keep what is promised. Pure.

One key of the cluster has it, which the reactors of all streams of the journal change at its
revision. An end is counted once: the key says up to which commit of each stream that was done.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.runtime.publish import PublicEvent
from streams.model.events import EpisodeFinished, EpisodeOpened
from streams.model.service_levels import LevelOutcome, ServiceLevel

_MET: Final = "+"
_BROKEN: Final = "-"
"""What each outcome is kept as."""


class CountEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Count the end of an episode among the latest ones of its expectation."""

    opened: EpisodeOpened
    """Without the payload of its trigger."""
    seq: int
    """The commit with the end."""
    level: ServiceLevel
    is_met: bool


class LevelChange(msgspec.Struct, frozen=True, kw_only=True):
    """The end after which the share of kept promises was too small, or large enough again."""

    part: str
    """The stream that has the end."""
    seq: int
    is_kept: bool
    episodes: int
    met: int


class LatestEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The latest ends of one expectation, in the order in which they were counted."""

    outcomes: str = ""
    is_kept: bool = True
    counted: dict[str, int] = msgspec.field(default_factory=dict)
    """By stream: the newest commit whose end was counted."""
    changes: tuple[LevelChange, ...] = ()
    """Those of which it is not certain that their events are published."""


def end_to_count(opened: EpisodeOpened, end: EpisodeFinished, *, seq: int) -> CountEnd | None:
    """Return what to count of the end at `seq`; None: it does not count."""
    level, outcome = opened.service_level, end.service_level
    if level is None or outcome is None:
        return None
    return CountEnd(opened=opened, seq=seq, level=level, is_met=outcome is LevelOutcome.MET)


def count(ends: LatestEnds, end: CountEnd, *, part: str) -> LatestEnds:
    """Return the latest ends with one more, which the stream `part` has; each counts once."""
    if end.seq <= ends.counted.get(part, 0):
        return ends
    level = end.level
    outcomes = (ends.outcomes + (_MET if end.is_met else _BROKEN))[-level.window :]
    episodes, met = len(outcomes), outcomes.count(_MET)
    # Exact, as in the view: 0.07 of 100 episodes are 7.
    is_kept = met >= Decimal(str(level.success)) * episodes
    changes = ends.changes
    if is_kept is not ends.is_kept:
        change = LevelChange(part=part, seq=end.seq, is_kept=is_kept, episodes=episodes, met=met)
        changes = (*changes, change)
    counted = {**ends.counted, part: end.seq}
    return replace(ends, outcomes=outcomes, is_kept=is_kept, counted=counted, changes=changes)


def without_published(ends: LatestEnds, *, part: str, published: int) -> LatestEnds:
    """Return the ends without changes that are told: those of `part` up to `published`."""
    left = tuple(each for each in ends.changes if each.part != part or each.seq > published)
    return replace(ends, changes=left)


def level_changed(ends: LatestEnds, end: CountEnd, *, part: str) -> PublicEvent | None:
    """Return `service_level.breached` or `.recovered`, if a counted end was followed by it."""
    changes = (each for each in ends.changes if (each.part, each.seq) == (part, end.seq))
    change = next(changes, None)
    if change is None:
        return None
    opened, what = end.opened, "recovered" if change.is_kept else "breached"
    return PublicEvent(
        name=f"service_level.{what}",
        id=f"{opened.episode_id}.service_level.{what}",
        payload={
            "episode_id": opened.episode_id,
            "actor_id": opened.actor_id,
            "expectation_id": opened.expectation_id,
            "episodes": change.episodes,
            "met": change.met,
            "ratio": change.met / change.episodes,
            "success": end.level.success,
            "window": end.level.window,
            "journal_seq": end.seq,
        },
        hops=opened.trigger.hops + 1,
    )

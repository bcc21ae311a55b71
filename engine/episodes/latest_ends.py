"""How the latest episodes of an expectation ended: service level kept or not, budget used. Pure.

One key of the cluster has these ends; the reactors of all streams of the journal write it at its
revision. Each end is counted once: the key has the last counted commit of each stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_UP, Decimal
from math import ceil, floor
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.errors import BUDGET_EXCEEDED
from engine.runtime.publish import PublicEvent
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened
from streams.model.money import NO_USD
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget, Mode

USED_MAX: Final = 100
"""How many of the latest episodes a budget follows, as in the view `budget_recommendations`."""

USED_MIN: Final = 5
"""With fewer, the budget stays as declared."""

MS_PER_S: Final = 1_000

USD_STEP: Final = Decimal("0.0001")
"""What limits of dollars are multiples of, where they follow what was used."""

_KEPT_AS: Final = {
    LevelOutcome.MET: "+",
    LevelOutcome.LATE_START: "s",
    LevelOutcome.FAILED: "f",
    LevelOutcome.LATE_END: "e",
}
"""What each outcome is kept as."""


class Used(msgspec.Struct, frozen=True, array_like=True):
    """What an episode has used of its budget."""

    turns: int
    tokens: int
    wall_ms: int
    usd: Decimal = NO_USD


class CountEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Count the end of an episode among the latest ones of its expectation."""

    opened: EpisodeOpened
    """Without the payload of its trigger."""
    seq: int
    """The commit with the end."""
    level: ServiceLevel | None
    """The promise; None: there was none, or the end does not count for it."""
    outcome: LevelOutcome | None
    """Whether it was kept, or what was broken first; None where there is no promise."""
    used: Used | None
    """None: it does not count for a budget."""


class LevelChange(msgspec.Struct, frozen=True, kw_only=True):
    """The end after which the share of kept promises was too small, or large enough again."""

    part: str
    """The stream that has the end."""
    seq: int
    is_kept: bool
    outcomes: dict[LevelOutcome, int]
    """How many of the window ended how."""


class LatestEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The latest ends of one expectation, in the order in which they were counted."""

    outcomes: str = ""
    used: tuple[Used, ...] = ()
    is_kept: bool = True
    counted: dict[str, int] = msgspec.field(default_factory=dict)
    """By stream: the newest commit whose end was counted."""
    changes: tuple[LevelChange, ...] = ()
    """Changes whose events may not be published yet."""


def end_to_count(opened: EpisodeOpened, end: EpisodeFinished, *, seq: int) -> CountEnd | None:
    """Return what to count of the end at `seq`; None: it does not count."""
    outcome, used = end.service_level, _used(opened, end)
    level = opened.service_level if outcome is not None else None
    if level is None and used is None:
        return None
    return CountEnd(opened=opened, seq=seq, level=level, outcome=outcome, used=used)


def _used(opened: EpisodeOpened, end: EpisodeFinished) -> Used | None:
    # guard: dry-runs-no-evidence
    if opened.adaptive_budget is None or opened.mode is Mode.DRY_RUN or opened.fork is not None:
        return None
    # An episode that failed otherwise, or was canceled, has not used all that it needs.
    # guard: other-failures-no-evidence
    if end.status in (EndStatus.FAILED, EndStatus.CANCELED) and end.error_class != BUDGET_EXCEEDED:
        return None
    return Used(end.turns_used, end.tokens_used, end.wall_used_ms, end.usd_used)


def count(ends: LatestEnds, end: CountEnd, *, part: str) -> LatestEnds:
    """Return the latest ends with one more, which the stream `part` has; each counts once."""
    if end.seq <= ends.counted.get(part, 0):  # guard: level-end-counted-once
        return ends
    counted = {**ends.counted, part: end.seq}
    # guard: latest-hundred-kept
    used = ends.used if end.used is None else (*ends.used, end.used)[-USED_MAX:]
    return _judged(replace(ends, counted=counted, used=used), end, part=part)


def _judged(ends: LatestEnds, end: CountEnd, *, part: str) -> LatestEnds:
    level = end.level
    if level is None or end.outcome is None:
        return ends
    # guard: level-window
    outcomes = (ends.outcomes + _KEPT_AS[end.outcome])[-level.window :]
    how_many = {outcome: outcomes.count(mark) for outcome, mark in _KEPT_AS.items()}
    # Exact, as in the view: 0.07 of 100 episodes are 7.
    is_kept = how_many[LevelOutcome.MET] >= Decimal(str(level.success)) * len(outcomes)
    changes = ends.changes
    if is_kept is not ends.is_kept:
        change = LevelChange(part=part, seq=end.seq, is_kept=is_kept, outcomes=how_many)
        changes = (*changes, change)
    return replace(ends, outcomes=outcomes, is_kept=is_kept, changes=changes)


def adapted(budget: Budget, within: AdaptiveBudget, used: Sequence[Used]) -> Budget:
    """Return the budget after episodes that used so much, within the bounds."""
    if len(used) < USED_MIN:  # guard: budget-needs-evidence
        return budget
    limits: dict[str, int | float | Decimal] = {}
    for limit, bounds, amounts in (
        ("turns", within.turns, [each.turns for each in used]),
        ("tokens", within.tokens, [each.tokens for each in used]),
        ("wall_s", within.wall_s, [each.wall_ms / MS_PER_S for each in used]),
    ):
        if bounds is not None:
            fewest, most = bounds
            enough = within.headroom * _percentile(amounts, within.percentile)
            # Rounded first: as a float, 1.1 times 50 is a little over 55.
            # guard: budget-within-bounds
            limits[limit] = min(max(ceil(round(enough, 6)), fewest), most)
    if within.usd is not None:
        limits["usd"] = _adapted_usd(within.usd, within, [each.usd for each in used])
    return replace(budget, **limits)


def _adapted_usd(
    bounds: tuple[Decimal, Decimal], within: AdaptiveBudget, amounts: Sequence[Decimal]
) -> Decimal:
    fewest, most = bounds
    ordered = sorted(amounts)
    place = Decimal(str(within.percentile)) * (len(ordered) - 1)
    below = ordered[floor(place)]
    percentile = below + (ordered[ceil(place)] - below) * (place - floor(place))
    enough = (Decimal(str(within.headroom)) * percentile).quantize(USD_STEP, rounding=ROUND_UP)
    return min(max(enough, fewest), most)  # guard: usd-within-bounds


def _percentile(amounts: Sequence[float], share: float) -> float:
    """Return the percentile for `share`, interpolated as in the view."""
    ordered = sorted(amounts)
    place = share * (len(ordered) - 1)
    below = ordered[floor(place)]
    return below + (ordered[ceil(place)] - below) * (place - floor(place))


def ends_in(value: bytes | None) -> LatestEnds:
    """Return the ends in the value of the key; none without one, or if it is no JSON at all.

    Raises:
        msgspec.ValidationError: a newer version has written it; leave it as it is.
    """
    try:
        return msgspec.json.decode(value or b"{}", type=LatestEnds)
    except msgspec.ValidationError:  # guard: level-of-newer-version-kept
        raise
    except msgspec.DecodeError:
        return LatestEnds()


def without_published(ends: LatestEnds, *, part: str, published: int) -> LatestEnds:
    """Return the ends without published changes: those of `part` up to `published`."""
    # guard: level-change-told-until-published
    left = tuple(each for each in ends.changes if each.part != part or each.seq > published)
    return replace(ends, changes=left)


def level_changed(ends: LatestEnds, end: CountEnd, *, part: str) -> PublicEvent | None:
    """Return `service_level.breached` or `.recovered`, if one follows from a counted end."""
    changes = (each for each in ends.changes if (each.part, each.seq) == (part, end.seq))
    change, level = next(changes, None), end.level
    if change is None or level is None:
        return None
    opened, what = end.opened, "recovered" if change.is_kept else "breached"
    episodes = sum(change.outcomes.values())
    return PublicEvent(
        name=f"service_level.{what}",
        id=f"{opened.episode_id}.service_level.{what}",
        payload={
            "episode_id": opened.episode_id,
            "actor_id": opened.actor_id,
            "expectation_id": opened.expectation_id,
            "episodes": episodes,
            **{outcome.value: number for outcome, number in change.outcomes.items()},
            "ratio": change.outcomes[LevelOutcome.MET] / episodes,
            "success": level.success,
            "start_s": level.start_s,
            "end_s": level.end_s,
            "window": level.window,
            "journal_seq": end.seq,
        },
        hops=opened.trigger.hops + 1,
    )

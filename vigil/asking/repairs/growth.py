"""What `vigil doctor` says of years: whether old things go, and how fast the rest grows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from engine.retention.rules import DAY_S, KeptTimes
from engine.retention.worker import EVERY_S, RunReport
from projections.postgres.prune import OldRows
from streams.jetstream import StreamReport
from streams.model.retention import RetentionField

MISSED_RUNS: Final = 3
"""Runs that may be missing before it is a problem: a node may just have been started."""

DAYS_LEFT_NOTE: Final = 30.0
DAYS_LEFT_PROBLEM: Final = 7.0
"""Days until a stream is full, below which that is told."""

DAY: Final = timedelta(days=1)

HOUR_S: Final = 3_600

MB: Final = 1_000_000

GROWN: Final = ("journal", "state", "events", "dead", "blobs")
"""Words in the names of the streams that grow with what happens."""

_OF_NO_RUN: Final = "See that a node runs; or do it now: `vigil retention run`."
_OF_FAILURE: Final = "Do what it says; the next run does what is left."
_OF_RESULTS: Final = "Keep them longer: `results` of `[retention]` in vigil.toml, or of the actor."
_OF_FULL: Final = "Raise its limit, or keep less: `[retention]` of vigil.toml."


class TableSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large the tables of a database are, of all stacks that it has."""

    size_bytes: int
    empty_bytes: int
    """What no row fills, as far as Postgres has counted."""
    opened: int
    """Episodes of this stack that were opened in the last week."""


class GrowthVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a check comes to."""

    status: str
    says: str
    remedy: str = ""


def of_retention(
    times: KeptTimes, last: RunReport | None, old: Sequence[OldRows], *, now: datetime
) -> GrowthVerdict:
    """Return whether what is old goes."""
    if not times.is_any:
        return GrowthVerdict(
            status="ok", says="everything is kept for ever, as nobody says otherwise"
        )
    due = sum(each.due for each in old)
    stay = sum(sum(each.stay.values()) for each in old)
    rows = f"{due:,} old enough to go" + (f", {stay:,} stay all the same" if stay else "")
    if last is None:
        says = f"nothing was let go yet; rows: {rows}"
        return GrowthVerdict(status="note", says=says, remedy=_OF_NO_RUN)
    says = f"last run {last.at:%F %H:%M} UTC by {last.by}; rows: {rows}"
    if last.problems:  # guard: failed-retention-told
        problems = "; ".join(last.problems)
        return GrowthVerdict(status="problem", says=f"{says}; {problems}", remedy=_OF_FAILURE)
    if now - last.at > timedelta(seconds=MISSED_RUNS * EVERY_S):  # guard: missed-retention-told
        return GrowthVerdict(status="problem", says=says, remedy=_OF_NO_RUN)
    return GrowthVerdict(status="ok", says=says)


def of_results(times: KeptTimes, *, days: float) -> GrowthVerdict | None:
    """Return whether large results go earlier than what they are of; None: not that anybody said.

    `days`: how long the object store keeps them by itself.
    """
    early = [each for actor in ("", *times.actors) if (each := _early_results(times, actor, days))]
    if not early:  # guard: early-results-told
        return None
    worst = max(early, key=lambda each: each.episodes_days - each.results_days)
    says = (
        f"go after {worst.results_days:g} days, while some episodes stay {worst.episodes_days:g}:"
        " they can be shown then, and not replayed"
    )
    return GrowthVerdict(status="note", says=says, remedy=_OF_RESULTS)


class _Early(NamedTuple):
    """That large results of an actor go before its episodes."""

    results_days: float
    episodes_days: float


def _early_results(times: KeptTimes, actor: str, days: float) -> _Early | None:
    episodes_s = max(
        times.of(what, actor) or 0 for what in (RetentionField.DONE, RetentionField.FAILED)
    )
    # guard: kept-results-stay-told
    results_days = max(days, (times.of(RetentionField.RESULTS, actor) or 0) / DAY_S)
    episodes_days = episodes_s / DAY_S
    return _Early(results_days, episodes_days) if episodes_days > results_days else None


def of_events(times: KeptTimes, report: StreamReport) -> GrowthVerdict | None:
    """Return whether domain events stay for another time than `events` says; None: they do not.

    `report`: of a stream of domain events, which was made before that was said.
    """
    said_s = times.of(RetentionField.EVENTS)
    if said_s is None or said_s == report.kept_s:  # guard: other-event-time-told
        return None
    kept = "for ever" if report.kept_s is None else f"for {report.kept_s / DAY_S:g} days"
    says = f"are kept {kept}, and `events` of [retention] says {said_s / DAY_S:g} days"
    age = f"{said_s / HOUR_S:g}h"
    return GrowthVerdict(
        status="note", says=says, remedy=f"Run `nats stream edit {report.name} --max-age={age}`."
    )


def of_stream_growth(report: StreamReport) -> GrowthVerdict | None:
    """Return how fast a stream grows, by what it has; None: it does not, or has nothing."""
    if not report.stored_bytes or not any(word in report.name for word in GROWN):
        return None
    size = f"{report.stored_bytes / MB:,.1f} MB"
    if report.first_at is None or report.last_at is None:
        return GrowthVerdict(status="ok", says=size)
    days = max((report.last_at - report.first_at) / DAY, 1.0)  # What came today is a day's.
    per_day = report.stored_bytes / days
    says = f"{size}, {per_day / MB:,.1f} MB a day"
    if report.bytes_max is None:
        return GrowthVerdict(status="ok", says=f"{says}, without a limit")
    left = (report.bytes_max - report.stored_bytes) / per_day
    says = f"{says}, full at {report.bytes_max / MB:,.1f} MB in {left:,.0f} days"
    if left < DAYS_LEFT_PROBLEM:  # guard: full-stream-told
        return GrowthVerdict(status="problem", says=says, remedy=_OF_FULL)
    return GrowthVerdict(status="note" if left < DAYS_LEFT_NOTE else "ok", says=says)


def of_tables(sizes: TableSizes) -> GrowthVerdict:
    """Return how large the tables are, how much is empty, and how many episodes they get."""
    per_day = sizes.opened / 7
    size = f"{sizes.size_bytes / MB:,.1f} MB in this schema"
    empty = f"about {sizes.empty_bytes / MB:,.1f} MB of it empty"
    says = f"{size}, {empty}, {per_day:,.0f} new episodes a day"
    return GrowthVerdict(status="ok", says=says)

"""Whether an episode kept what its expectation promised. Pure.

The first promise that it broke, in time, is its outcome. A canceled episode counts only if it had
broken one by then; dry runs and forks never count. Times are those of the commits, by the clocks of
the nodes that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from streams.model.events import (
    EndStatus,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
)
from streams.model.service_levels import LevelOutcome
from streams.model.triggers import Mode
from streams.ports.log import Recorded


class EpisodeTimes(msgspec.Struct, frozen=True, kw_only=True):
    """What an outcome depends on, besides the end."""

    opened: EpisodeOpened | None = None
    opened_at: datetime | None = None
    started_at: datetime | None = None
    """When it was first started; None: it has not been."""


def times_of(records: Iterable[Recorded]) -> EpisodeTimes:
    """Return the times of an episode after all of `records`, oldest first."""
    times = EpisodeTimes()
    for record in records:
        events = [each for each in record.commit.events if isinstance(each, EpisodeEvent)]
        times, _ = judge(times, events, at=record.commit.at)
    return times


def judge(
    times: EpisodeTimes, events: Sequence[EpisodeEvent], *, at: datetime
) -> tuple[EpisodeTimes, tuple[EpisodeEvent, ...]]:
    """Return the times after a commit, and its events; an end tells whether it was in time."""
    judged: list[EpisodeEvent] = []
    for event in events:
        match event:
            case EpisodeOpened():
                times = EpisodeTimes(opened=event, opened_at=at)
            case EpisodeStarted() if times.started_at is None:  # guard: level-first-start-counts
                times = replace(times, started_at=at)
            case _:
                pass
        judged.append(with_outcome(event, times, at=at))
    return times, tuple(judged)


def with_outcome(event: EpisodeEvent, times: EpisodeTimes, *, at: datetime) -> EpisodeEvent:
    """Return an event of a commit; if it is the end, with the outcome."""
    if not isinstance(event, EpisodeFinished):
        return event
    return replace(event, service_level=outcome_of(times, event.status, at=at))


def outcome_of(times: EpisodeTimes, status: EndStatus, *, at: datetime) -> LevelOutcome | None:
    """Return whether an episode that ends `at` kept its service level; None: it does not count."""
    opened, since = times.opened, times.opened_at
    if opened is None or opened.service_level is None or since is None:
        return None
    if opened.mode is Mode.DRY_RUN or opened.fork is not None:  # guard: level-of-meant-only
        return None
    level = opened.service_level
    # guard: level-never-started-late
    if 0 < level.start_s < ((times.started_at or at) - since).total_seconds():
        return LevelOutcome.LATE_START
    if status is EndStatus.FAILED:
        return LevelOutcome.FAILED
    if 0 < level.end_s < (at - since).total_seconds():
        return LevelOutcome.LATE_END
    # guard: level-cancelled-in-time
    return None if status is EndStatus.CANCELED else LevelOutcome.MET


def labels_of(opened: EpisodeOpened, outcome: LevelOutcome) -> dict[str, str]:
    """Return what the outcome of an episode is counted under."""
    actor, expectation = opened.actor_id, opened.expectation_id
    return {"actor": actor, "expectation": expectation, "outcome": outcome.value}

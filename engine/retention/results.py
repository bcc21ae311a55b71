"""Which large results stay for longer than the object store keeps them by itself. Pure.

Objects are shared by digest, and go by age unless they are renewed. So what stays is known by
digest: what open episodes refer to, what people hold, and by the day until which the rest stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

from engine.retention.store import RetentionState
from streams.json import raw
from streams.model.events import EpisodeFinished, EpisodeOpened, LogEvent, StepRecorded
from streams.model.retention import RetentionField
from streams.ports.log import Recorded

DAY: Final = timedelta(days=1)


class ReadUpTo(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream was read."""

    created: str
    """When it was made: if it is made anew, so is all that was known of it."""
    seq: int


class OpenResults(msgspec.Struct, frozen=True, array_like=True):
    """What an open episode refers to, and what becomes of that once it has ended."""

    kept_s: int | None
    """For how long it stays then, in seconds; None: for as long as the store keeps it."""
    is_held: bool
    digests: frozenset[str] = frozenset()


class KeptResults(msgspec.Struct, kw_only=True):
    """What stays, as far as the log was read."""

    asked: str
    """What `asked_of` returns of the times and holds that it follows from."""
    read: dict[str, ReadUpTo] = msgspec.field(default_factory=dict)
    """By stream of the journal."""
    open: dict[str, OpenResults] = msgspec.field(default_factory=dict)
    """By subject on the log."""
    held: set[str] = msgspec.field(default_factory=set)
    """Digests of what people hold."""
    ended: defaultdict[str, set[str]] = msgspec.field(default_factory=lambda: defaultdict(set))
    """Day, such as `2027-01-31` → digests that stay until its end, of what was read lately."""


def is_asked(state: RetentionState) -> bool:
    """Return whether anything is to stay for longer than the store keeps it."""
    return bool(state.holds.held) or bool(_times(state))


def asked_of(state: RetentionState) -> str:
    """Return a digest of all that says which results stay."""
    wanted = [*_times(state), sorted(state.holds.held)]
    return sha256(raw(wanted)).hexdigest()


def _times(state: RetentionState) -> list[tuple[str, int]]:
    everyone = (("", state.times.stack), *sorted(state.times.actors.items()))
    what = RetentionField.RESULTS
    return [(actor, own[what]) for actor, own in everyone if what in own]


def is_level(read: Mapping[str, ReadUpTo], created: Mapping[str, str]) -> bool:
    """Return whether what was read is of the streams that are there, by when each was made."""
    return {part: each.created for part, each in read.items()} == dict(created)


def digests_of(record: Recorded) -> frozenset[str]:
    """Return what a commit refers to."""
    return frozenset(digest for event in record.commit.events for digest in _named(event))


def _named(event: LogEvent) -> Iterator[str]:
    if isinstance(event, StepRecorded):
        prompt = event.prompt
        kept = (prompt.agent, prompt.messages) if prompt is not None else ()
        for stored in (event.stored, *(each.stored for each in kept if each is not None)):
            if stored is not None:
                yield stored.digest


def opening_of(record: Recorded) -> EpisodeOpened | None:
    """Return how an episode was opened, if it was with this commit."""
    return next((each for each in record.commit.events if isinstance(each, EpisodeOpened)), None)


def opened_with(
    opened: EpisodeOpened | None, state: RetentionState, *, episode_id: str
) -> OpenResults:
    """Return what becomes of what an episode refers to once it has ended.

    `opened`: None, if that has left the journal: then only its id and the stack say anything.
    """
    actor_id = opened.actor_id if opened is not None else ""
    subject_id = opened.trigger.entity_id if opened is not None else ""
    reasons = state.holds.reasons(actor_id=actor_id, episode_id=episode_id, subject_id=subject_id)
    kept_s = state.times.of(RetentionField.RESULTS, actor_id)
    return OpenResults(kept_s=kept_s, is_held=bool(reasons))


def note(kept: KeptResults, record: Recorded) -> None:
    """Note what a commit changes; `kept` knows the episode if it refers to anything."""
    mine = kept.open.get(record.subject)
    if mine is None:
        return
    mine = msgspec.structs.replace(mine, digests=mine.digests | digests_of(record))
    kept.open[record.subject] = mine
    if any(isinstance(each, EpisodeFinished) for each in record.commit.events):
        del kept.open[record.subject]
        _end(kept, mine, at=record.commit.at)


def _end(kept: KeptResults, mine: OpenResults, *, at: datetime) -> None:
    if mine.is_held:  # guard: held-results-stay
        kept.held |= mine.digests
    if mine.kept_s is not None:  # guard: results-stay-for-their-time
        kept.ended[day_of(at + timedelta(seconds=mine.kept_s))] |= mine.digests


def day_of(at: datetime) -> str:
    """Return the day of a moment."""
    return f"{at:%F}"


def is_over(day: str, *, now: datetime) -> bool:
    """Return whether what stays until the end of a day may go."""
    return day < day_of(now)  # guard: old-results-go

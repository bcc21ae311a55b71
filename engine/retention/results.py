"""Which large results stay for longer than the object store keeps them by itself. Pure.

Objects are shared by digest, and go by age unless they are renewed. So what stays is known by
digest: what open episodes refer to, until when the rest stays, and what people hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

from engine.retention.store import RetentionState
from streams.json import raw
from streams.model.events import EpisodeFinished, EpisodeOpened, LogEvent, StepRecorded
from streams.model.retention import RetentionField
from streams.ports.log import Recorded


class ReadUpTo(msgspec.Struct, frozen=True, array_like=True):
    """How far a stream was read."""

    created: str = ""
    """When it was made: one that is made anew is read from its beginning."""
    seq: int = 0


class OpenResults(msgspec.Struct, frozen=True, array_like=True):
    """What an open episode refers to, and what becomes of that once it has ended."""

    kept_s: int | None
    """For how long it stays then, in seconds; None: for as long as the store keeps it."""
    is_held: bool
    digests: frozenset[str] = frozenset()


class KeptResults(msgspec.Struct, kw_only=True):
    """What stays, as far as the log was read."""

    asked: str = ""
    """What `asked_of` returned of the times and holds that it follows from."""
    read: dict[str, ReadUpTo] = msgspec.field(default_factory=dict)
    """By stream of the journal."""
    open: dict[str, OpenResults] = msgspec.field(default_factory=dict)
    """By subject on the log."""
    until: dict[str, datetime] = msgspec.field(default_factory=dict)
    """By digest: for how long it stays, because of how long actors keep results."""
    held: set[str] = msgspec.field(default_factory=set)
    """Digests of what people hold."""

    @property
    def of_open(self) -> frozenset[str]:
        """The digests that open episodes refer to."""
        return frozenset(digest for each in self.open.values() for digest in each.digests)


_decoder: Final = msgspec.json.Decoder(KeptResults)


def encode(kept: KeptResults) -> bytes:
    """Return it as bytes: equal ones are equal."""
    return bytes(raw(kept))


def decode(data: bytes) -> KeptResults:
    """Return what `encode` has made `data` of."""
    return _decoder.decode(data)


def is_asked(state: RetentionState) -> bool:
    """Return whether anything is to stay for longer than the store keeps it."""
    return bool(state.holds.held) or any(_times(state))


def asked_of(state: RetentionState) -> str:
    """Return a digest of all that says which results stay."""
    wanted = [*_times(state), sorted(state.holds.held)]
    return sha256(raw(wanted)).hexdigest()


def _times(state: RetentionState) -> list[tuple[str, int]]:
    everyone = (("", state.times.stack), *sorted(state.times.actors.items()))
    what = RetentionField.RESULTS
    return [(actor, own[what]) for actor, own in everyone if what in own]


def begin(known: KeptResults, state: RetentionState) -> KeptResults:
    """Return what to go on from: `known`, unless something else is asked by now.

    Then all of the journal is to be read again. What was to stay until a time does so: what it was
    of may have left the journal since.
    """
    asked = asked_of(state)
    # guard: asked-anew-read-anew
    return known if known.asked == asked else KeptResults(asked=asked, until=known.until)


def digests_of(record: Recorded) -> frozenset[str]:
    """Return what a commit refers to."""
    return frozenset(digest for event in record.commit.events for digest in _named(event))


def _named(event: LogEvent) -> Iterator[str]:
    if not isinstance(event, StepRecorded):
        return
    prompt = event.prompt
    kept = (prompt.agent, prompt.messages) if prompt is not None else ()
    for stored in (event.stored, *(each.stored for each in kept if each is not None)):
        if stored is not None:
            yield stored.digest


def opened_with(opened: EpisodeOpened, state: RetentionState) -> OpenResults:
    """Return what becomes of what an episode refers to once it has ended."""
    reasons = state.holds.reasons(
        actor_id=opened.actor_id,
        episode_id=opened.episode_id,
        subject_id=opened.trigger.entity_id,
    )
    kept_s = state.times.of(RetentionField.RESULTS, opened.actor_id)
    return OpenResults(kept_s=kept_s, is_held=bool(reasons))


def note(kept: KeptResults, record: Recorded) -> None:
    """Note what a commit changes; `kept` knows the episode if it refers to anything."""
    mine = kept.open.get(record.subject)
    if mine is None:
        return
    mine = msgspec.structs.replace(mine, digests=mine.digests | digests_of(record))
    kept.open[record.subject] = mine
    if any(isinstance(each, EpisodeFinished) for each in record.commit.events):
        _end(kept, kept.open.pop(record.subject), at=record.commit.at)


def _end(kept: KeptResults, mine: OpenResults, *, at: datetime) -> None:
    if mine.is_held:  # guard: held-results-stay
        kept.held |= mine.digests
    if mine.kept_s is not None:  # guard: results-stay-for-their-time
        until = at + timedelta(seconds=mine.kept_s)
        for digest in mine.digests:
            # guard: shared-result-stays-longest
            kept.until[digest] = max(until, kept.until.get(digest, until))


def forget_old(kept: KeptResults, *, now: datetime) -> None:
    """Forget what need not stay any more."""
    # guard: old-results-go
    kept.until = {digest: until for digest, until in kept.until.items() if until > now}

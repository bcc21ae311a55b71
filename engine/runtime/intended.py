"""What an episode intended with findings, and how far it is on their logs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from engine import dryrun, outcome
from engine.outcome import IntentEvent
from engine.runtime.custodian import events_of, newest_event
from streams.events import EpisodeOpened, FindingEvent, FindingUpdated
from streams.findings import Cause, Finding, FindingIntent, FindingOutcome
from streams.log import START, Recorded


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one intent."""

    index: int
    event: IntentEvent | None
    """With the finding as it was once it was enriched; None: there was nothing to change."""
    seq: int
    outcome: FindingOutcome


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """An intent that is on the log, and how its finding is since."""

    applied: Applied
    newest: FindingEvent | None = None
    version: int = START
    before: Finding | None = None
    """The finding as it was, if we have just changed it."""
    is_enriched: bool = False


def oldest_of(records: Sequence[Recorded]) -> int:
    """Return a sequence such that nothing that an episode caused is older: `since` of `Applier`.

    It is that of the episode's first commit; `START`, which excludes nothing, if that is a copy. A
    finding that was copied from another stream may stand before it, although it was caused later.

    Args:
        records: the episode's journal.
    """
    return START if not records or records[0].is_copied else records[0].seq


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One intent to carry out."""

    intent: FindingIntent
    index: int
    opened: EpisodeOpened
    attempt: int
    """1 if nobody can have tried before."""
    since: int
    """As `oldest_of` gives it."""
    version: int | None
    """The episode's, if someone may take it over meanwhile."""

    @property
    def cause(self) -> Cause:
        """What its events name."""
        return Cause(episode_id=self.opened.episode_id, index=self.index)

    @property
    def id(self) -> str:
        """Of the commit that carries it out."""
        return f"{self.opened.episode_id}.{self.attempt}.{self.index}"


def left_out(intents: Sequence[FindingIntent]) -> list[Applied]:
    """Return what becomes of `intents` that are not to be carried out: nothing."""
    return [
        Applied(index=index, event=None, seq=START, outcome=dryrun.left_out(intent))
        for index, intent in enumerate(intents)
    ]


def find(records: Sequence[Recorded], cause: Cause) -> tuple[IntentEvent | None, int]:
    """Return what `cause` has led to, with what was added to it, and where that is."""
    found: IntentEvent | None = None
    seq = START
    for record in records:
        for event in events_of(record):
            if outcome.is_of(event, cause):
                found = event if found is None else replace(found, finding=event.finding)
                seq = record.seq
    return found, seq


def is_enriched_by(records: Sequence[Recorded], cause: Cause) -> bool:
    """Return whether what `cause` raised was enriched since."""
    events = (event for record in records for event in events_of(record))
    return any(
        isinstance(event, FindingUpdated) and event.is_enrichment and event.cause == cause
        for event in events
    )


def newest_of(records: Sequence[Recorded]) -> FindingEvent | None:
    """Return the newest event of a finding; None: it has none."""
    return newest_event(records[-1]) if records else None


def version_of(records: Sequence[Recorded]) -> int:
    """Return the version that a finding's `records` lead to."""
    return records[-1].seq if records else START


def applied_as(index: int, intent: FindingIntent, event: IntentEvent | None, seq: int) -> Applied:
    """Return that the `index`th intent has led to `event`, which is at `seq`."""
    return Applied(index=index, event=event, seq=seq, outcome=outcome.outcome_of(intent, event))

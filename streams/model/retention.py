"""What is kept for how long, what is let go, and what people hold. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from streams.model.struct import Struct

Time: TypeAlias = float | str | timedelta | None
"""How a time may be given: in seconds, as "90d", or not, which is for ever."""


class RetentionField(StrEnum):
    """What a time may be given for, counted from its end."""

    DONE = "done"
    """Rows of episodes and instances that ended well, or were canceled."""
    FAILED = "failed"
    """Rows of episodes and instances that failed, at least in part."""
    FINDINGS = "findings"
    """Rows of raises of findings that are over."""
    OUTPUTS = "outputs"
    """Rows of outputs that were delivered, or never will be."""
    RESULTS = "results"
    """Large results of ended episodes, and what their models were asked."""
    DEAD_LETTERS = "dead_letters"
    """Rows of dead letters that were requeued or discarded."""
    EVENTS = "events"
    """Messages of domain events, from their publishing."""
    JOURNAL = "journal"
    """Messages of aggregates that have ended."""
    ARCHIVE = "archive"
    """Segments of the archive, from the end of what they have."""


ROWS: Final = (
    RetentionField.DONE,
    RetentionField.FAILED,
    RetentionField.FINDINGS,
    RetentionField.OUTPUTS,
    RetentionField.DEAD_LETTERS,
)
"""What is cut off by a time in the tables."""

OF_ACTORS: Final = (
    RetentionField.DONE,
    RetentionField.FAILED,
    RetentionField.FINDINGS,
    RetentionField.OUTPUTS,
    RetentionField.RESULTS,
)
"""What an actor may keep for another time than its stack does."""


class RetentionCut(Struct, frozen=True, kw_only=True):
    """That what ended before a time is gone, for good."""

    what: RetentionField
    """One of `ROWS`."""
    before: datetime
    actor_id: str = ""
    """Whose; empty: of every actor that has no cut of its own for this."""


class HoldKind(StrEnum):
    """What people may hold."""

    SUBJECT = "subject"
    """All about one subject: episodes, findings, and what came of those episodes."""
    ACTOR = "actor"
    """All of one actor."""
    EPISODE = "episode"
    """One episode, and what came of it."""


class Retention(Struct, frozen=True, kw_only=True):
    """How long things are kept after they have ended, such as `Retention(done="30d")`.

    What has not ended is never touched, nor what people hold. None: for ever, but for `results`.
    """

    done: Time = None
    """Rows of episodes and workflow instances that are done or canceled, with their steps, logs and
    history."""
    failed: Time = None
    """Rows of those that failed, at least in part. Four times as long as `done` if only that is
    given."""
    findings: Time = None
    """Rows of raises of findings that are cleared, expired or superseded, with their history."""
    outputs: Time = None
    """Rows of outputs that are delivered, failed, rejected or canceled, with their history."""
    results: Time = None
    """Large results of ended episodes, and what their models were asked: at least for so long, and
    those of what is open stay. None: for the days of the object store after their last use."""
    dead_letters: Time = None
    """Rows of dead letters that were requeued or discarded. Of a stack only."""
    events: Time = None
    """Domain events, from their publishing: 7 days if it is not given. Of a stack only."""
    journal: Time = None
    """Messages of ended episodes, outputs and instances in JetStream; they are archived then. Of a
    stack only."""
    archive: Time = None
    """What is archived, from the end of it, and for as long as the tables have something that is
    made of it. Of a stack only."""

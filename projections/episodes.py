"""The episodes read model: a row per episode, per step and per checkpoint. Pure.

Whatever changes an episode after its opening is one statement that fills in what it
knows, so that a whole life in one batch is one insert and one update.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple, cast

import msgspec

from projections.statement import Change, Statement, Values, fill_in
from projections.values import json, json_of, text, text_or_none, uuid_or_none
from streams.errors import UnreadableEvent
from streams.events import (
    Budget,
    CheckpointSaved,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    EpisodeStarted,
    EventTrigger,
    LogEvent,
    StepAnnounced,
    StepRecorded,
    Trigger,
)
from streams.json import NOTHING
from streams.log import Recorded


class Opened(NamedTuple):
    """One row of `sql/open_episodes.sql`."""

    episode_id: str
    journal_seq: int
    actor_id: str
    expectation_id: str
    spec_rev: str | None
    generation: int
    trigger_type: str
    trigger_ref: str | None
    subject_kind: str | None
    subject_id: str | None
    dedupe_key: str
    budget: str | None
    queued_at: datetime


class Advance(NamedTuple):
    """One row of `sql/advance_episodes.sql`; None leaves a column as it is."""

    episode_id: str
    journal_seq: int
    status: str | None = None
    node: str | None = None
    attempts: int | None = None
    started_at: datetime | None = None
    """Kept from the first start."""
    finished_at: datetime | None = None
    turns_used: int | None = None
    tokens_used: int | None = None
    """The final count, instead of what the steps added up to."""
    tokens_added: int = 0
    classification: str | None = None
    confidence: float | None = None
    summary: str | None = None
    error_class: str | None = None
    error_detail: str | None = None


class Step(NamedTuple):
    """One row of `sql/record_steps.sql`; None leaves a column as it is.

    Not the fingerprint: it is of the arguments before redaction, and a short secret can be
    guessed from a hash.
    """

    episode_id: str
    step_no: int
    journal_seq: int
    kind: str
    state: str
    tool_name: str | None
    created_at: datetime
    announced_at: datetime | None = None
    side_effect_key: str | None = None
    args_redacted: str | None = None
    result: str | None = None
    error_class: str | None = None
    error_detail: str | None = None
    cost_tokens: int | None = None
    cost_ms: int | None = None
    model: str | None = None


class Checkpoint(NamedTuple):
    """One row of `sql/save_checkpoints.sql`.

    Not the state: it may hold results as the strategy saw them, which `redact_result` keeps
    from people. The journal has it.
    """

    episode_id: str
    checkpoint_no: int
    journal_seq: int
    step_no: int
    phase: str
    schema_version: int
    state_size_bytes: int
    created_at: datetime


def both(earlier: Values, later: Values) -> Values:
    """Return two advances of one episode as one."""
    # Only advances are folded with this, see ADVANCE below.
    first, second = cast("Advance", earlier), cast("Advance", later)
    before = first.tokens_added if second.tokens_used is None else 0
    return Advance._make(fill_in(first, second))._replace(
        started_at=first.started_at or second.started_at,
        tokens_added=before + second.tokens_added,
    )


OPEN: Final = Statement(name="open_episodes", table="episodes", rank=0, key_size=1)
ADVANCE: Final = Statement(name="advance_episodes", table="episodes", rank=1, key_size=1, fold=both)
RECORD: Final = Statement(name="record_steps", table="episode_steps", key_size=2, fold=fill_in)
SAVE: Final = Statement(name="save_checkpoints", table="episode_checkpoints", key_size=2)


class _Place(NamedTuple):
    """Which episode a commit is about, and where and when it was recorded."""

    episode_id: str
    seq: int
    at: datetime


def project(record: Recorded, *, aggregate: str) -> Iterator[Change]:
    """Yield the row changes that a commit in the life of the episode `aggregate` asks for.

    Raises:
        UnreadableEvent: the episode's id is not a UUID, or the life is not an episode's.
    """
    place = _place(record, aggregate)
    for event in record.commit.events:
        changes = _changes(place, event)
        if not changes:
            detail = f"{type(event).__name__} in the life of an episode"
            raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)
        yield from changes


def _place(record: Recorded, aggregate: str) -> _Place:
    episode_id = uuid_or_none(aggregate)
    if episode_id is None:
        raise UnreadableEvent(record.subject, seq=record.seq, detail="its id is not a UUID")
    return _Place(episode_id, record.seq, record.commit.at)


def _changes(place: _Place, event: LogEvent) -> tuple[Change, ...]:
    """Return what `event` changes; nothing, if no episode ever lives it."""
    match event:
        case StepRecorded():
            return _recorded(place, event), _spent(place, event)
        case StepAnnounced():
            return (_announced(place, event),)
        case EpisodeOpened():
            return (_opened(place, event),)
        case EpisodeStarted():
            return (_started(place, event),)
        case EpisodeLeft():
            return (_left(place),)
        case EpisodeConverged():
            return (_converged(place, event),)
        case EpisodeFinished():
            return (_finished(place, event),)
        case CheckpointSaved():
            return (_saved(place, event),)
        case _:
            return ()


def _opened(place: _Place, event: EpisodeOpened) -> Change:
    return Change(
        OPEN,
        Opened(
            episode_id=place.episode_id,
            journal_seq=place.seq,
            actor_id=text(event.actor_id),
            expectation_id=text(event.expectation_id),
            spec_rev=text_or_none(event.spec_rev),
            generation=event.generation,
            trigger_type=_trigger_type(event.trigger),
            trigger_ref=json_of(event.trigger),
            subject_kind=text_or_none(event.subject_kind),
            subject_id=text_or_none(event.trigger.entity_id),
            dedupe_key=text(event.dedupe_key),
            budget=_budget(event.budget),
            queued_at=place.at,
        ),
    )


def _started(place: _Place, event: EpisodeStarted) -> Change:
    return Change(
        ADVANCE,
        Advance(
            place.episode_id,
            place.seq,
            status="running",
            node=text(event.node),
            attempts=event.attempt,
            started_at=place.at,
        ),
    )


def _left(place: _Place) -> Change:
    return Change(ADVANCE, Advance(place.episode_id, place.seq, status="queued"))


def _spent(place: _Place, event: StepRecorded) -> Change:
    return Change(
        ADVANCE,
        Advance(
            place.episode_id,
            place.seq,
            turns_used=event.step_no,
            tokens_added=event.cost_tokens,
        ),
    )


def _converged(place: _Place, event: EpisodeConverged) -> Change:
    return Change(
        ADVANCE,
        Advance(
            place.episode_id,
            place.seq,
            classification=json(event.classification),
            confidence=event.confidence,
            summary=text_or_none(event.summary),
        ),
    )


def _finished(place: _Place, event: EpisodeFinished) -> Change:
    return Change(
        ADVANCE,
        Advance(
            place.episode_id,
            place.seq,
            status=event.status.value,
            finished_at=place.at,
            turns_used=event.turns_used,
            tokens_used=event.tokens_used,
            error_class=text_or_none(event.error_class),
            error_detail=text_or_none(event.error_detail),
        ),
    )


def _announced(place: _Place, event: StepAnnounced) -> Change:
    return Change(
        RECORD,
        Step(
            episode_id=place.episode_id,
            step_no=event.step_no,
            journal_seq=place.seq,
            kind="tool_call",
            state="announced",
            tool_name=text_or_none(event.tool_name),
            created_at=place.at,
            announced_at=place.at,
            side_effect_key=text_or_none(event.idempotency_key),
        ),
    )


def _recorded(place: _Place, event: StepRecorded) -> Change:
    shown = event.result if event.result_shown == NOTHING else event.result_shown
    return Change(
        RECORD,
        Step(
            episode_id=place.episode_id,
            step_no=event.step_no,
            journal_seq=place.seq,
            kind=event.kind.value,
            state="recorded",
            tool_name=text_or_none(event.tool_name),
            created_at=place.at,
            args_redacted=json(event.args),
            result=json(shown),
            error_class=text_or_none(event.error_class),
            error_detail=text_or_none(event.error_detail),
            cost_tokens=event.cost_tokens,
            cost_ms=event.cost_ms,
            model=text_or_none(event.model),
        ),
    )


def _saved(place: _Place, event: CheckpointSaved) -> Change:
    return Change(
        SAVE,
        Checkpoint(
            episode_id=place.episode_id,
            checkpoint_no=event.checkpoint_no,
            journal_seq=place.seq,
            step_no=event.step_no,
            phase=text(event.phase),
            schema_version=event.schema_version,
            state_size_bytes=len(bytes(event.state)),
            created_at=place.at,
        ),
    )


def _trigger_type(trigger: Trigger) -> str:
    return "event" if isinstance(trigger, EventTrigger) else "manual"


def _budget(budget: Budget) -> str | None:
    """Return the budget with its defaults spelled out; on the wire they are left out."""
    return json_of(msgspec.structs.asdict(budget))

"""The dead letters read model: a row per thing that could not be done, settled or not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from projections.statement import Change, Statement
from projections.values import json_of, text, text_or_none, uuid_or_none
from streams.errors import UnreadableEvent
from streams.events import DeadDiscarded, DeadLettered, DeadRequeued, LogEvent
from streams.log import Recorded


class Letter(NamedTuple):
    """One row of `sql/save_dead_letters.sql`."""

    letter_key: str
    journal_seq: int
    reason: str
    detail: str
    source_stream: str
    source_seq: int
    source_subject: str
    actor_id: str | None
    episode_id: str | None
    headers: str | None
    payload: bytes
    payload_size_bytes: int
    lettered_at: datetime


class Settlement(NamedTuple):
    """One row of `sql/settle_dead_letters.sql`."""

    letter_key: str
    journal_seq: int
    status: str
    settled_at: datetime
    settled_by: str
    settled_note: str | None


SAVE: Final = Statement(name="save_dead_letters", table="dead_letters", rank=0, key_size=1)
SETTLE: Final = Statement(name="settle_dead_letters", table="dead_letters", rank=1, key_size=1)


def project(record: Recorded, *, aggregate: str) -> Iterator[Change]:
    """Yield the row changes that a commit in the life of the letter `aggregate` asks for.

    Raises:
        UnreadableEvent: the life is not a dead letter's.
    """
    for event in record.commit.events:
        yield _change(record, event, letter_key=aggregate)


def _change(record: Recorded, event: LogEvent, *, letter_key: str) -> Change:
    match event:
        case DeadLettered():
            return Change(SAVE, _letter(record, event, letter_key=letter_key))
        case DeadRequeued() | DeadDiscarded():
            return Change(SETTLE, _settlement(record, event, letter_key=letter_key))
        case _:
            detail = f"{type(event).__name__} in the life of a dead letter"
            raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)


def _settlement(
    record: Recorded, event: DeadRequeued | DeadDiscarded, *, letter_key: str
) -> Settlement:
    return Settlement(
        letter_key=letter_key,
        journal_seq=record.seq,
        status="requeued" if isinstance(event, DeadRequeued) else "discarded",
        settled_at=record.commit.at,
        settled_by=text(event.by),
        settled_note=_note(event),
    )


def _note(event: DeadRequeued | DeadDiscarded) -> str | None:
    match event:
        case DeadDiscarded(reason=reason):
            return text_or_none(reason)
        case DeadRequeued(episode_id="", event_seq=seq):
            return f"event {seq}"
        case DeadRequeued(episode_id=episode_id):
            return text(f"episode {episode_id}")


def _letter(record: Recorded, event: DeadLettered, *, letter_key: str) -> Letter:
    return Letter(
        letter_key=letter_key,
        journal_seq=record.seq,
        reason=text(event.reason),
        detail=text(event.detail),
        source_stream=text(event.stream),
        source_seq=event.seq,
        source_subject=text(event.subject),
        actor_id=text_or_none(event.actor_id),
        episode_id=uuid_or_none(event.episode_id),
        headers=json_of(event.headers),
        payload=event.payload,
        payload_size_bytes=event.payload_size_bytes,
        lettered_at=record.commit.at,
    )

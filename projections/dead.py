"""The dead letters read model: a row per thing that could not be done. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple

from projections.statement import Change, Statement
from projections.values import json_of, text, text_or_none
from streams.errors import UnreadableEvent
from streams.events import DeadLettered
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
    headers: str | None
    payload: bytes
    payload_size_bytes: int
    lettered_at: datetime


SAVE: Final = Statement(name="save_dead_letters", table="dead_letters", key_size=1)


def project(record: Recorded, *, aggregate: str) -> Iterator[Change]:
    """Yield the row changes that a commit in the life of the letter `aggregate` asks for.

    Raises:
        UnreadableEvent: the life is not a dead letter's.
    """
    for event in record.commit.events:
        if not isinstance(event, DeadLettered):
            detail = f"{type(event).__name__} in the life of a dead letter"
            raise UnreadableEvent(record.subject, seq=record.seq, detail=detail)
        yield Change(SAVE, _letter(record, event, letter_key=aggregate))


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
        headers=json_of(event.headers),
        payload=event.payload,
        payload_size_bytes=event.payload_size_bytes,
        lettered_at=record.commit.at,
    )

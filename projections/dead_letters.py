"""The dead letters read model: a row per letter, settled or not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, assert_never, get_args

from projections.rows import Row, RowChange, Statement, events_of, key, uuid_or_none
from streams.errors import BadName
from streams.layout import Kind
from streams.model.events import DeadDiscarded, DeadEvent, DeadLettered, DeadRequeued
from streams.ports.log import Recorded
from streams.tokens import decode_token

SAVE: Final = Statement(name="save_dead_letters", table="dead_letters", keys=("letter_key",))

SETTLE: Final = Statement(name="settle_dead_letters", table="dead_letters", keys=("letter_key",))

_OF_OUTPUTS: Final = f"{Kind.OUTPUT}."

_EVENTS: Final[frozenset[type[DeadEvent]]] = frozenset(get_args(DeadEvent))


class Settlement(Row, kw_only=True):
    """One row of `sql/settle_dead_letters.sql`."""

    letter_key: str
    journal_seq: int
    status: str
    settled_at: datetime | None = None
    settled_by: str | None = None
    settled_note: str | None = None


class LetterState(Settlement, kw_only=True):
    """One row of `sql/save_dead_letters.sql`, with a later decision if there is one."""

    reason: str
    detail: str
    source_stream: str
    source_seq: int
    source_subject: str
    actor_id: str | None
    episode_id: str | None
    headers: Mapping[str, str]
    payload: bytes
    payload_size_bytes: int
    lettered_at: datetime
    output_key: str | None = None


class DeadLetterFold:
    """The fold of some consecutive commits of one dead letter."""

    def __init__(self, letter_key: str) -> None:
        self._letter_key = key(letter_key)
        self._row: Settlement | None = None

    def add(self, record: Recorded) -> None:
        """Take the next commit; `UnreadableEvent`: it is no dead letter's, and left out."""
        for event in events_of(record, _EVENTS, whose="a dead letter"):
            match event:
                case DeadLettered():
                    self._row = _letter(record, event, letter_key=self._letter_key)
                case DeadRequeued() | DeadDiscarded():
                    self._settle(event, seq=record.seq, at=record.commit.at)
                case _:
                    assert_never(event)

    def changes(self) -> Iterator[RowChange]:
        """Yield one change of one row."""
        if self._row is not None:
            yield RowChange(SAVE if isinstance(self._row, LetterState) else SETTLE, self._row)

    def _settle(self, event: DeadRequeued | DeadDiscarded, *, seq: int, at: datetime) -> None:
        row = self._row or Settlement(letter_key=self._letter_key, journal_seq=seq, status="")
        row.journal_seq = seq
        row.status = "requeued" if isinstance(event, DeadRequeued) else "discarded"
        row.settled_at = at
        row.settled_by = event.by
        row.settled_note = _note(event)
        self._row = row


def _note(event: DeadRequeued | DeadDiscarded) -> str | None:
    match event:
        case DeadDiscarded(reason=reason):
            return reason or None
        case DeadRequeued(episode_id="", event_seq=seq):
            return f"event {seq}"
        case DeadRequeued(episode_id=episode_id):
            return f"episode {episode_id}"


def _letter(record: Recorded, event: DeadLettered, *, letter_key: str) -> LetterState:
    return LetterState(
        letter_key=letter_key,
        journal_seq=record.seq,
        status="waiting",
        reason=event.reason,
        detail=event.detail,
        source_stream=event.stream,
        source_seq=event.seq,
        source_subject=event.subject,
        actor_id=event.actor_id or None,
        episode_id=uuid_or_none(event.episode_id),
        headers=event.headers,
        payload=event.payload,
        payload_size_bytes=event.payload_size_bytes,
        lettered_at=record.commit.at,
        # guard: letter-of-output-exact
        output_key=_output_key(event.subject) if letter_key.startswith(_OF_OUTPUTS) else None,
    )


def _output_key(subject: str) -> str | None:
    """Return the key of the output whose life is at `subject`, or None if none can be."""
    try:
        return key(decode_token(subject.rpartition(".")[2]))
    except BadName:
        return None

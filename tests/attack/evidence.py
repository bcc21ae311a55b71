"""What a case has left behind: calls, and commits and events as plain nats-py reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from streams.layout import Kind, Stream
from streams.ports.log import Recorded
from streams.subjects import Stack
from streams.wire.codec import decode_commit
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage
from tests.attack.faults import Fault
from tests.attack.ledger import Entry
from tests.attack.stories import Story

LIVES: Final = (Stream.JOURNAL, Stream.STATE, Stream.DEAD)
STORED_AT: Final = "Nats-Time-Stamp"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """All that there is about one case."""

    story: Story
    fault: Fault | None
    stack: Stack
    records: Sequence[Recorded]
    """Every commit since it began, of any aggregate."""
    told: Sequence[StreamMessage]
    """Every domain event since it began."""
    entries: Sequence[Entry]

    def lives(self, kind: Kind) -> Mapping[str, list[Recorded]]:
        """Return the commits of each aggregate of a kind, by its id or key."""
        lives: dict[str, list[Recorded]] = {}
        for record in self.records:
            found, key = self.stack.aggregate_of(record.subject)
            if found is kind:
                lives.setdefault(key, []).append(record)
        return lives


@dataclass
class Reader:
    """Reads the streams of a stack from where the last case ended."""

    jetstream: JetStreamContext
    stack: Stack
    _read: dict[Stream, int] = field(default_factory=dict)
    """Up to which message, of each stream."""
    _found: dict[Stream, list[StreamMessage]] = field(default_factory=dict)

    async def begin(self) -> None:
        """Leave out everything until now."""
        for stream in (*LIVES, Stream.EVENTS):
            self._read[stream] = await self._last(stream)
        self._found = {stream: [] for stream in self._read}

    async def read(self) -> None:
        """Read what has come since."""
        for stream, read in self._read.items():
            last = await self._last(stream)
            for seq in range(read + 1, last + 1):
                if message := await self._message(stream, seq):
                    self._found[stream].append(message)
            self._read[stream] = last

    def records(self) -> list[Recorded]:
        """Return the commits that were read, stream by stream."""
        return [_commit(message) for stream in LIVES for message in self._found[stream]]

    def told(self) -> list[StreamMessage]:
        """Return the domain events that were read."""
        return self._found[Stream.EVENTS]

    async def _last(self, stream: Stream) -> int:
        info = await self.jetstream.stream_info(self.stack.stream(stream))
        return info.state.last_seq

    async def _message(self, stream: Stream, seq: int) -> StreamMessage | None:
        name = self.stack.stream(stream)
        try:
            found = await self.jetstream.get_msg(name, seq, direct=True)
        except NotFoundError:
            return None  # Nobody needs it any more, such as a timer that has fired.
        headers = found.headers or {}
        return StreamMessage(
            seq=seq,
            subject=found.subject or "",
            headers=headers,
            data=found.data or b"",
            at=datetime.fromisoformat(headers[STORED_AT]),
        )


def _commit(message: StreamMessage) -> Recorded:
    return decode_commit(
        message.data,
        subject=message.subject,
        seq=message.seq,
        commit_id=message.headers.get(MESSAGE_ID_HEADER, ""),
    )


def shown(records: Sequence[Recorded]) -> Iterator[str]:
    """Yield the commits in words, for people who look for what went wrong."""
    for record in records:
        events = ", ".join(repr(event)[:300] for event in record.commit.events)
        yield f"    {record.commit.at:%T.%f} {record.subject} #{record.seq}: {events}"

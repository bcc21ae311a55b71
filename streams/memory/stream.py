"""One stream in memory: messages in order, one sequence, each message id kept once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from streams.clock import Clock
from streams.errors import TooLarge, VersionConflict
from streams.memory.bell import Bell
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage

DEDUPE_WINDOW_S: Final = 120.0
"""How long a message id is remembered, as on the server."""

_BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
"""When every stream is made that no test makes anew."""

MESSAGE_BYTES_MAX: Final = 1024 * 1024
"""Largest body and headers of one message: the server's default `max_payload`."""


class MemoryStream:
    """A stream of one stack, or one partition of it."""

    def __init__(self, name: str, *, clock: Clock, bell: Bell | None = None) -> None:
        self.name = name
        self.clock = clock
        self.bell = bell or Bell(clock)
        """Rings for every message."""
        self.is_deleted = False
        self.created = _BEFORE_ALL.isoformat()
        """When it was made: another time for each that had this name."""
        self._purged = 0
        """How many messages were taken from its beginning."""
        self.newest_seq = 0
        """Of the newest message that it, or one of its name before it, ever had."""
        self._messages: list[StreamMessage] = []
        self._of: defaultdict[str, list[StreamMessage]] = defaultdict(list)
        self._known_ids: dict[str, tuple[int, float]] = {}

    @property
    def last_seq(self) -> int:
        """Sequence of the newest message; 0 before the first."""
        return self._purged + len(self._messages)

    @property
    def first_seq(self) -> int:
        """Sequence of the oldest message; without any, of the next one; 0 before the first."""
        return self._purged + 1 if self.last_seq else 0

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self._messages)

    def purge(self) -> None:
        """Take all messages from it, as an operator does; sequences go on."""
        self._purged = self.last_seq
        self._messages.clear()
        self._of.clear()

    def purge_below(self, seq: int) -> int:
        """Take the messages before `seq` from it, and return how many those were."""
        count = max(0, min(seq - 1, self.last_seq) - self._purged)
        for message in self._messages[:count]:
            of_subject = self._of[message.subject]
            of_subject.pop(0)
            if not of_subject:
                del self._of[message.subject]
        del self._messages[:count]
        self._purged += count
        return count

    def make_anew(self) -> None:
        """Delete it and make another one of its name, which is empty."""
        at_earliest = datetime.fromisoformat(self.created) + timedelta(microseconds=1)
        self.created = max(self.clock.now(), at_earliest).isoformat()
        self.purge()
        self._purged = 0
        self._known_ids.clear()

    def delete(self) -> None:
        """End it, and wake those who wait for its messages."""
        self.is_deleted = True
        self.bell.ring()

    def publish(
        self,
        subject: str,
        data: bytes,
        headers: Mapping[str, str],
        *,
        after: int | None = None,
        at: datetime | None = None,
    ) -> int:
        """Store a message and return its sequence: the first one's, if its id is known.

        `at` is when it was stored, for what should have happened before anyone looked; None is now.

        Raises:
            VersionConflict: `after` is given and is not the subject's last sequence.
            TooLarge: over `MESSAGE_BYTES_MAX` with its headers.
        """
        _check_size(subject, data, headers)
        last = self.last_of(subject)
        # guard: append-version-check
        if after is not None and after != (last.seq if last is not None else 0):
            raise VersionConflict(subject, expected=after)
        message_id = headers.get(MESSAGE_ID_HEADER)
        if message_id is None:
            return self._store(subject, data, headers, at)
        self._forget_old_ids()
        if message_id not in self._known_ids:  # guard: message-id-stored-once
            seq = self._store(subject, data, headers, at)
            self._known_ids[message_id] = (seq, self.clock.monotonic_s() + DEDUPE_WINDOW_S)
        return self._known_ids[message_id][0]

    def past(self, seq: int, *, most: int | None = None) -> Sequence[StreamMessage]:
        """Return the messages past sequence `seq`, oldest first: up to `most`, or all."""
        begin = max(0, seq - self._purged)
        return self._messages[begin : None if most is None else begin + most]

    def seq_before(self, time: datetime) -> int:
        """Return the sequence just before the first message stored at `time` or later."""
        return next((each.seq - 1 for each in self._messages if each.at >= time), self.last_seq)

    def at(self, seq: int) -> StreamMessage:
        """Return the message at `seq`, which must be one of ours."""
        return self._messages[seq - self.first_seq]

    def of(self, subject: str, *, after: int = 0) -> Sequence[StreamMessage]:
        """Return the messages on exactly `subject` past sequence `after`, oldest first."""
        return [message for message in self._of.get(subject, ()) if message.seq > after]

    def subjects(self) -> Sequence[str]:
        """Return the subjects that have a message."""
        return [subject for subject, messages in self._of.items() if messages]

    def last_of(self, subject: str) -> StreamMessage | None:
        """Return the newest message on exactly `subject`, or None."""
        messages = self._of.get(subject)
        return messages[-1] if messages else None

    def _store(
        self, subject: str, data: bytes, headers: Mapping[str, str], at: datetime | None
    ) -> int:
        message = StreamMessage(
            seq=self.last_seq + 1,
            subject=subject,
            headers=dict(headers),
            data=data,
            at=at or self.clock.now(),
        )
        self._messages.append(message)
        self.newest_seq = max(self.newest_seq, message.seq)
        self._of[subject].append(message)
        self.bell.ring(subject)
        return message.seq

    def _forget_old_ids(self) -> None:
        """Drop the ids whose window is over; the dict has them in the order they came."""
        now_s = self.clock.monotonic_s()
        while self._known_ids:
            oldest = next(iter(self._known_ids))
            if self._known_ids[oldest][1] > now_s:
                return
            del self._known_ids[oldest]


def _check_size(subject: str, data: bytes, headers: Mapping[str, str]) -> None:
    """Refuse what the server would: it counts the header block as it is on the wire."""
    lines = sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
    size = len(data) + (len("NATS/1.0\r\n\r\n") + lines if headers else 0)
    if size > MESSAGE_BYTES_MAX:
        raise TooLarge(subject, size_bytes=size, limit_bytes=MESSAGE_BYTES_MAX)

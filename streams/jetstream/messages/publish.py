"""Stores a message: once, with a known outcome; or repeatedly, until the outcome is known.

| the server says | it means | raised |
| --- | --- | --- |
| an acknowledgement | stored | |
| 10071, 10164 | the expected sequence is not the subject's | `WrongSequence` |
| 10054, or over the limit before sending | never fits | `TooLarge` |
| 503, no responders, not connected | not stored, may be later | `Unavailable` |
| nothing, or the connection ends | perhaps stored | `UnknownOutcome` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from streams.errors import StreamError, TooLarge, Unavailable, UnknownOutcome
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.session import Headers
from streams.jetstream.messages import api
from streams.jetstream.messages.api import ApiError

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0
"""Between two attempts, doubling from the one to the other."""


class Ack(msgspec.Struct, frozen=True):
    """The server's answer to a publish."""

    seq: int = 0
    duplicate: bool = False
    """The message id was seen before; `seq` is the first one's."""
    stream: str = ""
    """Which one has stored it."""
    count: int = 0
    """Of a batch, how many messages it has; `seq` is the last one's."""
    error: ApiError | None = None


class WrongSequence(StreamError):
    """The subject is not at the sequence that the message expected."""

    def __init__(self, subject: str, *, in_flight: bool) -> None:
        super().__init__(f"{subject}: at another sequence")
        self.in_flight = in_flight
        """The other write is not stored yet, and may be an earlier copy of this one."""


class BatchRefused(StreamError):
    """The server refused a batch as a whole: nothing of it is stored."""


class Write(NamedTuple):
    """One message to store."""

    subject: str
    data: bytes
    headers: Headers
    key: str
    """What no other message of its batch may have: the subject of one that is checked, or the
    message id of one that is kept once."""


_decoder: msgspec.json.Decoder[Ack] = msgspec.json.Decoder(Ack)


class Publisher:
    """Stores messages over one link, each once."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def store(self, write: Write) -> Ack:
        """Publish `write`.

        Raises:
            WrongSequence: it expected another sequence. It is not stored.
            TooLarge: it is over the server's limit. It is not stored.
            Incompatible: this user may not publish there.
            UnknownOutcome: no answer. It may be stored.
        """
        subject, data, more, _ = write
        ack = self._ack(subject, (await self._link.request(subject, data, more=more)).data)
        if ack.error is not None:
            raise _refusal(subject, ack.error, size_bytes=len(data))
        return ack

    async def store_all(self, writes: Sequence[Write]) -> Sequence[Ack]:
        """Publish `writes`, all to one stream, as one atomic batch: stored whole or not at all.

        Their sequences follow each other: the server gives them out when it has the whole batch.

        Raises:
            BatchRefused: none is stored.
            TooLarge, Incompatible: as `store`, because of one of them.
            UnknownOutcome: no answer.
        """
        first = writes[0].subject
        answer = await self._link.request_batch(_batch(writes, id=self._link.unique()))
        ack = self._ack(first, answer.data)
        if ack.error is not None:
            raise BatchRefused(f"{ack.error.description} ({ack.error.err_code})")
        if ack.count != len(writes):
            raise UnknownOutcome(first, detail=f"{ack.count} of a batch of {len(writes)}")
        before = ack.seq - ack.count  # guard: batch-members-own-sequence
        return [Ack(seq=before + place) for place in range(1, ack.count + 1)]

    def _ack(self, subject: str, answer: bytes) -> Ack:
        try:
            ack = _decoder.decode(answer)
        except msgspec.DecodeError as error:
            raise UnknownOutcome(subject, detail="the answer is no acknowledgement") from error
        if ack.error is None:
            self._link.note_newest(ack.stream, ack.seq)
        return ack


def _batch(writes: Sequence[Write], *, id: str) -> list[tuple[str, bytes, Headers]]:
    parts = [
        (
            write.subject,
            write.data,
            {**write.headers, headers.BATCH: id, headers.BATCH_PLACE: str(place)},
        )
        for place, write in enumerate(writes, start=1)
    ]
    parts[-1][2][headers.BATCH_END] = "1"
    return parts


class Patience:
    """How long one message keeps trying, and whether an earlier attempt may have worked."""

    def __init__(self, link: Link, subject: str) -> None:
        self._link = link
        self._subject = subject
        self._deadline_s = link.clock.monotonic_s() + link.settings.patience_s
        self._pause_s = PAUSE_S_MIN
        self.has_failed = False
        """An attempt failed. The next one must not be able to fail others with it."""
        self.unsure = False
        """An attempt went unanswered: whatever is met now may be its work."""

    async def after(self, error: Unavailable) -> None:
        """Wait before the next attempt.

        Raises:
            UnknownOutcome: `patience_s` is over, and some attempt went unanswered.
            Unavailable: `patience_s` is over, and every attempt was refused.
        """
        self.has_failed = True
        self.unsure = self.unsure or isinstance(error, UnknownOutcome)
        if self._link.clock.monotonic_s() + self._pause_s > self._deadline_s:
            detail = f"{error.detail}, for {self._link.settings.patience_s:g} s"
            raised = UnknownOutcome if self.unsure else Unavailable
            raise raised(self._subject, detail=detail) from error
        await self._link.clock.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)


def _refusal(subject: str, error: ApiError, *, size_bytes: int) -> StreamError:
    match error.err_code:
        case api.WRONG_SEQUENCE:
            return WrongSequence(subject, in_flight=False)
        case api.WRONG_SEQUENCE_IN_FLIGHT:
            return WrongSequence(subject, in_flight=True)
        case api.MESSAGE_TOO_LARGE:
            return TooLarge(subject, size_bytes=size_bytes, limit_bytes=size_bytes - 1)
        case _:
            return Unavailable(subject, detail=f"{error.description} ({error.err_code})")

"""Storing a message: once, with an outcome that is known; or until it is known.

| the server says | it means | raised |
| --- | --- | --- |
| an acknowledgement | stored | |
| 10071, 10164 | the expected sequence is not the subject's | `WrongSequence` |
| 10054, or over the limit before sending | never fits | `TooLarge` |
| 503, no responders, not connected | not stored, may be later | `Unavailable` |
| nothing, or the connection ends | perhaps stored | `UnknownOutcome` |
"""

from __future__ import annotations

from typing import Final

import msgspec

from streams.errors import StreamError, TooLarge, Unavailable, UnknownOutcome
from streams.jetstream import api
from streams.jetstream.api import ApiError
from streams.jetstream.link import Link
from streams.jetstream.session import Headers

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0
"""Between two attempts, doubling from the one to the other."""


class Ack(msgspec.Struct, frozen=True):
    """The server's answer to a publish."""

    seq: int = 0
    duplicate: bool = False
    """The message id was seen before; `seq` is the first one's."""
    error: ApiError | None = None


class WrongSequence(StreamError):
    """The subject is not at the sequence that the message expected."""

    def __init__(self, subject: str, *, in_flight: bool) -> None:
        super().__init__(f"{subject}: at another sequence")
        self.in_flight = in_flight
        """The other write is not stored yet, and may be an earlier copy of this one."""


_decoder: msgspec.json.Decoder[Ack] = msgspec.json.Decoder(Ack)


async def store(link: Link, subject: str, data: bytes, more: Headers) -> Ack:
    """Publish one message, once.

    Raises:
        WrongSequence: it expected another sequence. It is not stored.
        TooLarge: it is over the server's limit. It is not stored.
        Unavailable: the server is away or refused. It is not stored.
        UnknownOutcome: no answer. It may be stored.
    """
    msg = await link.request(subject, data, more=more)
    try:
        ack = _decoder.decode(msg.data)
    except msgspec.DecodeError as error:
        raise UnknownOutcome(subject, detail="the answer is no acknowledgement") from error
    if ack.error is None:
        return ack
    raise _refusal(subject, ack.error, size_bytes=len(data))


async def store_surely(link: Link, subject: str, data: bytes, more: Headers) -> Ack:
    """Publish one message that carries a message id, again and again until it is stored.

    Raises:
        TooLarge: it is over the server's limit. It is not stored.
        Unavailable: the server was away or refused for `patience_s`. It is not stored.
        UnknownOutcome: no answer for `patience_s`. It may be stored.
    """
    patience = Patience(link, subject)
    while True:
        try:
            return await store(link, subject, data, more)
        except Unavailable as error:
            await patience.after(error)


class Patience:
    """How long one message keeps trying, and whether an earlier attempt may have worked."""

    def __init__(self, link: Link, subject: str) -> None:
        """Start to count."""
        self._link = link
        self._subject = subject
        self._deadline_s = link.clock.monotonic_s() + link.settings.patience_s
        self._pause_s = PAUSE_S_MIN
        self.unsure = False
        """An attempt went unanswered: whatever is met now may be its work."""

    async def after(self, error: Unavailable) -> None:
        """Wait before the next attempt.

        Raises:
            UnknownOutcome: `patience_s` is over, and some attempt went unanswered.
            Unavailable: `patience_s` is over, and every attempt was refused.
        """
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

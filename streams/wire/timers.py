"""A timer as a message: while it is armed, and once it has fired. Pure.

The body and our own headers stay the same when a timer fires; the server adds and removes its own.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from streams.errors import BadName, TooLarge, UnreadableEvent
from streams.json import UNDECODABLE, JsonObject, raw
from streams.ports.delivery import Unreadable
from streams.ports.timers import (
    DUE_MAX,
    TIMER_BYTES_MAX,
    TIMER_ID_CHARS_MAX,
    Due,
    PendingTimer,
    Timer,
)
from streams.wire.messages import TimedMessage, message_headers, unreadable

TIMER_ID_HEADER: Final = "Vigil-Timer-Id"
"""Names one arming. Not the message id: the server takes that off when a timer fires."""


class _TimerBody(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="timer@1"):
    purpose: str
    key: str
    payload: JsonObject
    due_at: datetime


_decoder: msgspec.json.Decoder[_TimerBody] = msgspec.json.Decoder(_TimerBody)


def due_time(at: datetime) -> datetime:
    """Return `at` in UTC; raise `ValueError` without a time zone, or past `DUE_MAX`."""
    if at.utcoffset() is None:
        raise ValueError(f"a timer due at {at.isoformat()}, without a time zone")
    if at > DUE_MAX:
        raise ValueError(f"a timer due at {at.isoformat()}: the latest is {DUE_MAX.isoformat()}")
    return at.astimezone(UTC)


def timer_body(timer: Timer, *, due_at: datetime) -> bytes:
    """Return the message body of `timer`; raises as `raw` does.

    Raises:
        TooLarge: over `TIMER_BYTES_MAX` bytes.
    """
    said = _TimerBody(purpose=timer.purpose, key=timer.key, payload=timer.payload, due_at=due_at)
    body = bytes(raw(said))
    if len(body) > TIMER_BYTES_MAX:
        what = f"timer {timer.purpose} of {timer.actor}"
        raise TooLarge(what, size_bytes=len(body), limit_bytes=TIMER_BYTES_MAX)
    return body


def timer_headers(*, id: str, trace: str = "") -> dict[str, str]:
    """Return the headers of the arming `id`, which the server keeps once.

    Commands are in the same stream, so a message id says that it is a timer's.
    """
    # guard: repeated-arming-fires-once
    return {TIMER_ID_HEADER: id, **message_headers(id=f"timer:{id}", trace=trace)}


def sent_headers(*, id: str, trace: str) -> dict[str, str]:
    """Return the headers of a timer that is sent under an `id` of its sender's.

    Raises:
        BadName: the id is empty, too long, or would not come back from a header as it is.
    """
    is_kept = id.isprintable() and id == id.strip()  # guard: timer-id-unchanged
    if not is_kept or not 0 < len(id) <= TIMER_ID_CHARS_MAX:
        raise BadName(
            f"id of a timer: {id[:40]!r}; use 1 to {TIMER_ID_CHARS_MAX} printable characters, "
            "without a space at either end"
        )
    return timer_headers(id=id, trace=trace)


def parse_pending(data: bytes, *, subject: str, revision: int) -> PendingTimer:
    """Return the timer that is armed on `subject`."""
    try:
        body = _decoder.decode(data)
    except UNDECODABLE as error:
        raise UnreadableEvent(subject, seq=revision, detail=str(error)) from error
    return PendingTimer(payload=body.payload, due_at=body.due_at, revision=revision)


def parse_due(message: TimedMessage, *, stream: str) -> Due | Unreadable:
    """Return the timer that has fired into a subject, or why the message is none."""
    try:
        body = _decoder.decode(message.data)
    except UNDECODABLE as error:
        return unreadable(message, stream=stream, detail=str(error))
    return Due(
        id=message.headers.get(TIMER_ID_HEADER) or f"{stream}:{message.seq}",
        purpose=body.purpose,
        key=body.key,
        payload=body.payload,
        due_at=body.due_at,
        fired_at=message.at,
    )

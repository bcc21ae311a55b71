"""What an answer over HTTP means for a delivery. Pure.

| status | means |
| --- | --- |
| 2xx | delivered |
| 408, 425, 429, 5xx | not now: tried again, not before `Retry-After` |
| 3xx | never: redirects are not followed, because the next address is not the one declared |
| any other | never: the receiver does not want it |
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import msgspec

from engine.adapter import DeliveryFailed
from streams.json import UNDECODABLE

TRANSIENT: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Below 500, what may be different the next time."""

RETRY_AFTER_S_MAX: Final = 86_400.0
"""Longest wait that a receiver can ask for, in seconds: a day."""

REF_CHARS_MAX: Final = 512
"""Longest name of a delivery that is kept; the rest is cut."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    """As much of it as was read."""


def check(answer: Answer, *, now: datetime) -> None:
    """Return if `answer` says that the receiver has accepted the output.

    Raises:
        DeliveryFailed: it does not; the error class is `http_` and the status. Its detail is the
            answer's text, which may quote what is a secret.
    """
    status = answer.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    is_transient = status in TRANSIENT or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    raise DeliveryFailed(
        f"http_{status}",
        _words(answer),
        permanent=not is_transient,
        retry_after_s=retry_after_s(answer.headers.get("retry-after", ""), now=now),
    )


def retry_after_s(said: str, *, now: datetime) -> float | None:
    """Return how long the receiver asks to wait, or None if it does not ask (RFC 9110, 10.2.3).

    It says so in seconds, or as a date. More than `RETRY_AFTER_S_MAX` is that.
    """
    said = said.strip()
    if said.isascii() and said.isdigit():
        return min(float(said), RETRY_AFTER_S_MAX)
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), RETRY_AFTER_S_MAX)


def receipt(answer: Answer) -> str | None:
    """Return what the receiver calls the delivery: `id` of its JSON answer, else `Location`."""
    named = _id(answer.body) or answer.headers.get("location", "")
    return named[:REF_CHARS_MAX] or None


def _id(body: bytes) -> str:
    try:
        said: object = msgspec.json.decode(body)
    except UNDECODABLE:
        return ""
    id_: object = said.get("id") if isinstance(said, dict) else None
    is_name = isinstance(id_, str | int) and not isinstance(id_, bool)
    return str(id_) if is_name else ""


def _words(answer: Answer) -> str:
    if HTTPStatus.MULTIPLE_CHOICES <= answer.status < HTTPStatus.BAD_REQUEST:
        return "it redirects, and redirects are not followed"
    text = answer.body.decode(errors="replace")
    return " ".join(text.split())

"""Reads messages by subject or sequence, without a consumer.

From the leader: one at a time, never stale. Directly: a whole subject, or the last message of each
of many, in one request, from any replica, which may lag an acknowledged write for moments (three
replicas; measured 2 to 3 in 100 reads right after a write).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from streams.errors import NoSuchStream, Unavailable
from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.protocol import Received
from streams.jetstream.connection.session import Session
from streams.jetstream.messages import api
from streams.json import JsonObject
from streams.ports.domain_events import SINCE_MAX, SINCE_MIN

BATCH_MAX: Final = 1000
"""Messages per question. Measured: 37 ms for a thousand of 300 bytes."""

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes per question: above the largest message, below what a second can carry."""

SUBJECTS_MAX: Final = 100
"""Subjects of one question about their last messages."""

_ANY: Final = ">"

_END: Final = "204"
_NOTHING: Final = "404"

_encoder = msgspec.json.Encoder()


class Stored(msgspec.Struct, frozen=True):
    """One message of a stream."""

    subject: str
    seq: int
    headers: Headers
    data: bytes
    time: str
    """When the server stored it, as it writes that."""

    @property
    def at(self) -> datetime:
        """When the server stored it."""
        return datetime.fromisoformat(self.time)


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """Which stream it is, and how far it goes."""

    created: str
    """When it was made, as the server writes it. A stream made anew has another time."""
    first_seq: int
    """Of its oldest message; without any, where the next one will be, or 0."""
    newest_seq: int
    """Of the newest message that it ever had, or 0."""
    retention: str
    """`limits` if it keeps what it holds no matter who has read it."""
    replicas: int = 1
    max_age_ns: int = 0
    """How long it keeps a message, in nanoseconds; 0: for ever."""


class _Raw(msgspec.Struct, frozen=True):
    """The message as the leader sends it; bytes are base64 in its JSON."""

    subject: str
    seq: int
    time: str
    hdrs: bytes = b""
    data: bytes = b""


async def last(link: Link, stream: str, subject: str) -> Stored | None:
    """Return the last message on `subject`, as the leader knows it."""
    return await _from_leader(link, stream, {"last_by_subj": subject})


async def at(link: Link, stream: str, seq: int) -> Stored | None:
    """Return the message at `seq`, as the leader knows it."""
    return await _from_leader(link, stream, {"seq": seq})


async def first_after(link: Link, stream: str, subject: str, *, seq: int) -> Stored | None:
    """Return the first message on `subject` past `seq`, as the leader knows it."""
    return await _from_leader(link, stream, {"seq": seq + 1, "next_by_subj": subject})


async def all_between(
    link: Link, stream: str, subject: str, *, after: int, up_to: int
) -> list[Stored]:
    """Return the messages on `subject` past `after` up to `up_to`, as the leader knows them."""
    found: list[Stored] = []
    seq, left = after, True
    while left and seq < up_to:
        most = min(up_to - seq, BATCH_MAX)
        page, left = await _page(link, stream, subject, seq=seq, most=most)
        found += page
        seq = page[-1].seq if page else seq
    # A replica may lack the newest ones.
    while seq < up_to and (one_more := await first_after(link, stream, subject, seq=seq)):
        found.append(one_more)
        seq = one_more.seq
    return [each for each in found if each.seq <= up_to]  # guard: stored-beyond-last-left-out


async def first_between(
    link: Link, stream: str, *, after: int, up_to: int, most: int
) -> list[Stored]:
    """Return the first messages past `after` up to `up_to`, on any subject: some, up to `most`.

    None: there are no more, as the leader knows.
    """
    if after >= up_to:
        return []
    asked = min(most, up_to - after, BATCH_MAX)
    page, _ = await _page(link, stream, _ANY, seq=after, most=asked)
    # A replica may lack the newest ones.
    if not page:
        one_more = await first_after(link, stream, _ANY, seq=after)
        page = [one_more] if one_more else []
    return [each for each in page if each.seq <= up_to]  # guard: page-beyond-last-left-out


async def every_after(
    link: Link, stream: str, subject: str, *, seq: int
) -> AsyncGenerator[Stored, None]:
    """Yield the messages on `subject` past `seq`, directly."""
    left = True
    while left:
        page, left = await _page(link, stream, subject, seq=seq)
        for stored in page:
            seq = stored.seq
            yield stored


async def page_after(
    link: Link, stream: str, subject: str, *, seq: int, since: datetime | None = None
) -> list[Stored]:
    """Return the first messages on `subject` past `seq`, or since a time, directly."""
    page, _ = await _page(link, stream, subject, seq=seq, since=since)
    return page


def in_server_time(since: datetime) -> str:
    """Return `since`, which has a zone, as the server's API takes it."""
    said = min(max(since.astimezone(UTC), SINCE_MIN), SINCE_MAX)
    return said.isoformat(timespec="microseconds").replace("+00:00", "Z")


async def newest(link: Link, stream: str, subjects: Sequence[str]) -> list[Stored]:
    """Return the last message on each of `subjects` that has one, directly."""
    found: list[Stored] = []
    for begin in range(0, len(subjects), SUBJECTS_MAX):
        found += await _newest(link, stream, subjects[begin : begin + SUBJECTS_MAX])
    return found


async def _newest(link: Link, stream: str, subjects: Sequence[str]) -> list[Stored]:
    found: dict[str, Stored] = {}
    left = True
    while left:
        asked = [subject for subject in subjects if subject not in found]
        question = {"multi_last": asked, "max_bytes": BATCH_BYTES_MAX}
        page, left = await _ask_directly(link, stream, question)
        if left and not page:  # guard: empty-answer-ends-asking
            raise Unavailable(stream, detail="direct get brought none of the messages it has")
        found.update((each.subject, each) for each in page)  # guard: newest-commits-until-none-left
    return list(found.values())


async def one_by_one(link: Link, stream: str, subject: str) -> AsyncGenerator[Stored, None]:
    """Yield the messages on `subject`, each asked for as the leader knows it by then."""
    seq = 0
    while (found := await first_after(link, stream, subject, seq=seq)) is not None:
        seq = found.seq
        yield found


async def newest_seq(link: Link, stream: str) -> int:
    """Return the sequence of the newest message that `stream` ever had, or 0."""
    return (await extent(link, stream)).newest_seq


async def extent(link: Link, stream: str) -> Extent:
    """Return which stream goes by this name now, and how far it goes, or raise `NoSuchStream`."""
    try:
        info = await api.call(link, f"STREAM.INFO.{stream}")
    except api.RequestRefused as error:
        raise _refusal(stream, error) from error
    return Extent(
        created=info["created"],
        first_seq=info["state"]["first_seq"],
        newest_seq=info["state"]["last_seq"],
        retention=info["config"]["retention"],
        replicas=info["config"].get("num_replicas", 1),
        max_age_ns=info["config"].get("max_age", 0),
    )


async def counts(link: Link, stream: str, subject: str) -> Mapping[str, int]:
    """Return how many messages there are on each subject that `subject` covers.

    Of 100,000 subjects at most: the server lists no more at a time.
    """
    request = {"subjects_filter": subject}
    try:
        info = await api.call(link, f"STREAM.INFO.{stream}", request)
    except api.RequestRefused as error:
        raise _refusal(stream, error) from error
    return info["state"].get("subjects") or {}


async def _from_leader(link: Link, stream: str, which: JsonObject) -> Stored | None:
    try:
        answer = await api.call(link, f"STREAM.MSG.GET.{stream}", which)
    except api.RequestRefused as error:
        if error.err_code == api.MESSAGE_NOT_FOUND:
            return None
        raise _refusal(stream, error) from error
    raw = msgspec.convert(answer["message"], _Raw)
    return Stored(raw.subject, raw.seq, headers.parse(raw.hdrs), raw.data, raw.time)


def _refusal(stream: str, error: api.RequestRefused) -> Unavailable:
    if error.err_code == api.STREAM_NOT_FOUND:
        return NoSuchStream(stream)
    return Unavailable(stream, detail=str(error))


async def _page(
    link: Link,
    stream: str,
    subject: str,
    *,
    seq: int,
    most: int = BATCH_MAX,
    since: datetime | None = None,
) -> tuple[list[Stored], bool]:
    begin = {"seq": seq + 1} if since is None else {"start_time": in_server_time(since)}
    question = {
        **begin,
        "next_by_subj": subject,
        "batch": most,
        "max_bytes": BATCH_BYTES_MAX,
    }
    return await _ask_directly(link, stream, question)


async def _ask_directly(link: Link, stream: str, question: JsonObject) -> tuple[list[Stored], bool]:
    """Return the messages that answer `question`, and whether more are left."""
    data = _encoder.encode(question)

    async def once(session: Session) -> list[Received]:
        subject = link.settings.api(f"DIRECT.GET.{stream}")
        return await session.request_all(subject, data, is_last=_is_status)

    *answers, end = await link.ask_with(once)
    status = end.status
    if status not in {_END, _NOTHING}:
        raise Unavailable(stream, detail=f"direct get ended with status {status}")
    left = status == _END and int(end.headers.get(headers.PENDING, "0")) > 0
    return [_direct(answer) for answer in answers], left


def _is_status(msg: Received) -> bool:
    return msg.status != ""


def _direct(msg: Received) -> Stored:
    given = msg.headers
    seq, time = int(given[headers.SEQUENCE]), given[headers.STORED_AT]
    return Stored(given[headers.SUBJECT], seq, given, msg.data, time)

"""The event log on JetStream: appends with a version check, reads by exact subject.

**The append protocol.** One message per commit, with the version as the expected last
sequence of its exact subject. When an answer is lost the identical message is sent again:

    stored before  → the check fails, and the first commit past `after` has our id → success
    not stored     → it is stored now; a late copy of the first attempt fails the check
    someone else's → the check fails, and the first commit past `after` is theirs → conflict
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from opentelemetry import metrics, trace
from opentelemetry.trace import StatusCode

from streams.errors import StreamError, VersionConflict
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.session import Headers
from streams.jetstream.messages import stored
from streams.jetstream.messages.grouping import Groups, store_checked
from streams.jetstream.messages.publish import Write
from streams.jetstream.ports.follow import OrderedReader, Tails
from streams.layout import Kind, Stream
from streams.ports.log import START, Commit, Follower, Recorded
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER, TRACE_HEADER, parse_commit

_tracer = trace.get_tracer("vigil.streams")
_append_duration = metrics.get_meter("vigil.streams").create_histogram(
    "vigil.append.duration", unit="s", description="How long one append took, retries included."
)


class JetStreamLog:
    """`EventLog` on the journal and the dead letters of one stack."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link = link
        self._stack = stack
        self._groups = Groups(link)
        self._tails: Tails[Recorded] = Tails()

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        """See `EventLog.append`."""
        started_s = self._link.clock.monotonic_s()
        outcome = "stored"
        # Nothing within becomes its child, so it need not be the current one, which costs more.
        span = _tracer.start_span("append", attributes={"vigil.subject": subject})
        try:
            return await self._append(subject, commit, after=after)
        except StreamError as error:
            outcome = type(error).__name__
            span.record_exception(error)
            span.set_status(StatusCode.ERROR, outcome)
            raise
        finally:
            took_s = self._link.clock.monotonic_s() - started_s
            _append_duration.record(took_s, {"outcome": outcome})
            span.end()

    async def read(self, subject: str, *, after: int = START) -> Sequence[Recorded]:
        """See `EventLog.read`."""
        stream = self._stack.stream_of(subject)
        messages = stored.every_after(self._link, stream, subject, seq=after)
        return [parse_commit(each) async for each in messages]

    async def last(self, subject: str) -> Recorded | None:
        """See `EventLog.last`."""
        found = await stored.last(self._link, self._stack.stream_of(subject), subject)
        return parse_commit(found) if found else None

    async def newest(self, subjects: Sequence[str]) -> Mapping[str, Recorded]:
        """See `EventLog.newest`."""
        by_stream: dict[str, list[str]] = defaultdict(list)
        for subject in subjects:
            by_stream[self._stack.stream_of(subject)].append(subject)
        reads = (stored.newest(self._link, name, each) for name, each in by_stream.items())
        found = [message for messages in await asyncio.gather(*reads) for message in messages]
        return {message.subject: parse_commit(message) for message in found}

    async def subjects(self, kind: Kind) -> Sequence[str]:
        """See `EventLog.subjects`."""
        stack, holder = self._stack, self._stack.holder_of(kind)
        counted = [
            await stored.counts(
                self._link, stack.stream(holder, each), stack.aggregates(kind, each)
            )
            for each in stack.partitions_of(holder)
        ]
        return sorted(subject for counts in counted for subject in counts)

    async def at(
        self, seq: int, stream: Stream = Stream.JOURNAL, *, partition: int = 0
    ) -> Recorded | None:
        """See `EventLog.at`."""
        found = await stored.at(self._link, self._stack.stream(stream, partition), seq)
        return parse_commit(found) if found else None

    async def head(self, stream: Stream = Stream.JOURNAL, *, partition: int = 0) -> int:
        """See `EventLog.head`."""
        return await stored.newest_seq(self._link, self._stack.stream(stream, partition))

    async def opened(self, records: Sequence[Recorded]) -> Sequence[Recorded]:
        """See `EventLog.opened`."""
        return records

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """See `EventLog.first_seq`."""
        name = self._stack.stream(stream, partition)
        return max(1, (await stored.extent(self._link, name)).first_seq)

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """See `EventLog.page`."""
        name = self._stack.stream(stream, partition)
        found = await stored.first_between(self._link, name, after=after, up_to=up_to, most=most)
        return [parse_commit(each) for each in found]

    def follow(
        self, stream: Stream = Stream.JOURNAL, *, after: int = START, partition: int = 0
    ) -> AbstractAsyncContextManager[Follower]:
        """See `EventLog.follow`."""
        name = self._stack.stream(stream, partition)
        return OrderedReader(self._link, name, parse_commit, after=after, tails=self._tails)

    async def _append(self, subject: str, commit: Commit, *, after: int) -> int:
        stream = self._stack.stream_of(subject)
        data, more = codec.encode_commit(commit), _headers(commit, after=after)
        return await store_checked(
            self._link,
            self._groups.to(stream),
            Write(subject, data, more, key=subject),
            # The commit *following* `after` decides, not the last one: somebody may have gone on
            # from ours before we came back to ask.
            find=partial(stored.first_after, self._link, stream, subject, seq=after),
            mark=COMMIT_HEADER,
            conflict=partial(VersionConflict, subject, expected=after),
        )


def _headers(commit: Commit, *, after: int) -> Headers:
    # guard: real-append-at-version
    more = {headers.EXPECTED_SEQ: str(after), COMMIT_HEADER: commit.id}
    return {**more, TRACE_HEADER: commit.trace} if commit.trace else more

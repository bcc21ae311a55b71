"""The journal and the dead letters in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from streams.layout import Kind, Stream
from streams.memory.following import MemoryFollower
from streams.memory.stream import MemoryStream
from streams.ports.log import START, Commit, Recorded
from streams.subjects import Stack
from streams.wire import codec
from streams.wire.messages import COMMIT_HEADER, TRACE_HEADER, parse_commit


class MemoryLog:
    """An `EventLog` that keeps encoded bytes, so that every read goes through the codec."""

    def __init__(self, streams: Mapping[str, MemoryStream], *, stack: Stack) -> None:
        self._streams = streams
        self._stack = stack

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        """See `EventLog.append`."""
        headers = {COMMIT_HEADER: commit.id}
        if commit.trace:
            headers[TRACE_HEADER] = commit.trace
        data = codec.encode_commit(commit)
        return self._stream_of(subject).publish(subject, data, headers, after=after)

    async def read(self, subject: str, *, after: int = START) -> Sequence[Recorded]:
        """See `EventLog.read`."""
        return [parse_commit(each) for each in self._stream_of(subject).of(subject, after=after)]

    async def last(self, subject: str) -> Recorded | None:
        """See `EventLog.last`."""
        message = self._stream_of(subject).last_of(subject)
        return None if message is None else parse_commit(message)

    async def newest(self, subjects: Sequence[str]) -> Mapping[str, Recorded]:
        """See `EventLog.newest`."""
        found = [self._stream_of(each).last_of(each) for each in subjects]
        return {one.subject: parse_commit(one) for one in found if one is not None}

    async def subjects(self, kind: Kind) -> Sequence[str]:
        """See `EventLog.subjects`."""
        stack, holder = self._stack, self._stack.holder_of(kind)
        parts = [(each, stack.aggregates(kind, each)) for each in stack.partitions_of(holder)]
        return sorted(
            subject
            for partition, those in parts
            for subject in self._partition(holder, partition).subjects()
            if subject.startswith(those.removesuffix(">"))
        )

    async def at(
        self, seq: int, stream: Stream = Stream.JOURNAL, *, partition: int = 0
    ) -> Recorded | None:
        """See `EventLog.at`."""
        held = self._partition(stream, partition)
        return (
            parse_commit(held.at(seq)) if max(1, held.first_seq) <= seq <= held.last_seq else None
        )

    async def head(self, stream: Stream = Stream.JOURNAL, *, partition: int = 0) -> int:
        """See `EventLog.head`."""
        return self._partition(stream, partition).last_seq

    async def opened(self, records: Sequence[Recorded]) -> Sequence[Recorded]:
        """See `EventLog.opened`."""
        return records

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """See `EventLog.first_seq`."""
        return max(1, self._partition(stream, partition).first_seq)

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """See `EventLog.page`."""
        found = self._partition(stream, partition).past(after, most=most)
        return [parse_commit(each) for each in found if each.seq <= up_to]

    def records(self, stream: Stream) -> Sequence[Recorded]:
        """Return every commit of `stream`, one partition after the other."""
        parts = self._stack.partitions_of(stream)
        held = (self._partition(stream, each).past(0) for each in parts)
        return [parse_commit(message) for messages in held for message in messages]

    def follow(
        self, stream: Stream = Stream.JOURNAL, *, after: int = START, partition: int = 0
    ) -> AbstractAsyncContextManager[MemoryFollower[Recorded]]:
        """See `EventLog.follow`."""
        held = self._partition(stream, partition)
        return nullcontext(MemoryFollower(held, parse_commit, after=after))

    def publish_raw(self, subject: str, data: bytes, headers: Mapping[str, str]) -> int:
        """Put a message on `subject` without a version check, as a foreign client would."""
        return self._stream_of(subject).publish(subject, data, headers)

    def _stream_of(self, subject: str) -> MemoryStream:
        return self._streams[self._stack.stream_of(subject)]

    def _partition(self, stream: Stream, partition: int) -> MemoryStream:
        return self._streams[self._stack.stream(stream, partition)]

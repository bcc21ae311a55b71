"""The port to the log: append a commit at a version, read it back, follow everyone's.

An aggregate is one exact subject. Its *version* is the stream sequence of its last commit, and
every append names the version it was decided on: that check, not any lease, is what makes a second
writer impossible.

Aggregates are in two streams, the journal and the state, and a stack may spread each of these over
several (`Stack.partitions`). An aggregate lives in one of them, which its subject names; only what
goes by sequence has to name a stream and a partition, and to get everything is to ask each of
`Stack.partitions_of(stream)` of both. Sequences of two streams have no common order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final, Protocol

import msgspec

from streams.layout import Kind, Stream
from streams.model.events import LogEvent
from streams.model.sealed import Sealed

START: Final = 0
"""As a version: the aggregate does not exist yet. As a position: the log's beginning."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one aggregate that happen together or not at all."""

    id: str
    """Unique for ever. After an unknown outcome it tells our commit from a rival's."""
    at: datetime
    """When it was decided, by the writer's clock. Rules use this time, never the reader's."""
    events: tuple[LogEvent, ...]
    trace: str = ""
    """W3C `traceparent` of the span that decided it; empty when nobody traces."""
    sealed: Sealed | None = None
    """The events with their contents, encrypted; `events` have none then. None: they have all."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A commit and its place on the log."""

    subject: str
    seq: int
    """Stream sequence, from 1; the aggregate's version after this commit."""
    commit: Commit


class Follower(Protocol):
    """A position in a stream that moves forward."""

    @property
    def pending(self) -> int:
        """How many messages the stream held beyond the last one returned, when it was sent."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Recorded]:
        """Return the next commits in log order: up to `most`, none after `wait_s` of silence.

        Survives server restarts and reconnects without gaps or repeats. If it is cancelled,
        follow anew: what it had taken already is not returned again.

        Raises:
            UnreadableEvent: the next commit cannot be decoded. The position stays before it.
            Unavailable: the stream was made anew meanwhile, or ends before our position. Look
                at its contents before following it again.
        """


class EventLog(Protocol):
    """An append-only log of commits, ordered per aggregate."""

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        """Append `commit` if the aggregate is still at version `after`; return its new version.

        A lost acknowledgement is resolved inside: the result is that, or one of these four.

        Raises:
            VersionConflict: someone else appended first. Nothing of `commit` is on the log.
            TooLarge: the commit is over the server's message limit. Never retry it.
            UnknownOutcome: no answer for `patience_s`. It MAY be on the log.
            Unavailable: the server refused or was away for `patience_s`. It is not on the log.
        """

    async def read(self, subject: str, *, after: int = START) -> Sequence[Recorded]:
        """Return the aggregate's commits past version `after`, oldest first.

        May lag an acknowledged append for moments on a replicated stream; a decision made on such a
        read is refused by the version check of its append. Raises, as `last` and `at`:
            UnreadableEvent: a commit cannot be decoded.
        """

    async def last(self, subject: str) -> Recorded | None:
        """Return the aggregate's last commit as the stream's leader knows it, or None."""

    async def newest(self, subjects: Sequence[str]) -> Mapping[str, Recorded]:
        """Return the last commit of each aggregate that has one, by subject, in few requests.

        May lag an acknowledged append for moments, as `read` may.
        """

    async def subjects(self, kind: Kind) -> Sequence[str]:
        """Return the subject of every aggregate of a kind, as the leaders know them, in order.

        Of 100,000 in each partition at most: the server lists no more.
        """

    async def at(
        self, seq: int, stream: Stream = Stream.JOURNAL, *, partition: int = 0
    ) -> Recorded | None:
        """Return the commit at `seq` as the stream's leader knows it, or None."""

    async def head(self, stream: Stream = Stream.JOURNAL, *, partition: int = 0) -> int:
        """Return the sequence of the newest message in a partition; 0 when it never had one."""

    async def opened(self, records: Sequence[Recorded]) -> Sequence[Recorded]:
        """Return what an archive has of this log as the log returns it: decrypted, where it is."""

    async def first_seq(self, stream: Stream, *, partition: int = 0) -> int:
        """Return the first sequence that can be read; 1: nothing is missing at the beginning.

        Without any messages, where the next one will be.
        """

    async def page(
        self, stream: Stream, *, after: int, up_to: int, most: int, partition: int = 0
    ) -> Sequence[Recorded]:
        """Return the first commits past `after` up to `up_to`, of every aggregate in a partition.

        Some of them, up to `most`; none: there are no more, as the leader knows. Needs no consumer.

        Raises:
            UnreadableEvent: one of them cannot be decoded.
        """

    def follow(
        self, stream: Stream = Stream.JOURNAL, *, after: int = START, partition: int = 0
    ) -> AbstractAsyncContextManager[Follower]:
        """Return a follower of every aggregate in a partition, from just past sequence `after`."""

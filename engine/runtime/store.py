"""Reads an aggregate, decides, appends at the version that was read; again if others were faster.

The writers of one node that share `Turns` wait for each other, so they never race. Of several
nodes, one that was too late decides again, after a pause that grows with every loss.

An append may raise `UnknownOutcome` (it may have happened), `TooLarge` or `Unwritable`, besides
what `engine.errors` says of any use of the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Generic, TypeVar, cast
from weakref import WeakValueDictionary

from engine.validation import backoff_s, jittered_s
from streams.clock import Clock
from streams.errors import Unavailable, VersionConflict
from streams.model.events import LogEvent
from streams.ports.log import START, Commit, EventLog, Recorded
from streams.tracing import traceparent

S = TypeVar("S")
E = TypeVar("E", bound=LogEvent)
T = TypeVar("T")

CONFLICTS_MAX: Final = 100
"""Races for one aggregate that a writer may lose to other nodes, in up to 50 s, before its change
is left for later. Every loss is another's gain."""

CONFLICT_S: Final = 0.002
"""Longest pause after the first lost race: about what one append takes. It doubles each time."""

CONFLICT_MAX_S: Final = 0.5
"""Longest pause between two races."""

READS_MAX: Final = 10
"""Reads of an aggregate whose newest commit a replica lacks, in up to 2 s."""

READ_S: Final = 0.01
"""Pause after the first of them, in seconds; it doubles each time."""

READ_MAX_S: Final = 0.5
"""Longest pause between two reads."""


class Contended(Unavailable):
    """Others appended first, again and again. Nothing was written; do it again later."""


class Overtaken(Exception):
    """Others appended since the aggregate was read. `Store.retry` reads it and tries again."""


class Turn(asyncio.Lock):
    """The lock for writing to one aggregate, and what its users have read of that so far."""

    known: Loaded[object] | None = None
    """So that the next user reads only what is new."""


class Turns:
    """One node's locks for writing, one per aggregate."""

    def __init__(self, *, kept_max: int = 0) -> None:
        """Forget a lock with its last user, unless it is one of the `kept_max` used last."""
        self._locks: WeakValueDictionary[str, Turn] = WeakValueDictionary()
        self._kept: deque[Turn] = deque(maxlen=kept_max)

    def of(self, subject: str) -> Turn:
        """Return the lock for writing at `subject`."""
        turn = self._locks.setdefault(subject, Turn())
        if turn in self._kept:
            self._kept.remove(turn)
        self._kept.append(turn)
        return turn


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """An aggregate as it was read."""

    subject: str
    state: S
    records: Sequence[Recorded] = ()
    """The commits that `state` is the fold of, oldest first."""

    @property
    def version(self) -> int:
        """The version that it was read at."""
        return self.records[-1].seq if self.records else START


@dataclass(frozen=True, slots=True)
class Changed(Generic[S, E]):
    """An aggregate before and after a decision."""

    before: Loaded[S]
    after: Loaded[S]
    events: tuple[E, ...]
    """What was appended; empty: nothing."""


def all_of_it(_: Recorded) -> int:
    """Read an aggregate from its first commit on."""
    return START


def only_newest(newest: Recorded) -> int:
    """Read only the newest commit of an aggregate."""
    return newest.seq - 1


@dataclass(frozen=True)
class Store(Generic[S, E]):
    """Reads and changes aggregates of one kind."""

    log: EventLog
    clock: Clock
    fold: Callable[..., S]
    after: Callable[[Recorded], int] = all_of_it
    """Given the newest commit: past which version the log is to be read for the fold."""
    turns: Turns = field(default_factory=Turns)
    """Shared by all on this node that often write to the same aggregate."""
    folds_on: bool = False
    """Whether `fold` takes a state, to fold more commits onto; then only the newest is kept."""

    async def load(self, subject: str, *, known: Loaded[S] | None = None) -> Loaded[S]:
        """Return the aggregate up to the newest commit that the leader of its stream has.

        Of `known`, which was loaded before, only what is new is read.
        """
        return await self._load(subject, cast("Loaded[object] | None", known))

    async def append(
        self,
        before: Loaded[S],
        events: Sequence[E],
        *,
        id: str,
        at: datetime,
        state: S | None = None,
    ) -> Loaded[S]:
        """Append `events` at the version of `before`; `Overtaken` if others were faster.

        `id` of the commit is unique for ever, but the same each time that it is tried again.
        `state` is what `events` lead to, if that is known; else it is folded again.
        """
        subject, commit = before.subject, commit_of(events, id=id, at=at)
        try:
            # guard: second-definer-decides-again
            seq = await self.log.append(subject, commit, after=before.version)
        except VersionConflict as error:
            raise Overtaken from error
        records = (*before.records, Recorded(subject=subject, seq=seq, commit=commit))
        return Loaded(subject, self.fold(records) if state is None else state, records)

    async def change(
        self,
        subject: str,
        decide: Callable[[S, datetime], Sequence[E]],
        *,
        id: str,
        known: Loaded[S] | None = None,
    ) -> Changed[S, E]:
        """Append what `decide` makes of the aggregate; if that is nothing, append nothing.

        `decide` is pure: it is called again whenever others were faster. What it raises is raised
        here. `known` is the aggregate, if it was read just now; `id` is as for `append`.
        """

        async def attempt(before: Loaded[S]) -> Changed[S, E]:
            at = self.clock.now()
            events = tuple(decide(before.state, at))
            after = await self.append(before, events, id=id, at=at) if events else before
            return Changed(before, after, events)

        return await self.retry(subject, attempt, seed=id, known=known)

    async def retry(
        self,
        subject: str,
        attempt: Callable[[Loaded[S]], Awaitable[T]],
        *,
        seed: str,
        known: Loaded[S] | None = None,
    ) -> T:
        """Return what `attempt` returns; call it again on a fresh read while it raises `Overtaken`.

        For what `change` cannot do. `seed` is the writer's own, so that rivals pause differently.
        """
        # The turn is kept during a pause: the others of this node would only lose as well.
        turn = self.turns.of(subject)
        async with turn:  # guard: finding-writers-take-turns
            for tries in range(1, CONFLICTS_MAX + 1):
                loaded, known = known or await self._load(subject, turn.known), None
                if self.after is all_of_it:
                    turn.known = cast("Loaded[object]", loaded)  # guard: takers-read-new-only
                try:
                    return await attempt(loaded)
                except Overtaken:  # guard: overtaken-person-decides-again
                    pause_s = backoff_s(tries, first_s=CONFLICT_S, most_s=CONFLICT_MAX_S)
                await self.clock.sleep(jittered_s(pause_s, seed=f"{seed}.{tries}"))
        raise Contended(subject, detail=f"lost {CONFLICTS_MAX} races for it")

    async def _load(self, subject: str, read: Loaded[object] | None) -> Loaded[S]:
        # What is kept of an aggregate is of its kind.
        known = cast("Loaded[S] | None", read)
        newest = await self.log.last(subject)
        if newest is None:
            return Loaded(subject, self.fold(()))
        # guard: remade-stream-forgets-read
        if known is not None and known.version > newest.seq:  # The stream was made anew.
            known = None
        after = known.version if known is not None else self.after(newest)
        if known is not None and after == newest.seq:
            return known
        new: Sequence[Recorded] = (newest,)
        if after < only_newest(newest):
            new = await read_up_to(self.log, self.clock, newest, after=after)
        if known is not None and self.folds_on:  # guard: known-commits-folded-once
            return Loaded(subject, self.fold(new, known.state), new[-1:])
        records = (*known.records, *new) if known is not None else new
        return Loaded(subject, self.fold(records), records)


def commit_of(events: Sequence[LogEvent], *, id: str, at: datetime) -> Commit:
    """Return a commit of `events` with the current trace."""
    return Commit(id=id, at=at, events=tuple(events), trace=traceparent())


async def append_events(
    log: EventLog, subject: str, events: Sequence[LogEvent], *, id: str, at: datetime, after: int
) -> int:
    """Append a commit of `events` at a known version, and return the new one.

    For aggregates that are kept folded between commits; `VersionConflict` if others were faster.
    """
    return await log.append(subject, commit_of(events, id=id, at=at), after=after)


async def append_first(log: EventLog, subject: str, commit: Commit) -> bool:
    """Append the first commit of an aggregate; return False if there is one already."""
    try:
        await log.append(subject, commit, after=START)
    except VersionConflict:
        return False
    return True


async def read_current(log: EventLog, clock: Clock, subject: str) -> Sequence[Recorded]:
    """Return all commits of an aggregate that the leader of its stream knows.

    For whoever refuses by what it reads; others, who read too little, are refused by the version.
    """
    newest = await log.last(subject)
    return () if newest is None else await read_up_to(log, clock, newest)


async def read_up_to(
    log: EventLog, clock: Clock, newest: Recorded, *, after: int = START
) -> Sequence[Recorded]:
    """Return the commits of an aggregate past version `after`, up to `newest` or further."""
    # `newest` is known from the leader of the stream. A replica, which may answer the read, may get
    # it moments later; to decide without it could do something twice.
    for tries in range(1, READS_MAX + 1):
        records = await log.read(newest.subject, after=after)
        if records and records[-1].seq >= newest.seq:  # guard: replica-may-lack-own-commit
            return records
        await clock.sleep(backoff_s(tries, first_s=READ_S, most_s=READ_MAX_S))
    raise Unavailable(f"read {newest.subject}", detail=f"no replica has commit {newest.seq} yet")

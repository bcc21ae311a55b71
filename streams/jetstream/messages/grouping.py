"""Stores many messages in one stream, in atomic batches when that is faster.

Each caller stores one message and waits for its own outcome. While few are in flight each goes
alone, at once. When more come than make a batch worth it, all that wait go as one atomic batch
(ADR-50 of the server), every message with its own check. No timer is involved.

    few in flight    ──▶ alone ───────────────────────────────▶ stored, or refused
    many in flight   ──▶ wait ──▶ together ──▶ stored ────────▶ each at its own sequence
                                     │ └─────▶ refused ───────▶ each alone: one of them is why
                                     └───────▶ no answer ─────▶ `UnknownOutcome` for each

A batch is stored whole or not at all, so its refusal is the outcome of none: sent alone, the one
with a conflict differs from the others. After no answer the caller finds out (see `log.py`) and
retries `alone`: a message that may be stored already would be refused, with all others of a batch.
Messages leave in the order in which they came. The queue needs no limit: each caller waits for its
message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from streams.clock import Clock
from streams.errors import StreamError, Unavailable, UnknownOutcome
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import GroupSettings
from streams.jetstream.messages.pace import Pace
from streams.jetstream.messages.publish import Ack, Patience, Publisher, Write, WrongSequence
from streams.jetstream.messages.stored import Stored

BODY_BYTES_MAX: Final = 512 * 1024
"""Most bytes of bodies in one batch: what the server stages while others wait."""

RUN: Final = 128
"""How many answers in a row are timed together. The server sends some dozens at once."""


STALL_S: Final = 0.25
"""How long nothing may be answered before those who wait go without those in flight: many times
what a message or a batch takes, and far less than a request waits."""

BATCH_TASK: Final = "jetstream-batch"


_ENDING: Final = UnknownOutcome("a batch", detail="the program ended while it was sent")

_Outcome: TypeAlias = Ack | BaseException | None
"""None: it is this message's turn to go alone."""


class Storing(Protocol):
    """How messages reach the stream."""

    async def store(self, write: Write) -> Ack:
        """Store one message, once. Raises like `Publisher.store`."""

    def store_all(self, writes: Sequence[Write]) -> Coroutine[Any, Any, Sequence[Ack]]:
        """Store `writes` whole or not at all. Raises like `Publisher.store_all`."""


@dataclass(slots=True, eq=False)
class _Waiting:
    write: Write
    outcome: asyncio.Future[_Outcome]


class Grouping:
    """The way to one stream through `storing`, for all of a process. Use it from one event loop."""

    def __init__(self, storing: Storing, settings: GroupSettings, clock: Clock) -> None:
        self._storing = storing
        self._settings = settings
        self._clock = clock
        self._pace = Pace(least=settings.least, is_fixed=settings.is_fixed)
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        self._singles = 0
        self._moved_s = 0.0
        self._batch: asyncio.Task[Sequence[Ack]] | None = None
        self._turn: asyncio.Handle | None = None
        self._turn_began_s = 0.0
        self._run = 0
        self._run_began_s = 0.0

    async def store(self, write: Write, *, alone: bool = False) -> Ack:
        """Store `write`, once; raises as `Publisher.store` does.

        Cancelled before it was sent, it never is; cancelled later, it may be stored. A message that
        may be stored already must go `alone`, and share no batch.
        """
        if alone or self._is_free():  # guard: doubtful-write-shares-no-batch
            self._begin_single()
            return await self._store_alone(write)
        waiting = _Waiting(write, self._loop.create_future())
        self._waiting.append(waiting)
        if self._singles == 0 or self._is_stalled():
            self._turn_soon()
        outcome = await self._outcome(waiting)
        if outcome is None:
            return await self._store_alone(write)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def _outcome(self, waiting: _Waiting) -> _Outcome:
        try:
            return await waiting.outcome
        except asyncio.CancelledError:
            if not waiting.outcome.cancelled() and waiting.outcome.result() is None:
                # guard: unused-room-given-back
                self._end_single(is_stored=False)  # It was let go, and goes nowhere.
            raise

    # Alone.

    def _is_free(self) -> bool:
        is_quiet = not self._waiting and self._batch is None and self._turn is None
        return is_quiet and self._has_room()

    def _has_room(self) -> bool:
        """Return whether one more may be in flight alone: as many as are worth no batch."""
        return self._singles < self._pace.worth or self._pace.worth > self._settings.most

    def _is_stalled(self) -> bool:
        return self._clock.monotonic_s() - self._moved_s > STALL_S

    def _begin_single(self) -> None:
        if self._singles == 0:
            self._moved_s = self._clock.monotonic_s()
        self._singles += 1

    async def _store_alone(self, write: Write) -> Ack:
        """Store a message that `_singles` counts already."""
        ack: Ack | None = None
        try:
            ack = await self._storing.store(write)
        finally:
            self._end_single(is_stored=ack is not None)
        return ack

    def _end_single(self, *, is_stored: bool) -> None:
        self._singles -= 1
        self._moved_s = self._clock.monotonic_s()
        if is_stored:
            self._time_answer()
        if self._singles == 0 or not is_stored:
            self._run = 0
        if self._waiting:
            self._turn_soon()

    def _time_answer(self) -> None:
        """Time the answers to messages alone, once there were many in a row.

        From answer to answer, as the way there and back is the same for all that are in flight.
        """
        self._run += 1
        if self._run == 1:
            self._run_began_s = self._clock.monotonic_s()
        elif self._run > RUN:
            took_s = self._clock.monotonic_s() - self._run_began_s
            self._pace.note_singles(RUN, took_s)
            self._run = 0

    # Together.

    def _turn_soon(self) -> None:
        """Take a turn once everyone who was just answered had a chance to come again."""
        if self._turn is None and self._batch is None:  # guard: one-batch-at-a-time
            self._turn_began_s = self._clock.monotonic_s()
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Send those who wait: together, or alone as far as there is room.

        Enough of them for a batch wait until nobody is in flight any more, and grow more.
        """
        self._turn = None
        is_free = self._singles == 0 or self._is_stalled()
        if not is_free and len(self._waiting) >= self._pace.worth:
            return
        if is_free and (group := self._first_together()):
            self._begin_batch(group)
            return
        while self._waiting and (self._singles == 0 or self._has_room()):
            self._let_go(self._waiting.popleft())

    def _first_together(self) -> list[_Waiting]:
        """Take the first of those who wait, if they are worth a batch; nobody otherwise."""
        group: list[_Waiting] = []
        keys: set[str] = set()
        left_bytes = BODY_BYTES_MAX
        while self._waiting and len(group) < self._settings.most:
            waiting = self._waiting.popleft()
            if waiting.outcome.cancelled():  # guard: given-up-write-not-sent
                continue
            left_bytes -= len(waiting.write.data)  # guard: batch-bytes-max
            if waiting.write.key in keys or left_bytes < 0:  # guard: one-write-per-batched-key
                self._waiting.appendleft(waiting)
                break
            keys.add(waiting.write.key)
            group.append(waiting)
        if len(group) >= self._pace.worth:
            return group
        self._waiting.extendleft(reversed(group))
        return []

    def _begin_batch(self, group: list[_Waiting]) -> None:
        writes = [waiting.write for waiting in group]
        self._batch = self._loop.create_task(self._storing.store_all(writes), name=BATCH_TASK)
        self._batch.add_done_callback(partial(self._end_batch, group, self._turn_began_s))

    def _end_batch(
        self, group: list[_Waiting], began_s: float, batch: asyncio.Task[Sequence[Ack]]
    ) -> None:
        self._batch = None
        took_s = self._clock.monotonic_s() - began_s
        # guard: ended-batch-leaves-nobody-waiting
        error = _ENDING if batch.cancelled() else batch.exception()
        if error is None:
            self._pace.note_batch(took_s)
            for waiting, ack in zip(group, batch.result(), strict=True):
                _tell(waiting, ack)
        # guard: refused-batch-one-by-one
        elif isinstance(error, StreamError) and not isinstance(error, Unavailable):
            self._pace.note_refused_batch(len(group), took_s)
            for waiting in group:
                self._let_go(waiting)
        else:
            for waiting in group:
                _tell(waiting, _again(error, waiting.write.subject))
        self._turn_soon()

    def _let_go(self, waiting: _Waiting) -> None:
        if not waiting.outcome.cancelled():
            self._begin_single()
            waiting.outcome.set_result(None)


class Groups:
    """The way to each stream that one adapter writes to."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._publisher = Publisher(link)
        self._by_stream: dict[str, Grouping] = {}

    def to(self, stream: str) -> Grouping:
        """Return the way to `stream`, always the same."""
        group = self._by_stream.get(stream)
        if group is None:
            group = Grouping(self._publisher, self._link.settings.group, self._link.clock)
            self._by_stream[stream] = group
        return group


async def store_surely(link: Link, group: Grouping, write: Write) -> Ack:
    """Store a message that has a message id, trying again and again until it is stored.

    Raises:
        TooLarge, Incompatible: as `Publisher.store`. It is not stored.
        Unavailable: the server was away or refused for `patience_s`. It is not stored.
        UnknownOutcome: no answer for `patience_s`. It may be stored.
    """
    patience = Patience(link, write.subject)
    while True:
        try:
            return await group.store(write, alone=patience.has_failed)
        except Unavailable as error:
            await patience.after(error)


async def store_checked(
    link: Link,
    group: Grouping,
    write: Write,
    *,
    find: Callable[[], Awaitable[Stored | None]],
    mark: str,
    conflict: Callable[[], StreamError],
    gone: Callable[[], StreamError] | None = None,
) -> int:
    """Store a message that expects a sequence, again and again until its outcome is known.

    After a lost answer a failed check may be the work of our own first copy: `find` returns the
    message that stands there, and the header `mark` identifies ours.

    Raises:
        StreamError: `conflict()`: another message stands there; `gone()`: none does any more.
        TooLarge, Incompatible, Unavailable, UnknownOutcome: as `store_surely`.
    """
    patience = Patience(link, write.subject)
    while True:
        try:
            # guard: failed-commit-fails-no-others
            return (await group.store(write, alone=patience.has_failed)).seq
        except Unavailable as error:
            await patience.after(error)
        except WrongSequence as error:
            if not patience.unsure:
                raise conflict() from error
            if error.in_flight:
                await patience.after(UnknownOutcome(write.subject, detail="another is in flight"))
                continue
            try:
                found = await find()
            except Unavailable as away:
                await patience.after(away)
                continue
            # guard: lost-answer-not-lost-race
            if found is not None and found.headers.get(mark) == write.headers[mark]:
                return found.seq
            raise (gone if gone and found is None else conflict)() from error


def _tell(waiting: _Waiting, outcome: Ack | BaseException) -> None:
    if not waiting.outcome.cancelled():
        waiting.outcome.set_result(outcome)


def _again(error: BaseException, subject: str) -> BaseException:
    """Return a copy of `error` for one message: a raised error keeps a trace, so each gets its own.

    What nobody expected may be the fault of one of them. Going on alone, each finds out.
    """
    if isinstance(error, Unavailable):
        return type(error)(subject, detail=error.detail)
    return UnknownOutcome(subject, detail=f"the batch failed: {error!r}")

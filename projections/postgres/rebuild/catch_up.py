"""Fills fresh tables from the history, and remembers which rows it has touched.

Messages are folded in large batches: most lives begin and end within one, and are then one row. The
next batch is read and folded while Postgres is at work. Rows and position move in one transaction,
so that a run that is killed goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import Final, TypeAlias

import msgspec

from projections.errors import OtherHistory
from projections.postgres import store
from projections.postgres.batches import mark_of
from projections.postgres.pool import Connection
from projections.postgres.queries import query
from projections.postgres.rebuild.pace import RebuildPace
from projections.postgres.store import ProjectorPosition
from projections.project import project
from projections.rows import RowBatch, RowChange, arrange
from streams.clock import Clock
from streams.layout import Stream
from streams.ports.log import EventLog, Recorded
from streams.subjects import Stack

BATCH_MESSAGES_MAX: Final = 8_000
"""Messages of one transaction."""

PAGE_MESSAGES_MAX: Final = 1_000
"""Messages of one question to the history."""

PAGES_MAX: Final = 12
"""Most pages of one batch, each of some MiB at most: bounds the memory for very large messages."""

TOUCHED_MAX: Final = 500_000
"""Most keys that are remembered between two comparisons."""


class Folded(msgspec.Struct, frozen=True):
    """What some commits change."""

    rows: Sequence[RowBatch]
    touched: Collection[tuple[str, tuple[object, ...]]]
    """Table, and the first columns of the keys of the rows that are changed."""


Fold: TypeAlias = Callable[[Sequence[Recorded]], Folded]
Part: TypeAlias = tuple[Stream, int]


class _Batch(msgspec.Struct, frozen=True):
    folded: Folded
    position: int
    mark: str
    events: int


class TouchedRows:
    """Which rows were changed, by table: the first columns of their keys."""

    def __init__(self, keys: Mapping[str, Sequence[str]]) -> None:
        """Remember rows of tables; `keys`: table → the columns that name a row."""
        self._keys = keys
        self._of: defaultdict[tuple[str, int], set[tuple[object, ...]]] = defaultdict(set)
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether there are more than are remembered: compare anew."""
        return self.count > TOUCHED_MAX

    def add(self, touched: Collection[tuple[str, tuple[object, ...]]]) -> None:
        """Note rows by the first columns of their keys: all that begin so."""
        if self.is_full:
            return
        for table, key in touched:
            self._of[table, len(key)].add(key)
        self.count = sum(map(len, self._of.values()))

    def documents(self) -> list[tuple[str, int, str]]:
        """Return table, number of columns, and rows as JSON, for `note_touched`."""
        return [
            (table, columns, _document(self._keys[table][:columns], keys))
            for (table, columns), keys in self._of.items()
        ]

    def forget(self) -> None:
        """Forget all of them."""
        self._of.clear()
        self.count = 0


def _document(columns: Sequence[str], keys: Collection[tuple[object, ...]]) -> str:
    rows = [dict(zip(columns, key, strict=True)) for key in keys]
    return msgspec.json.encode(rows).decode()


def fold_of(stack: Stack, keys: Mapping[str, Sequence[str]]) -> Fold:
    """Return what folds commits into the rows of the tables of a stack."""

    def fold(records: Sequence[Recorded]) -> Folded:
        changes = project(records, stack=stack)
        touched = [(each.statement.table, key_of(each, keys)) for each in changes]
        return Folded(arrange(changes), touched)

    return fold


def key_of(change: RowChange, keys: Mapping[str, Sequence[str]]) -> tuple[object, ...]:
    """Return the first columns of the key of a row that are known of it."""
    values = (getattr(change.row, column, None) for column in keys[change.statement.table])
    return tuple(takewhile(lambda value: value is not None, values))


class FreshRows:
    """The rows beside those of a stack, as they are filled."""

    def __init__(
        self,
        history: EventLog,
        connection: Connection,
        stack: Stack,
        *,
        parts: Sequence[Part],
        keys: Mapping[str, Sequence[str]],
        clock: Clock,
        fold: Fold,
    ) -> None:
        """Fill the tables that `connection` finds; `keys`: table → the columns that name a row."""
        self._history, self._connection, self._stack = history, connection, stack
        self._clock, self._fold = clock, fold
        self._at: dict[str, ProjectorPosition] = {}
        self.parts = {stack.part(*each): each for each in parts}
        self.touched = TouchedRows(keys)

    def position(self, part: str) -> int:
        """Return up to where the rows have a part of the log."""
        return self._at[part].position

    def mark(self, part: str) -> str:
        """Return what identifies the commit there."""
        return self._at[part].mark

    async def load(self) -> None:
        """Look where an earlier run has come to.

        Raises:
            OtherHistory: the log has something else there.
        """
        stack, now = self._stack.name, self._clock.now()
        for part, (stream, partition) in self.parts.items():
            await self._connection.execute(query("begin_checkpoint"), stack, part, now)
            row = await self._connection.fetchrow(query("read_checkpoint"), stack, part)
            position, mark, _ = row or (0, "", None)
            found = (
                await self._history.page(
                    stream, after=position - 1, up_to=position, most=1, partition=partition
                )
                if position
                else ()
            )
            if any(mark_of(each) != mark for each in found):  # guard: rebuild-of-one-log
                raise OtherHistory(f"{stack}-{part}", position=position)
            self._at[part] = ProjectorPosition(
                stack=stack, projection=part, position=position, mark=mark
            )

    async def heads(self) -> dict[str, int]:
        """Return the newest sequence of each part."""
        return {
            part: await self._history.head(stream, partition=partition)
            for part, (stream, partition) in self.parts.items()
        }

    def missing(self, targets: Mapping[str, int]) -> int:
        """Return how many sequences are left up to `targets`."""
        return sum(max(0, to - self.position(part)) for part, to in targets.items())

    async def catch_up(
        self, targets: Mapping[str, int], pace: RebuildPace, *, batch_max: int
    ) -> None:
        """Have the rows show each part exactly up to its target, unless they are past that.

        Raises `UnreadableEvent` and `RowsRefused`; the rows then stand before that.
        """
        for part, target in targets.items():
            async with aclosing(self._batches(part, target, batch_max)) as batches:
                async for batch in _one_ahead(batches):
                    since = self._at[part]
                    self._at[part] = await store.apply(
                        self._connection,
                        batch.folded.rows,
                        since=since,
                        position=batch.position,
                        mark=batch.mark,
                        now=self._clock.now(),
                    )
                    self.touched.add(batch.folded.touched)
                    await pace.passed(batch.position - since.position, batch.events)

    async def _batches(
        self, part: str, target: int, batch_max: int
    ) -> AsyncGenerator[_Batch, None]:
        stream, partition = self.parts[part]
        after = self.position(part)
        while after < target:
            records: list[Recorded] = []
            pages = 0
            while after < target and len(records) < batch_max and pages < PAGES_MAX:
                pages += 1
                page = await self._history.page(
                    stream,
                    after=after,
                    up_to=target,
                    most=min(PAGE_MESSAGES_MAX, batch_max - len(records)),
                    partition=partition,
                )
                records += page
                after = page[-1].seq if page else target
            yield await self._batch(records, position=after)

    async def _batch(self, records: Sequence[Recorded], *, position: int) -> _Batch:
        await asyncio.sleep(0)
        folded = self._fold(records)
        last = records[-1] if records else None
        return _Batch(
            folded=folded,
            position=position,
            # Where messages are missing at the end, the commit at the position is unknown.
            mark=mark_of(last) if last is not None and last.seq == position else "",
            events=sum(len(each.commit.events) for each in records),
        )


async def _one_ahead(batches: AsyncIterator[_Batch]) -> AsyncIterator[_Batch]:
    """Yield each batch while the next one is being made."""
    coming: asyncio.Task[_Batch | None] = asyncio.create_task(_next(batches))
    try:
        while (batch := await coming) is not None:
            coming = asyncio.create_task(_next(batches))
            await asyncio.sleep(0)
            yield batch
    finally:
        coming.cancel()
        await asyncio.wait({coming})
        if not coming.cancelled():
            coming.exception()


async def _next(batches: AsyncIterator[_Batch]) -> _Batch | None:
    return await anext(batches, None)

"""`rebuild` and `verify`: new rows from the history, held against those that people read.

    resume or make ─▶ catch up ─▶ meet ─▶ compare ─▶ catch up ─▶ one transaction ─▶ keep, drop later
                                   │                               │
                         both at one position            those that differ change places

*Meeting* takes a moment: the checkpoints of the live rows are locked, so their projector waits; the
fresh rows follow up to there; and a snapshot is taken, in which both are at one position. They are
compared in that snapshot while the projector goes on. What was touched since is compared again
under the lock of the swap, together with what had differed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, Protocol

import asyncpg
import msgspec

from projections.errors import (
    NotCaughtUp,
    NotMigrated,
    PostgresUnavailable,
    RebuildRunning,
)
from projections.postgres.migrator import applied_migrations, difference
from projections.postgres.pool import AWAY, REFUSED, Connection, Pool
from projections.postgres.progress import PROJECTED
from projections.postgres.queries import migrations, query
from projections.postgres.rebuild import fresh as fresh_tables
from projections.postgres.rebuild.catch_up import BATCH_MESSAGES_MAX, Fold, FreshRows, Part, fold_of
from projections.postgres.rebuild.fresh import (
    STATEMENT_S_MAX,
    FreshNote,
    FreshTables,
    TableStatements,
)
from projections.postgres.rebuild.pace import RebuildPace, Tell
from streams.clock import Clock
from streams.layout import Stream
from streams.ports.log import EventLog
from streams.subjects import Stack

NEAR_MESSAGES: Final = 2_000
"""So many messages may be left when the live rows are stopped: a fraction of a second."""

ROUNDS_MAX: Final = 50
"""Most rounds of catching up with a log that grows meanwhile."""

LIVE_S_MAX: Final = 30.0
"""How long the live rows may take to come as far as the fresh ones, in seconds."""

STANDS_S: Final = 1.0
"""Live rows that have not moved for so long, in seconds, are projected by nobody now."""

LOOK_S: Final = 0.05
"""Between two looks at that, in seconds."""

OF_LETTERS: Final = "dead_letters"
"""The only table of the stream of dead letters, which loses its beginning by and by."""

Prune = Callable[[Connection, Stack, Connection], Awaitable[None]]
"""Takes from the tables that the first connection finds what a rule has taken from the live ones,
which the second one finds."""


class CustomTables(Protocol):
    """The tables of a projection that is not ours."""

    def fold(self, stack: Stack) -> Fold:
        """Return what folds commits into its rows."""

    async def require(self, connection: Connection, schema: str) -> str:
        """Return what tells these tables from others; `NotMigrated`: there are none."""


class RebuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to rebuild or verify."""

    events_per_s_max: float | None = None
    """None: as fast as it goes."""
    keep_s: float = 0.0
    """How long to keep what is replaced, in seconds."""
    is_dry: bool = False
    """Compare, and change nothing."""
    anew: bool = False
    """Begin anew what an earlier call has left unfinished."""


class TableChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild changes in one table, in rows."""

    table: str
    missing: int
    """Those that are added."""
    needless: int
    """Those that are removed."""
    wrong: int
    """Those that get other values."""


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild has done, or would do."""

    stack: str
    changes: Sequence[TableChange]
    """Only of tables in which something differs."""
    events: int
    """Events that were folded by this run."""
    took_s: float
    is_resumed: bool
    is_dry: bool
    positions: Mapping[str, int]
    """Up to where the rows show each part of the log."""
    replaced_in: str | None = None
    """The schema that keeps what was replaced; None: none does."""
    drop_at: datetime | None = None


class RowDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference between the rows and what the journal says."""

    table: str
    key: Mapping[str, object]
    column: str | None
    """None: the row is missing, or there should be none."""
    live: object
    """What people read: the value, or the row; None: there is none."""
    journal: object
    """What the journal says."""
    seq: int | None
    """Sequence of the commit that last changed the row."""


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the rows are what the journal says."""

    stack: str
    events: int
    took_s: float
    positions: Mapping[str, int]
    difference: RowDifference | None
    changes: Sequence[TableChange]


async def rebuild(
    history: EventLog,
    pool: Pool,
    stack: Stack,
    *,
    clock: Clock,
    options: RebuildOptions,
    tell: Tell,
    prune: Prune | None = None,
    custom: CustomTables | None = None,
) -> RebuildReport:
    """Make the rows of a stack anew beside those that people read, and swap those that differ.

    Nodes and projector may go on meanwhile. A call that was killed is continued by the next one.

    Args:
        history: the log, with what was archived of it if there is an archive.
        prune: takes what retention has taken from the live rows, which the history still has.
        custom: the tables of a projection of a user, where `pool` finds them.

    Raises:
        RebuildRunning: another call is at it.
        NotMigrated: the tables are of another version.
        OtherHistory: an unfinished rebuild was of another log.
        UnreadableEvent: a commit cannot be decoded.
        RowsRefused: Postgres does not take the rows.
    """
    opened = _opened(
        history,
        pool,
        stack,
        clock=clock,
        options=options,
        tell=tell,
        prune=prune,
        custom=custom,
    )
    async with opened as work:
        changes, _ = await work.compare(must_meet=False)
        if options.is_dry:
            await fresh_tables.drop(work.live, work.tables.schema)
            return work.report(changes, is_dry=True)
        return await work.swap(keep_s=options.keep_s)


async def verify(
    history: EventLog,
    pool: Pool,
    stack: Stack,
    *,
    clock: Clock,
    options: RebuildOptions,
    tell: Tell,
    prune: Prune | None = None,
    custom: CustomTables | None = None,
) -> VerifyReport:
    """Hold the rows of a stack against the history. It changes nothing, and raises as `rebuild`.

    Raises:
        NotCaughtUp: the rows are behind the log and do not follow.
    """
    opened = _opened(
        history,
        pool,
        stack,
        clock=clock,
        options=options,
        tell=tell,
        prune=prune,
        custom=custom,
    )
    async with opened as work:
        changes, first = await work.compare(must_meet=True)
        await fresh_tables.drop(work.live, work.tables.schema)
        return VerifyReport(
            stack=stack.name,
            events=work.pace.events,
            took_s=work.pace.took_s,
            positions=work.positions(),
            difference=first,
            changes=changes,
        )


@asynccontextmanager
async def _opened(
    history: EventLog,
    pool: Pool,
    stack: Stack,
    *,
    clock: Clock,
    options: RebuildOptions,
    tell: Tell,
    prune: Prune | None,
    custom: CustomTables | None,
) -> AsyncIterator[_Work]:
    """Open what a run works on: three connections, one of which keeps others out."""
    try:
        async with pool.acquire() as live, pool.acquire() as beside, pool.acquire() as snapshot:
            locked = await live.fetchrow(query("rebuild/lock_rebuild"), stack.name)
            assert locked is not None  # One row without FROM.
            schema = locked["schema"]
            if schema is None:
                raise NotMigrated(locked["wanted"], detail="does not exist")
            if not locked["is_ours"]:  # guard: one-rebuild-at-a-time
                raise RebuildRunning(stack.name)
            if custom is None:
                applied = await _require_migrated(live, schema)
            else:
                applied = {"shape": await custom.require(live, schema)}
            note = FreshNote(
                stack=stack.name,
                of=schema,
                code=fresh_tables.code_digest(),
                began_at=clock.now(),
            )
            tables = await fresh_tables.begin(beside, note, anew=options.anew, live=applied)
            parts: list[Part] = [
                (stream, partition)
                for stream in PROJECTED
                for partition in stack.partitions_of(stream)
            ]
            keys = {name: each.key for name, each in tables.tables.items()}
            rows = FreshRows(
                history,
                beside,
                stack,
                parts=parts,
                keys=keys,
                clock=clock,
                fold=fold_of(stack, keys) if custom is None else custom.fold(stack),
            )
            await rows.load()
            pace = RebuildPace(clock, tell, events_per_s_max=options.events_per_s_max)
            batch = BATCH_MESSAGES_MAX
            if options.events_per_s_max is not None:
                batch = max(1, min(batch, int(options.events_per_s_max)))
            yield _Work(
                history=history,
                stack=stack,
                tables=tables,
                rows=rows,
                live=live,
                beside=beside,
                snapshot=snapshot,
                pace=pace,
                clock=clock,
                batch=batch,
                prune=prune,
            )
    except REFUSED:
        raise
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error


async def _require_migrated(live: Connection, schema: str) -> Mapping[str, str]:
    try:
        applied = await applied_migrations(live)
    except asyncpg.UndefinedTableError:
        applied = {}
    if not applied:
        raise NotMigrated(schema, detail="has no tables of Vigil")
    found = difference(applied, migrations())
    newer = sorted(applied.keys() - {each.name for each in migrations()})
    if found.missing or found.changed or newer:  # guard: rebuild-of-own-version
        names = [*(each.name for each in found.missing), *found.changed, *newer]
        raise NotMigrated(schema, detail=f"differs from this version in {', '.join(names)}")
    return applied


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what it reads, and the connections that it writes on."""

    history: EventLog
    stack: Stack
    tables: FreshTables
    rows: FreshRows
    live: Connection
    beside: Connection
    snapshot: Connection
    pace: RebuildPace
    clock: Clock
    batch: int
    prune: Prune | None

    def positions(self) -> dict[str, int]:
        return {part: self.rows.position(part) for part in self.rows.parts}

    async def compare(self, *, must_meet: bool) -> tuple[list[TableChange], RowDifference | None]:
        """Catch up, and note the key of every row that differs from the live one.

        Returns how many there are, and the first of them.
        """
        await self._come_near()
        await self._await_live(must_meet=must_meet)
        async with self.snapshot.transaction(isolation="repeatable_read"):
            async with self._met():
                # guard: compared-at-one-position
                await self.snapshot.execute(query("rebuild/take_snapshot"))
            self.rows.touched.forget()
            self.pace.begin("comparing", len(self.tables.tables))
            for table in self.tables.tables.values():
                await self._run(self.snapshot, table.analyze_fresh)
                await self._run(self.snapshot, table.forget_differing)
                await self._run(self.snapshot, table.find_differing, self.stack.name)
                await self._run(self.snapshot, table.analyze_differing)
                await self.pace.passed(1)
            await self._spare(self.snapshot)
            changes = await self._count(self.snapshot)
            return changes, await self._first_difference() if changes else None

    async def _count(self, connection: Connection) -> list[TableChange]:
        """Return how many rows differ by now, of those that were noted."""
        found = []
        for table in self.tables.tables.values():
            row = await connection.fetchrow(table.count_differing, timeout=STATEMENT_S_MAX)
            assert row is not None  # It counts.
            if row["differing"]:
                missing, needless = row["missing"], row["needless"]
                found.append(
                    TableChange(
                        table=table.name,
                        missing=missing,
                        needless=needless,
                        wrong=row["differing"] - missing - needless,
                    )
                )
        return found

    async def _first_difference(self) -> RowDifference | None:
        """Return the difference of the lowest sequence, of the first table that has one."""
        for table in self.tables.tables.values():
            row = await self.snapshot.fetchrow(table.first_difference, timeout=STATEMENT_S_MAX)
            if row is not None:
                return _difference(table, row["live"], row["fresh"], row["seq"])
        return None

    async def swap(self, *, keep_s: float) -> RebuildReport:
        """Put what differs into the tables that people read, in one transaction."""
        if self.rows.touched.is_full:
            await self.compare(must_meet=False)
        await self._come_near()
        if self.rows.touched.is_full:
            await self.compare(must_meet=False)
        await self._await_live(must_meet=False)
        now = self.clock.now()
        self.pace.begin("swapping", len(self.tables.tables))
        async with self.live.transaction():
            await self.live.execute(query("rebuild/take_snapshot"))
            await self._lock_and_catch_up()
            await self._note_touched()
            await self._spare(self.live)
            changes = await self._count(self.live)
            for table in self.tables.tables.values():
                await self._run(self.live, table.keep_replaced)
                await self._run(self.live, table.remove)
                await self._run(self.live, table.put)
                await self.pace.passed(1)
            await self._set_checkpoints(now)
            drop_at = now + timedelta(seconds=keep_s)
            kept = await fresh_tables.keep_replaced(self.live, self.tables, at=now, drop_at=drop_at)
        replaced = {each.table for each in changes if each.needless or each.wrong}
        is_kept = keep_s > 0 and bool(replaced)
        await self._clean_up(kept, replaced if is_kept else set())
        report = self.report(changes, is_dry=False)
        if not is_kept:
            return report
        return msgspec.structs.replace(report, replaced_in=kept, drop_at=drop_at)

    def report(self, changes: Sequence[TableChange], *, is_dry: bool) -> RebuildReport:
        """Return what was done."""
        return RebuildReport(
            stack=self.stack.name,
            changes=changes,
            events=self.pace.events,
            took_s=self.pace.took_s,
            is_resumed=self.tables.is_resumed,
            is_dry=is_dry,
            positions=self.positions(),
        )

    async def _come_near(self) -> None:
        """Catch up until little is left of a log that may grow meanwhile."""
        for _ in range(ROUNDS_MAX):
            heads = await self.rows.heads()
            left = self.rows.missing(heads)
            if not left:
                return
            self.pace.begin("reading", left)
            await self.rows.catch_up(heads, self.pace, batch_max=self.batch)
            if left <= NEAR_MESSAGES:
                return

    async def _await_live(self, *, must_meet: bool) -> None:
        """Wait until the live rows are as far as the fresh ones, if somebody projects them."""
        began_s = moved_s = self.clock.monotonic_s()
        stood: dict[str, int] = {}
        while True:
            reached = await self._live_positions(self.live)
            behind = {
                part: at for part, at in self.positions().items() if reached.get(part, 0) < at
            }
            now_s = self.clock.monotonic_s()
            if reached != stood:
                stood, moved_s = reached, now_s
            if not behind or now_s - began_s >= LIVE_S_MAX:
                break
            if not must_meet and now_s - moved_s >= STANDS_S:
                return
            await self.clock.sleep(LOOK_S)
        if behind and must_meet:
            part, wanted = next(iter(behind.items()))
            raise NotCaughtUp(
                part, wanted=wanted, reached=reached.get(part, 0), waited_s=LIVE_S_MAX
            )

    async def _live_positions(self, connection: Connection) -> dict[str, int]:
        rows = await connection.fetch(query("list_checkpoints"), self.stack.name)
        return {row["projection"]: row["journal_seq"] for row in rows}

    @asynccontextmanager
    async def _met(self) -> AsyncIterator[None]:
        """Keep the live rows where they are, with the fresh ones at the same position."""
        async with self.live.transaction():
            await self._lock_and_catch_up()
            yield

    async def _lock_and_catch_up(self) -> None:
        parts = list(self.rows.parts)
        rows = await self.live.fetch(
            query("rebuild/lock_checkpoints"), self.stack.name, parts, timeout=STATEMENT_S_MAX
        )
        targets = {row["projection"]: row["journal_seq"] for row in rows}
        # Unthrottled: the projector waits.
        quick = RebuildPace(self.clock, lambda _: None, events_per_s_max=None)
        quick.begin("reading", self.rows.missing(targets))
        await self.rows.catch_up(targets, quick, batch_max=BATCH_MESSAGES_MAX)
        if self.prune is not None:  # guard: pruned-rows-stay-away
            await self.prune(self.beside, self.stack, self.live)

    async def _note_touched(self) -> None:
        # guard: touched-rows-compared-again
        for table, columns, document in self.rows.touched.documents():
            statement = self.tables.tables[table].note_touched[columns - 1]
            await self._run(self.live, statement, self.stack.name, document)

    async def _spare(self, connection: Connection) -> None:
        """Forget differences about which the history says nothing, as its beginning is gone."""
        missing = [
            stream
            for stream, partition in self.rows.parts.values()
            if await self.history.first_seq(stream, partition=partition) > 1
        ]
        of_letters = set(missing) == {Stream.DEAD}
        if missing:  # guard: rows-of-lost-history-stay
            for table in self.tables.tables.values():
                if not of_letters or table.name == OF_LETTERS:
                    await self._run(connection, table.spare_missing)

    async def _set_checkpoints(self, now: datetime) -> None:
        stack, parts = self.stack.name, list(self.rows.parts)
        streams = [each.value for each in PROJECTED]
        await self.live.execute(query("rebuild/forget_checkpoints"), stack, streams, parts)
        for part in parts:
            await self.live.execute(
                query("rebuild/set_checkpoint"),
                stack,
                part,
                self.rows.position(part),
                self.rows.mark(part),
                now,
            )

    async def _clean_up(self, schema: str, kept: Collection[str]) -> None:
        """Drop a schema, but for the rows that were replaced in the tables `kept`."""
        if not kept:
            await fresh_tables.drop(self.live, schema)
            return
        statements = await fresh_tables.statements_of(self.live, self.tables.note.of, schema)
        async with self.live.transaction():
            for table in statements.values():
                await self._run(self.live, table.drop_fresh)
                name = table.name_replaced if table.name in kept else table.drop_replaced
                await self._run(self.live, name)

    async def _run(self, connection: Connection, text: str, *args: object) -> None:
        await connection.execute(text, *args, timeout=STATEMENT_S_MAX)


def _difference(
    table: TableStatements, live_json: str | None, fresh_json: str | None, seq: int | None
) -> RowDifference:
    live = None if live_json is None else msgspec.json.decode(live_json, type=dict[str, object])
    fresh = None if fresh_json is None else msgspec.json.decode(fresh_json, type=dict[str, object])
    either = live or fresh or {}
    key = {column: either.get(column) for column in table.key}
    column = None
    shown: tuple[object, object] = (live, fresh)
    if live is not None and fresh is not None:
        column = next(each for each in live if live[each] != fresh.get(each))
        shown = live[column], fresh.get(column)
    return RowDifference(
        table=table.name, key=key, column=column, live=shown[0], journal=shown[1], seq=seq
    )

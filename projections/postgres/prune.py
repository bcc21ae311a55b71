"""Deletes rows that have left by the cuts of retention: slice by slice, each in one transaction.

A slice is a few hundred things with all that only they have, so that nobody sees a part of one. The
projectors of the stack wait meanwhile: what they have written, a hold above all, is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
import structlog

from projections.errors import NotCaughtUp, PostgresUnavailable
from projections.postgres import telemetry
from projections.postgres.pool import AWAY, Connection, Pool
from projections.postgres.progress import PROJECTED, caught_up, heads
from projections.postgres.queries import query
from projections.retention import PRUNED, PrunedGroup, PrunedKind, groups_of
from streams.clock import Clock
from streams.errors import Unavailable
from streams.model.retention import RetentionCut
from streams.ports.all import Ports
from streams.subjects import Stack

SLICE_MAX: Final = 200
"""Things of one transaction: with ten steps each, it deletes 2,500 rows."""

SLICES_MAX: Final = 5_000
"""Slices of one pass: a million things. The next pass does the rest."""

PAUSE_S: Final = 0.1
"""Between two slices, in seconds: projectors go on then."""

PRUNE_S: Final = 60.0
"""Between two passes, in seconds."""

LEVEL_S: Final = 30.0
"""Longest wait of a pass until the rows show what the log has, in seconds."""

_Place: TypeAlias = tuple[datetime | None, str | None, int | None]
"""Where a slice begins: after the thing that ended then, of this id and number."""

_FIRST: Final[_Place] = (None, None, None)

log = structlog.get_logger("vigil.projector")


class OldRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a kind, an actor and a state that are over due."""

    kind: str
    actor_id: str
    state: str
    before: datetime
    count: int
    """All of them."""
    stay: Mapping[str, int] = {}
    """Why, such as `actor a` that is held → how many of them stay for that."""
    since: datetime | None = None
    """When the first of those ended that do not stay; None: all do."""

    @property
    def due(self) -> int:
        """How many leave."""
        return self.count - sum(self.stay.values())


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass has deleted."""

    deleted: Counter[str]
    """Table → rows."""
    stay: Counter[str]
    """Why → how many things stay that are old enough to leave."""


async def prune_for_ever(ports: Ports, pool: Pool, clock: Clock) -> None:
    """Delete what has left, pass by pass; what is away is tried again."""
    while True:
        await clock.sleep(PRUNE_S)
        try:
            await prune(ports, pool, clock=clock)
        except (NotCaughtUp, PostgresUnavailable, Unavailable) as error:
            log.info("old rows are deleted later", why=str(error))


async def prune(ports: Ports, pool: Pool, *, clock: Clock) -> PruneReport:
    """Delete what has left by now, of one stack; safe to repeat, also at the same time.

    Raises:
        NotCaughtUp: the rows do not show yet what the log has: what refers to what is not known.
        PostgresUnavailable: Postgres is away or refuses.
    """
    try:
        return await _prune(ports, pool, clock=clock)
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error


async def _prune(ports: Ports, pool: Pool, *, clock: Clock) -> PruneReport:
    rows = PruneReport(deleted=Counter(), stay=Counter())
    cuts = await _cuts(pool, ports.stack)
    if cuts:
        # A hold, an instance or a parent may not be in the rows of somebody who replays.
        newest = await heads(ports, PROJECTED)
        await caught_up(pool, ports.stack, newest, timeout_s=LEVEL_S)  # guard: prunes-when-level
        cuts = await _cuts(pool, ports.stack)
    async for group in _groups(pool, ports.stack, cuts):
        await _delete(pool, ports.stack, group, rows, clock=clock)
    for table, count in rows.deleted.items():
        telemetry.rows_deleted.add(count, {"stack": ports.stack.name, "table": table})
    if rows.deleted:
        log.info("deleted old rows", stack_name=ports.stack.name, **rows.deleted)
    return rows


async def count_old(pool: Pool, stack: Stack, cuts: Sequence[RetentionCut]) -> list[OldRows]:
    """Return what would leave by `cuts`, and what would stay, by kind, actor and state.

    Raises `PostgresUnavailable`.
    """
    try:
        return await _count(pool, stack, cuts)
    except AWAY as error:
        raise PostgresUnavailable(detail=str(error)) from error


async def _count(pool: Pool, stack: Stack, cuts: Sequence[RetentionCut]) -> list[OldRows]:
    times = {(each.what.value, each.actor_id): each.before for each in cuts}
    found: list[OldRows] = []
    async for group in _groups(pool, stack, times):
        rows = await pool.fetch(
            query(f"count_old_{group.kind.name}"),
            stack.name,
            group.actor_id,
            group.state,
            group.before,
        )
        if rows:
            found.append(_old(group, [(row["stays"], row["count"], row["since"]) for row in rows]))
    return found


def _old(group: PrunedGroup, rows: Sequence[tuple[str | None, int, datetime]]) -> OldRows:
    return OldRows(
        kind=group.kind.name,
        actor_id=group.actor_id,
        state=group.state,
        before=group.before,
        count=sum(count for _, count, _ in rows),
        stay={why: count for why, count, _ in rows if why is not None},
        since=next((since for why, _, since in rows if why is None), None),
    )


async def prune_beside(connection: Connection, stack: Stack, live: Connection) -> None:
    """Delete what has left from rows that are made anew, in the transaction that is under way.

    They must be level with the log, and nobody else may write them: `projections/postgres/rebuild`.
    What is over due and has not left the rows that `live` finds stays: it differs in nothing yet.
    """
    rows = PruneReport(deleted=Counter(), stay=Counter())
    async for group in _groups(connection, stack, await _cuts(connection, stack)):
        past: _Place | None = _FIRST
        while past is not None:
            past = await _delete_slice(connection, stack, group, past, rows, live=live)


async def _cuts(rows: Pool | Connection, stack: Stack) -> dict[tuple[str, str], datetime]:
    found = await rows.fetch(query("list_retention_cuts"), stack.name)
    return {(row["what"], row["actor_id"]): row["before"] for row in found}


async def _groups(
    rows: Pool | Connection, stack: Stack, cuts: Mapping[tuple[str, str], datetime]
) -> AsyncIterator[PrunedGroup]:
    for kind in PRUNED:
        if any(what == each.value for what, _ in cuts for each in kind.states):
            for group in groups_of(kind, await _actors(rows, stack, kind), cuts):
                yield group


async def _actors(rows: Pool | Connection, stack: Stack, kind: PrunedKind) -> Sequence[str]:
    if not kind.is_of_actors:
        return [""]
    found = await rows.fetch(query(f"list_actors_of_old_{kind.name}"), stack.name)
    return [row["actor_id"] for row in found]


async def _delete(
    pool: Pool, stack: Stack, group: PrunedGroup, rows: PruneReport, *, clock: Clock
) -> None:
    """Delete a group, slice by slice: what stays is passed over."""
    past = _FIRST
    for _ in range(SLICES_MAX):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(query("hold_projectors"), stack.name)  # guard: pruned-in-turn
            next_ = await _delete_slice(connection, stack, group, past, rows)
        if next_ is None:
            return
        past = next_
        await clock.sleep(PAUSE_S)


async def _delete_slice(
    connection: Connection,
    stack: Stack,
    group: PrunedGroup,
    past: _Place,
    rows: PruneReport,
    *,
    live: Connection | None = None,
) -> _Place | None:
    """Delete what of a slice does not stay, and return where the next one begins; None: none.

    With `live`, what is among the rows that it finds stays, too.
    """
    found = await connection.fetch(
        query(f"list_old_{group.kind.name}"),
        stack.name,
        group.actor_id,
        group.state,
        group.before,
        *past,
        SLICE_MAX,
    )
    going = [(row["id"], row["number"]) for row in found if row["stays"] is None]
    rows.stay.update(row["stays"] for row in found if row["stays"] is not None)
    if live is not None and going:
        there = await live.fetch(
            query(f"list_there_{group.kind.name}"), stack.name, *_named(group, going)
        )
        kept = {(row["id"], row["number"]) for row in there}
        going = [each for each in going if each not in kept]  # guard: over-due-differs-not
    if going:
        gone = await connection.fetch(
            query(f"delete_{group.kind.name}"), stack.name, *_named(group, going)
        )
        rows.deleted.update({row["what"]: row["count"] for row in gone if row["count"]})
    if len(found) < SLICE_MAX:
        return None
    last = found[-1]
    return last["ended_at"], last["id"], last["number"]


def _named(group: PrunedGroup, things: Sequence[tuple[str, int]]) -> list[list[str] | list[int]]:
    """Return things as the queries of their kind take them."""
    ids: list[list[str] | list[int]] = [[id_ for id_, _ in things]]
    return [*ids, [number for _, number in things]] if group.kind.is_numbered else ids

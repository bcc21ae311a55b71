"""The tables as a whole: how far they are, whether they are right, and making them anew."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from engine.validation import Duration, seconds_of
from projections.custom.projection import Projection
from projections.postgres.custom.tables import OwnTables, list_own
from projections.postgres.progress import PROJECTED, heads
from projections.postgres.prune import prune_beside
from projections.postgres.reader import list_checkpoints
from projections.postgres.rebuild import fresh
from projections.postgres.rebuild.pace import RebuildProgress
from projections.postgres.rebuild.rebuild import (
    RebuildOptions,
    RebuildReport,
    VerifyReport,
)
from projections.postgres.rebuild.rebuild import rebuild as rebuild_rows
from projections.postgres.rebuild.rebuild import verify as verify_rows
from vigil.asking.connect import pooled
from vigil.client.connections import Connections
from vigil.errors import Mistake, told

if TYPE_CHECKING:
    from projections.postgres.pool import Pool
    from projections.postgres.query_result import Row

KEEP: Final = "1d"
"""How long a rebuild keeps what it has replaced, by default."""

KEEP_S_MAX: Final = 366 * 86_400.0


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far the rows have followed a stream."""

    own: str
    """The name of a projection of a user; empty: these are the tables of Vigil."""
    projection: str
    """What it follows, such as `journal`, or `journal-0of4`."""
    position: int
    """The rows have everything up to this sequence."""
    head: int | None
    """The newest sequence there; None: it is not read by sequence."""
    lag: int | None
    """How many sequences lie between."""
    trouble: str | None
    """Why the rows have stopped; None: they have not."""
    updated_at: datetime | None
    """None: nothing was ever projected."""


class RebuildLeft(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of rebuilds beside the tables."""

    schema: str
    state: str
    """`unfinished`: it runs, or the next one continues it. `replaced`: rows that were replaced."""
    began_at: datetime
    replaced_at: datetime | None
    drop_at: datetime | None
    """From then on a projector drops it."""


class ProjectionsView(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a stack as a whole."""

    projections: Sequence[ProjectionStatus]
    rebuilds: Sequence[RebuildLeft]


@dataclass(frozen=True)
class ProjectionCalls:
    """Calls about the tables as a whole: `client.projections`."""

    _connections: Connections

    async def status(self) -> ProjectionsView:
        """Return how far the rows have followed each stream, and what rebuilds have left."""
        stack = self._connections.stack
        async with self._connections.rows() as pool:
            rows = {str(each["projection"]): each for each in await list_checkpoints(pool, stack)}
            own = await list_own(pool, stack)
            async with pool.acquire() as connection:
                schemas = await fresh.list_schemas(connection)
        async with self._connections.log(is_reading=True) as ports:
            # Heads after the rows: nothing is ahead of what there is.
            newest = await heads(ports, PROJECTED)
        names = [*newest, *sorted(rows.keys() - newest.keys())]
        return ProjectionsView(
            projections=[
                *(_status("", each, rows.get(each), newest.get(each)) for each in names),
                *(
                    _status(name, str(row["projection"]), row, newest.get(str(row["projection"])))
                    for name, row in own
                ),
            ],
            rebuilds=[
                _left(name, note) for name, note in schemas.items() if note.stack == stack.name
            ],
        )

    async def rebuild(
        self,
        *,
        keep: Duration = KEEP,
        most_per_s: float | None = None,
        dry_run: bool = False,
        anew: bool = False,
        own: Projection | None = None,
        tell: Callable[[RebuildProgress], None] | None = None,
    ) -> RebuildReport:
        """Make the rows anew beside those that people read, and swap those that differ.

        Nodes, projector and readers go on. A call that was killed is continued by the next one.

        Args:
            keep: how long to keep what was replaced; 0: not at all.
            most_per_s: read at most so many events per second.
            dry_run: say what would change, and change nothing.
            anew: begin anew what an earlier call has left unfinished.
            own: make the rows of this projection of your own anew, and not those of Vigil.
            tell: called now and then with how far it is.

        Raises:
            Mistake: `keep` or `most_per_s` cannot be meant.
            Trouble: another call is at it, or the tables are of another version.
        """
        try:
            keep_s = seconds_of(keep, least_s=0, most_s=KEEP_S_MAX)
        except ValueError as error:
            raise Mistake(f"keep: {error}") from error
        options = RebuildOptions(
            events_per_s_max=_checked_rate(most_per_s), keep_s=keep_s, is_dry=dry_run, anew=anew
        )
        connections = self._connections
        async with self._tables(own) as pool, connections.log(is_reading=True) as ports:
            return await rebuild_rows(
                ports.log,
                pool,
                ports.stack,
                clock=connections.clock,
                options=options,
                tell=tell or _tell_nobody,
                custom=None if own is None else OwnTables(own),
                prune=prune_beside if own is None else None,  # guard: rebuild-by-the-cuts
            )

    async def verify(
        self,
        *,
        most_per_s: float | None = None,
        anew: bool = False,
        own: Projection | None = None,
        tell: Callable[[RebuildProgress], None] | None = None,
    ) -> VerifyReport:
        """Hold the rows against what the journal says, and return the first difference.

        The arguments are those of `rebuild`.

        Raises:
            Mistake: `most_per_s` cannot be meant.
            Trouble: another call is at it, the tables are of another version, or the rows do not
                follow the log.
        """
        options = RebuildOptions(events_per_s_max=_checked_rate(most_per_s), anew=anew)
        connections = self._connections
        async with self._tables(own) as pool, connections.log(is_reading=True) as ports:
            return await verify_rows(
                ports.log,
                pool,
                ports.stack,
                clock=connections.clock,
                options=options,
                tell=tell or _tell_nobody,
                custom=None if own is None else OwnTables(own),
                prune=prune_beside if own is None else None,
            )

    @asynccontextmanager
    async def _tables(self, own: Projection | None) -> AsyncIterator[Pool]:
        connections = self._connections
        if own is None:
            async with connections.rows() as pool:
                yield pool
            return
        with told():
            schema = OwnTables(own).schema
            async with pooled(connections.config, schema=schema) as pool:
                yield pool


def _tell_nobody(_: RebuildProgress) -> None:
    return


def _checked_rate(most_per_s: float | None) -> float | None:
    if most_per_s is not None and not most_per_s >= 1:  # Also what is no number.
        raise Mistake(f"most_per_s: {most_per_s}; use at least 1 event per second")
    return most_per_s


def _status(own: str, projection: str, row: Row | None, head: int | None) -> ProjectionStatus:
    given = row or {"journal_seq": 0, "trouble": None, "updated_at": None}
    position = int(str(given["journal_seq"]))
    return msgspec.convert(
        {
            "own": own,
            "projection": projection,
            "position": position,
            "head": head,
            "lag": None if head is None else max(0, head - position),
            "trouble": given["trouble"],
            "updated_at": given["updated_at"],
        },
        ProjectionStatus,
    )


def _left(schema: str, note: fresh.FreshNote) -> RebuildLeft:
    return RebuildLeft(
        schema=schema,
        state="unfinished" if note.replaced_at is None else "replaced",
        began_at=note.began_at,
        replaced_at=note.replaced_at,
        drop_at=note.drop_at,
    )

"""The tables of a projection of a user: made when its projector begins, found by others."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec

from projections.custom.fold import CustomFold, RowTexts
from projections.custom.projection import Projection, check, schema_of, shape_of
from projections.errors import CustomChanged, NotMigrated
from projections.postgres.batches import BatchSource, LogSource, RowFold
from projections.postgres.pool import Connection, Pool
from projections.postgres.progress import PROJECTED
from projections.postgres.projector import Projected
from projections.postgres.queries import query
from projections.postgres.query_result import Row
from projections.postgres.rebuild.catch_up import Fold, Folded
from streams.clock import Clock
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.subjects import Stack

LEASE: Final = "own_{name}"


class _Note(msgspec.Struct, frozen=True):
    projection: str
    shape: str


class OwnTables:
    """The tables of one projection. `CustomTables` of a rebuild."""

    def __init__(self, projection: Projection) -> None:
        """Raise `BadProjection` if it declares what cannot be."""
        check(projection)
        self._projection = projection
        self._texts = RowTexts(query("custom/put_rows"), query("custom/remove_rows"))

    @property
    def schema(self) -> str:
        """Return where they are."""
        return schema_of(self._projection.name)

    @property
    def projected(self) -> Projected:
        """Return what their projector does."""
        return Projected(
            lease=LEASE.format(name=self._projection.name),
            prepare=self.prepare,
            feeds=self._feeds,
        )

    async def prepare(self, pool: Pool) -> None:
        """Make what is missing of them, where `pool` looks for names.

        Raises:
            CustomChanged: they were made as others than are declared now.
        """
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(query("custom/make_schema"))
            note = await connection.fetchval(query("custom/read_note"))
            if note is not None:
                self._check(note)
                return
            for name, table in self._projection.tables.items():
                columns = {**table.key, **table.columns}
                text = query("custom/make_table").format(
                    table=name,
                    columns=", ".join(f"{column} {type_}" for column, type_ in columns.items()),
                    key=", ".join(table.key),
                )
                await connection.execute(text)
            said = msgspec.json.encode(_Note(self._projection.name, self._shape)).decode()
            statements = await connection.fetchrow(
                query("rebuild/schema_statements"), self.schema, said, "", ""
            )
            assert statements is not None  # One row without FROM.
            await connection.execute(statements["note"])

    def fold(self, stack: Stack) -> Fold:
        """See `CustomTables.fold`."""

        def folded(records: Sequence[Recorded]) -> Folded:
            rows = CustomFold(stack, self._projection, self._texts)
            for each in records:
                rows.add(each)
            return Folded(rows.batches(), rows.touched())

        return folded

    async def require(self, connection: Connection, schema: str) -> str:
        """See `CustomTables.require`."""
        note = await connection.fetchval(query("custom/read_note"))
        if note is None:
            raise NotMigrated(schema, detail=f"has no tables of {self._projection.name}")
        self._check(note)
        # guard: other-own-code-begins-anew
        return f"{self._shape} {self._code()}"

    def _code(self) -> str:
        """Return what tells the code of the projection from others."""
        try:
            source = inspect.getsource(sys.modules[type(self._projection).__module__])
        except (OSError, TypeError):
            # Nobody can say: then nothing that was left unfinished is continued.
            return str(id(self))
        return sha256(source.encode()).hexdigest()

    @property
    def _shape(self) -> str:
        return shape_of(self._projection)

    def _check(self, note: str) -> None:
        # guard: custom-shape-checked
        if msgspec.json.decode(note, type=_Note).shape != self._shape:
            raise CustomChanged(self._projection.name, schema=self.schema)

    def _feeds(self, ports: Ports, clock: Clock) -> Iterator[BatchSource]:
        fold: Callable[[Stack], RowFold] = partial(
            CustomFold, projection=self._projection, texts=self._texts
        )
        for stream in PROJECTED:
            for partition in ports.stack.partitions_of(stream):
                yield LogSource(ports, stream, partition, clock=clock, fold=fold)


async def list_own(pool: Pool, stack: Stack) -> list[tuple[str, Row]]:
    """Return how far each part of each projection of users is: its name, and the checkpoint."""
    found: list[tuple[str, Row]] = []
    async with pool.acquire() as connection, connection.transaction():
        for schema in await connection.fetch(query("custom/list_schemas")):
            await connection.execute(query("custom/search_within"), schema["name"])
            rows = await connection.fetch(query("list_checkpoints"), stack.name)
            found += [(schema["projection"], dict(row)) for row in rows]
    return found

"""Combines the changes of many events, each row once, into statements. Pure.

Of one row only what stays counts: whether it was taken away first, what its columns are set to, and
what is added to them. So a batch of any size is some statements for each table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from projections.custom.projection import Add, Change, ProjectedEvent, Projection, Put, Remove
from projections.errors import CustomFailed
from projections.rows import RowBatch, Statement, document, key
from streams.errors import BadName, UnreadableEvent
from streams.ports.log import Recorded
from streams.subjects import Stack


class RowTexts(msgspec.Struct, frozen=True):
    """The statements for rows of any table; see `sql/custom`."""

    put: str
    remove: str


class _RowState(msgspec.Struct):
    is_removed: bool = False
    values: dict[str, object] = msgspec.field(default_factory=dict)
    amounts: dict[str, float] = msgspec.field(default_factory=dict)


class CustomFold:
    """The fold of a part of the log into the rows of a projection."""

    def __init__(self, stack: Stack, projection: Projection, texts: RowTexts) -> None:
        self._stack, self._projection, self._texts = stack, projection, texts
        self._rows: dict[tuple[str, tuple[object, ...]], _RowState] = {}

    def add(self, record: Recorded) -> None:
        """Take the next commit.

        Raises:
            CustomFailed: the projection raised, or asks for what it has not declared.
            UnreadableEvent: the commit is about nothing that there is.
        """
        try:
            kind, aggregate = self._stack.aggregate_of(record.subject)
        except BadName as error:
            raise UnreadableEvent(record.subject, seq=record.seq, detail=str(error)) from error
        for number, event in enumerate(record.commit.events):
            happened = ProjectedEvent(
                stack=self._stack.name,
                kind=kind.value,
                key=aggregate,
                name=str(event.__struct_config__.tag).partition("@")[0],
                event=event,
                at=record.commit.at,
                seq=record.seq,
                number=number,
            )
            for change in self._changes(happened, record):
                self._note(change, record)

    def batches(self) -> list[RowBatch]:
        """Return the statements: rows that are taken away go first."""
        removed: defaultdict[str, list[Mapping[str, object]]] = defaultdict(list)
        written: defaultdict[
            tuple[str, tuple[str, ...], tuple[str, ...]], list[Mapping[str, object]]
        ] = defaultdict(list)
        for (table, values), row in self._rows.items():
            named = dict(zip(self._projection.tables[table].key, values, strict=True))
            if row.is_removed:
                removed[table].append(named)
            if row.values or row.amounts:
                columns = table, tuple(sorted(row.values)), tuple(sorted(row.amounts))
                written[columns].append({**named, **row.values, **row.amounts})
        return [
            *(self._removing(table, rows) for table, rows in removed.items()),
            *(self._writing(*columns, rows) for columns, rows in written.items()),
        ]

    def touched(self) -> Sequence[tuple[str, tuple[object, ...]]]:
        """Return table and key of each row."""
        return [*self._rows]

    def _changes(self, event: ProjectedEvent, record: Recorded) -> Sequence[Change]:
        try:
            return [*self._projection.project(event)]
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise self._failed(record, why) from error

    def _note(self, change: Change, record: Recorded) -> None:
        table = self._projection.tables.get(change.table)
        if table is None:
            raise self._failed(record, f"there is no table {change.table!r}")
        if change.key.keys() != table.key.keys():
            raise self._failed(record, f"{change.table}: the key is {', '.join(table.key)}")
        values = tuple(_clean(change.key[each]) for each in table.key)
        if None in values:
            raise self._failed(record, f"{change.table}: a column of the key is None")
        row = self._rows.setdefault((change.table, values), _RowState())
        match change:
            case Put():
                given = self._known(change.values, table.columns, change.table, record)
                row.values.update(given)
                for each in given:
                    row.amounts.pop(each, None)
            case Add():
                for each, amount in self._known(
                    change.amounts, table.columns, change.table, record
                ).items():
                    into: dict[str, object] = row.values if each in row.values else row.amounts  # type: ignore[assignment] # both have numbers there
                    into[each] = (into.get(each) or 0) + amount  # type: ignore[operator] # as above
            case Remove():
                row.is_removed, row.values, row.amounts = True, {}, {}

    def _known(
        self,
        given: Mapping[str, object],
        columns: Mapping[str, str],
        table: str,
        record: Recorded,
    ) -> Mapping[str, object]:
        strange = sorted(given.keys() - columns.keys())
        if strange:
            raise self._failed(record, f"{table} has no column {strange[0]!r}")
        return {name: _clean(value) for name, value in given.items()}

    def _failed(self, record: Recorded, why: str) -> CustomFailed:
        place = f"{record.subject}, sequence {record.seq}"
        return CustomFailed(self._projection.name, place=place, why=why)

    def _removing(self, table: str, rows: Sequence[Mapping[str, object]]) -> RowBatch:
        names = [*self._projection.tables[table].key]
        same = " AND ".join(f"o.{each} = g.{each}" for each in names)
        text = self._texts.remove.format(table=table, same=same)
        return RowBatch(
            Statement(name="remove", table=table, keys=(*names,), text=text), document(rows)
        )

    def _writing(
        self,
        table: str,
        values: Sequence[str],
        amounts: Sequence[str],
        rows: Sequence[Mapping[str, object]],
    ) -> RowBatch:
        names = [*self._projection.tables[table].key]
        sets = [f"{each} = excluded.{each}" for each in values]
        sets += [f"{each} = coalesce(o.{each}, 0) + excluded.{each}" for each in amounts]
        text = self._texts.put.format(
            table=table,
            columns=", ".join([*names, *values, *amounts]),
            key=", ".join(names),
            sets=", ".join(sets),
        )
        return RowBatch(
            Statement(name="put", table=table, keys=(*names,), text=text), document(rows)
        )


def _clean(value: object) -> object:
    return key(value) if isinstance(value, str) else value

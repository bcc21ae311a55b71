"""`arrange` says the same as one change after the other, in few statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from projections.statement import Batch, Change, Statement, Values, arrange, fill_in

Tables: TypeAlias = dict[str, dict[Values, Values]]

INSERT = Statement(name="insert", table="t", rank=0, key_size=1)
PATCH = Statement(name="patch", table="t", rank=1, key_size=1, fold=fill_in)
UPSERT = Statement(name="upsert", table="u", key_size=2)


def insert(tables: Tables, values: Values) -> None:
    tables["t"][values[:1]] = values[1:]


def patch(tables: Tables, values: Values) -> None:
    if values[:1] in tables["t"]:
        tables["t"][values[:1]] = fill_in(tables["t"][values[:1]], values[1:])


def upsert(tables: Tables, values: Values) -> None:
    tables["u"][values[:2]] = values[2:]


MEANING: dict[str, Callable[[Tables, Values], None]] = {
    "insert": insert,
    "patch": patch,
    "upsert": upsert,
}

keys = st.sampled_from("ab")
cells = st.none() | st.integers(0, 3)
changes = st.lists(
    st.one_of(
        st.builds(lambda *values: Change(INSERT, values), keys, cells, cells),
        st.builds(lambda *values: Change(PATCH, values), keys, cells, cells),
        st.builds(lambda *values: Change(UPSERT, values), keys, keys, cells),
    ),
    max_size=30,
)


def one_by_one(given_changes: Sequence[Change]) -> Tables:
    tables: Tables = {"t": {}, "u": {}}
    for change in given_changes:
        MEANING[change.statement.name](tables, change.values)
    return tables


def in_batches(batches: Sequence[Batch]) -> Tables:
    tables: Tables = {"t": {}, "u": {}}
    for batch in batches:
        for values in batch.rows:
            MEANING[batch.statement.name](tables, values)
    return tables


@given(changes)
def test_arranged_changes_leave_the_same_rows(given_changes):
    assert in_batches(arrange(given_changes)) == one_by_one(given_changes)


@given(changes)
def test_a_batch_changes_each_row_once(given_changes):
    for batch in arrange(given_changes):
        rows = [values[: batch.statement.key_size] for values in batch.rows]
        assert len(rows) == len(set(rows))


def test_ordinary_lives_are_one_run_of_each_statement():
    lives = [
        change
        for key in range(100)
        for change in (
            Change(INSERT, (key, 1, 1)),
            Change(PATCH, (key, None, 2)),
            Change(PATCH, (key, 3, None)),
            Change(UPSERT, (key, 0, 1)),
            Change(UPSERT, (key, 0, 2)),
        )
    ]
    assert [batch.statement.name for batch in arrange(lives)] == ["insert", "upsert", "patch"]


def test_a_row_that_begins_again_starts_a_wave_of_its_own():
    again = [
        Change(INSERT, ("a", 1, 1)),
        Change(PATCH, ("a", 2, None)),
        Change(INSERT, ("a", 3, 3)),
        Change(INSERT, ("b", 1, 1)),
    ]
    assert [(batch.statement.name, list(batch.rows)) for batch in arrange(again)] == [
        ("insert", [("a", 1, 1), ("b", 1, 1)]),
        ("patch", [("a", 2, None)]),
        ("insert", [("a", 3, 3)]),
    ]


def test_a_batch_is_columns_for_postgres():
    (batch,) = arrange([Change(INSERT, ("a", 1, 2)), Change(INSERT, ("b", 3, 4))])
    assert batch.columns() == [("a", "b"), (1, 3), (2, 4)]


def test_nothing_to_do_is_no_statement():
    assert arrange([]) == []

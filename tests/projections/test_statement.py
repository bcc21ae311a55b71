"""Many changes are few statements."""

from __future__ import annotations

from projections.rows import Row, RowBatch, RowChange, Statement, arrange


class Cell(Row, omit_defaults=True):
    key: str
    value: int | None = None


INSERT = Statement(name="insert", table="t", keys=("key",))
UPDATE = Statement(name="update", table="t", keys=("key",))


def test_changes_of_one_statement_are_one_run_of_it():
    changes = [
        RowChange(INSERT, Cell("a", 1)),
        RowChange(UPDATE, Cell("b", 2)),
        RowChange(INSERT, Cell("c", 3)),
    ]
    assert arrange(changes) == [
        RowBatch(INSERT, '[{"key":"a","value":1},{"key":"c","value":3}]'),
        RowBatch(UPDATE, '[{"key":"b","value":2}]'),
    ]


def test_statements_run_in_the_order_in_which_they_are_asked_for():
    changes = [RowChange(UPDATE, Cell("b", 2)), RowChange(INSERT, Cell("a", 1))]
    assert [batch.statement for batch in arrange(changes)] == [UPDATE, INSERT]


def test_of_two_statements_that_of_the_lower_rank_comes_first():
    early = Statement(name="early", table="t", keys=(), rank=-1)
    changes = [RowChange(UPDATE, Cell("b", 2)), RowChange(early, Cell("a", 1))]
    assert [batch.statement for batch in arrange(changes)] == [early, UPDATE]


def test_a_value_that_says_nothing_is_left_out():
    (batch,) = arrange([RowChange(INSERT, Cell("a"))])
    assert batch.document == '[{"key":"a"}]'


def test_nothing_to_do_is_no_statement():
    assert arrange([]) == []

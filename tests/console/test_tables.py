"""What people read in tables is what is there."""

from __future__ import annotations

import pytest

from console.tables import as_json, cell, spelled_out


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("drop t1\x1b[2K\rkeep t1", "drop t1\ufffd[2K\ufffdkeep t1"),
        ("keep \u202et1 pord", "keep \ufffdt1 pord"),
        ("two\nlines", "two\nlines"),
        ("Größe 100 %", "Größe 100 %"),
    ],
)
def test_nothing_that_is_shown_can_hide_what_stands_beside_it(text, shown):
    assert cell("summary", text).plain == shown


def test_what_is_spelled_out_stands_behind_everything_else():
    row = {"plan": {"drop": "t1"}, "payload": None, "since": 1}
    assert list(spelled_out(row, "plan", "payload").items()) == [
        ("since", 1),
        ("plan", as_json({"drop": "t1"})),
    ]

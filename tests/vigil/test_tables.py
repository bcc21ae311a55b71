"""What people read in tables is what is there."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from vigil.printing.tables import as_json, cell, fitted, record, spelled_out, terminal

ID = "abd38715-3d02-87d7-8e0b-8fa9e40e619c"


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


def seen(rows, columns, *, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(fitted(rows, columns, width=width).body, crop=False)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_row_that_no_table_has_room_for_has_a_line_for_each_column():
    rows = [{"id": ID, "status": "done", "why": None}, {"id": ID, "status": "failed", "why": "x"}]

    assert seen(rows, ["id", "status", "why"], width=47) == [
        f" id      {ID}",
        " status  done",
        "",
        f" id      {ID}",
        " status  failed",
        " why     x",
        "",
    ]


def test_in_a_pipe_a_row_is_one_line_without_blanks_at_its_end(capsys):
    rows = [{"id": ID, "summary": "x" * 300}, {"id": ID, "summary": "a\nshort\none"}]

    to = terminal()
    to.print(fitted(rows, ["id", "summary"], width=to.width).body)

    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "summary"]
    assert first.endswith("x" * 300)
    assert second == f" {ID}  a short one"


def test_what_people_copy_stays_whole_however_narrow_the_terminal():
    rows = [{"letter": f"episode.{ID}", "status": "waiting", "detail": "three crashes in a row"}]

    assert seen(rows, ["letter", "status", "detail"], width=30) == [
        " letter",
        f" episode.{ID}",
        " status  waiting",
        " detail  three crashes in a",
        "         row",
        "",
    ]


def test_json_is_broken_where_there_is_no_room_for_it():
    console = Console(file=io.StringIO(), width=20)
    console.print(record({"plan": {"drop": "t1", "at": "db1"}}, width=20), crop=False)
    assert console.file.getvalue().splitlines()[0].startswith(' plan  {"drop"')


def test_where_a_row_is_a_line_a_long_text_is_cut_and_a_word_is_not():
    rows = [{"id": ID, "why": "nobody has looked at it since Monday", "plan": {"drop": "t" * 40}}]

    console = Console(file=io.StringIO(), width=88)
    shown = fitted(rows, ["id", "why", "plan"], width=88, is_cut=True)
    console.print(shown.body, crop=False)

    assert console.file.getvalue().splitlines()[1].split("  ") == [
        f" {ID}", "nobody has looked at i…", '{"drop":"ttttttttttttt… ',
    ]  # fmt: skip

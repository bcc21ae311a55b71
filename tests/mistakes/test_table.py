"""The table of mistakes is whole: each that a new user made is made here, and answered."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.mistakes.mistake import Mistake

HERE = Path(__file__).parent
MADE = 109  # By two people who were new to Vigil, with functions, commands and tests.
FAIR_MOST = 10


def mistakes() -> list[Mistake]:
    """Return the rows of all modules here, in order."""
    modules = [import_module(f"tests.mistakes.{path.stem}") for path in HERE.glob("test_*.py")]
    rows = [row for module in modules for row in getattr(module, "MISTAKES", ())]
    return sorted(rows, key=lambda row: row.number)


def test_each_mistake_is_in_the_table():
    assert sorted({row.number for row in mistakes()}) == list(range(1, MADE + 1))


def test_few_answers_leave_the_remedy_to_the_reader():
    fair = {row.number for row in mistakes() if row.verdict == "fair"}
    assert len(fair) <= FAIR_MOST


def test_what_is_said_is_in_one_line():
    assert [row.number for row in mistakes() if "\n" in row.said or not row.said] == []

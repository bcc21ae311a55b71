"""The table of mutants stays true while the code around it changes."""

from __future__ import annotations

from tests.mutants import ROOT, TABLE


def test_every_mutant_changes_exactly_one_place():
    found = {mutant.guard: (ROOT / mutant.file).read_text().count(mutant.text) for mutant in TABLE}
    assert {guard: count for guard, count in found.items() if count != 1} == {}


def test_every_mutant_names_tests_that_exist():
    assert [mutant.guard for mutant in TABLE if not (ROOT / mutant.tests).exists()] == []

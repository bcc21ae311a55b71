"""The table of mutants stays true while the code around it changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.markers import MARKED, NAME, ROOT, markers
from tests.mutants import TABLE
from tests.mutation import faults
from tests.mutators import PART


@pytest.mark.timeout(600)  # It computes for half a minute.
def test_every_mutant_changes_what_its_marker_marks_and_nothing_it_does_breaks_the_file():
    assert faults() == []


def test_a_replacement_has_no_attribute_or_argument_that_the_product_lacks():
    words = {
        word
        for top in MARKED
        for path in Path(ROOT, top).rglob("*.py")
        for word in re.findall(r"\w+", path.read_text())
    }
    stale = {
        mutant.guard: lost
        for mutant in TABLE
        if (lost := {*names_after_dots_in(mutant.change.text)} - words)
    }
    assert stale == {}


def test_every_marker_has_a_row():
    assert sorted(markers().keys() - {mutant.marker for mutant in TABLE}) == []


def test_a_marker_stands_at_one_place():
    assert {name for name, places in markers().items() if len(places) > 1} == set()


def test_a_marker_is_a_few_words():
    unfit = [name for name in markers() if not NAME.fullmatch(name) or name.count("-") > 4]
    assert unfit == []


def test_a_row_says_in_words_of_its_own_what_it_protects():
    guards = [mutant.guard for mutant in TABLE]
    assert [guard for guard in set(guards) if guards.count(guard) > 1] == []


def test_every_mutant_names_tests_that_exist():
    assert [mutant.guard for mutant in TABLE if not (ROOT / mutant.tests).exists()] == []


def test_every_mutant_names_tests_that_make_test_runs():
    files = {mutant.tests for mutant in TABLE if mutant.tests.endswith(".py")}
    nightly = re.compile(r"(?m)^pytestmark = .*\bnightly\b")
    assert {each for each in files if nightly.search((ROOT / each).read_text())} == set()


def names_after_dots_in(text: str) -> list[str]:
    """Return the attributes and arguments in the text of a replacement, without parts it names."""
    found = re.finditer(r"\.([A-Za-z_]\w*)|\b(\w+)=(?!=)", PART.sub("", text))
    return [each[1] or each[2] for each in found]

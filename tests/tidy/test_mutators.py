"""The ways to switch off a guard find it by its marker, and know code by what it is."""

from __future__ import annotations

import pytest

from tests.markers import BadRow, markers_in
from tests.mutators import Source, becomes, dropped, fault_of, mutated, never, without

GUARDED = """\
def allowed(asked, most):
    # guard: most-is-a-bound
    if asked > most and most:
        return False
    return bool(
        asked
        and most  # guard: most-is-given
    )
"""


def test_a_marker_marks_its_line_or_the_next_one():
    assert list(markers_in(GUARDED, ".py")) == [("most-is-a-bound", 3), ("most-is-given", 7)]


def test_a_change_is_of_the_largest_piece_of_code_that_begins_on_the_marked_line():
    assert "    if (False):\n" in mutated(Source(GUARDED), 3, never)
    assert "    if most:\n" in mutated(Source(GUARDED), 3, without("0"))
    assert "and most" not in mutated(Source(GUARDED), 7, dropped).partition("return bool")[2]


def test_a_replacement_names_parts_of_the_original():
    source = Source(GUARDED)
    renamed = Source(GUARDED.replace("asked", "wanted"))

    change = becomes("$left >= $right").at("compare")

    assert "if (asked >= most) and most:" in mutated(source, 3, change)
    assert "if (wanted >= most) and most:" in mutated(renamed, 3, change)


def test_a_mutant_that_would_die_for_another_reason_is_told():
    source = Source(GUARDED)

    assert fault_of(source, mutated(source, 3, never)) == ""
    assert fault_of(source, mutated(source, 3, becomes("least").at("test"))) == "least: not defined"
    assert fault_of(source, GUARDED.replace(":", ";")).startswith("does not compile")
    with pytest.raises(BadRow, match="changes nothing"):
        mutated(source, 3, becomes("$it"))


def test_a_name_that_only_unreached_code_needs_may_be_undefined():
    source = Source("if found := min([1]):\n    print(found)\n")

    assert fault_of(source, mutated(source, 1, never)) == ""

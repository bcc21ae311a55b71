"""Which of the known names is meant by one that is not known."""

from __future__ import annotations

import pytest

from engine.validation import near


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("restart", "restart_service"),
        ("read_statsu", "read_status"),
        ("read", "read_status"),
    ],
)
def test_a_name_that_begins_with_what_is_written_is_nearer_than_one_that_is_spelled_alike(
    given, meant
):
    names = ["read_status", "read_status_of_all", "restart_service"]
    assert near(given, names) == f"did you mean {meant}?"


def test_where_no_name_is_near_all_are_told_if_they_are_few():
    assert near("", ["a", "b"]) == near("xyz", ["a", "b"]) == "known: a, b"

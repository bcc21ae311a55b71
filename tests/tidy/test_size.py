"""`tests/size.py`: what has a short version is short, unless somebody asks."""

from __future__ import annotations

import pytest

from tests.size import is_full, size


@pytest.mark.parametrize(
    ("asked", "worlds"),
    [("", 40), ("moments", 40), ("worlds", 1_000), ("worlds=7 moments", 7), ("full", 1_000)],
)
def test_there_are_few_unless_somebody_asks_for_more(asked, worlds):
    environ = {"VIGIL_TEST_SIZE": asked}
    assert size("worlds", short=40, full=1_000, environ=environ) == worlds


@pytest.mark.parametrize(
    ("asked", "is_asked"), [("", False), ("worlds=7", False), ("moments", True), ("full", True)]
)
def test_one_part_or_everything_may_be_at_its_longest(asked, is_asked):
    assert is_full("moments", {"VIGIL_TEST_SIZE": asked}) is is_asked


def test_nobody_need_ask():
    assert not is_full("moments", {})


def test_a_word_that_nothing_knows_is_refused():
    with pytest.raises(AssertionError, match="moment"):
        is_full("moments", {"VIGIL_TEST_SIZE": "moment"})

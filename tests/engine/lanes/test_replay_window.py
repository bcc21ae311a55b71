"""What whoever dispatched before may have done with the events of a backlog."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from engine.lanes import intake
from engine.lanes.intake import Cursor, ReplayWindow


class Read(NamedTuple):
    """An event, as far as it matters here."""

    seq: int
    name: str = "a"


@pytest.fixture
def before(monkeypatch):
    monkeypatch.setattr(intake, "OPENED_MAX", 2)
    track = Cursor(
        queue="events",
        cursors={"a": 0, "b": 0},
        follow=lambda after: None,
        newest=None,
        name_of=lambda read: read.name,
        fan_out=1,
    )
    return ReplayWindow(track, until=10)


def test_all_that_was_there_may_have_been_ruled_on_and_nothing_else(before):
    assert [before.may_have_ruled_on(Read(seq)) for seq in (1, 10, 11)] == [True, True, False]


def test_only_the_first_past_a_cursor_may_have_been_opened(before):
    assert [before.may_have_opened(Read(seq)) for seq in (1, 2, 3)] == [True, True, False]


def test_what_came_since_was_opened_by_nobody(before):
    assert not before.may_have_opened(Read(11))


def test_each_cursor_counts_for_itself(before):
    """A version that did not know a name has left what it missed before all that it opened."""
    read = [Read(1, "b"), Read(2, "b"), Read(3, "b"), Read(4, "a")]
    assert [before.may_have_opened(each) for each in read] == [True, True, False, True]

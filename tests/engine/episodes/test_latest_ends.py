"""When too few of the latest episodes keep what is promised, and when enough do again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.episodes.latest_ends import (
    LatestEnds,
    count,
    end_to_count,
    level_changed,
    without_published,
)
from streams.model.events import EpisodeFinished
from streams.model.service_levels import LevelOutcome, ServiceLevel
from tests.engine.reactor import journals as given

PART = "journal"
MET, FAILED = LevelOutcome.MET, LevelOutcome.FAILED


def end_of(seq, outcome, level):
    opened = replace(given.OPENED, episode_id=f"e{seq}", service_level=level)
    return end_to_count(opened, replace(given.FINISHED, service_level=outcome), seq=seq)


def changes(outcomes, level):
    """Return what is told of ends with so many `outcomes`, `+` or `-`, oldest first."""
    ends, told = LatestEnds(), []
    for seq, sign in enumerate(outcomes, start=1):
        end = end_of(seq, MET if sign == "+" else FAILED, level)
        ends = count(ends, end, part=PART)
        told.append(level_changed(ends, end, part=PART))
    return [each for each in told if each is not None]


def names(outcomes, level):
    return [(each.payload["episode_id"], each.name) for each in changes(outcomes, level)]


def test_the_share_falls_below_the_objective_once_and_comes_back_once():
    level = ServiceLevel(success=0.5, window=4)
    assert names("++--", level) == []
    assert names("++---+", level) == [
        ("e5", "service_level.breached"),
    ]
    assert names("++---++", level) == [
        ("e5", "service_level.breached"),
        ("e7", "service_level.recovered"),
    ]


def test_an_event_tells_the_share_and_whose_end_changed_it():
    (breached,) = changes("+--", ServiceLevel(success=0.5, window=4))
    assert breached.id == "e3.service_level.breached"
    assert breached.hops == given.OPENED.trigger.hops + 1
    assert breached.payload == {
        "episode_id": "e3",
        "actor_id": "monitor",
        "expectation_id": "limits",
        "episodes": 3,
        "met": 1,
        "ratio": pytest.approx(1 / 3),
        "success": 0.5,
        "window": 4,
        "journal_seq": 3,
    }


def test_only_as_many_of_the_latest_count_as_the_window_has():
    assert names("-++", ServiceLevel(success=1, window=2)) == [
        ("e1", "service_level.breached"),
        ("e3", "service_level.recovered"),
    ]


def test_a_share_of_exactly_the_objective_keeps_it():
    # 0.07 * 100 is more than 7 in floating-point numbers.
    assert names("+" * 7 + "-" * 93, ServiceLevel(success=0.07, window=100)) == []


def test_the_newest_promise_counts():
    ends = LatestEnds()
    for seq, sign in enumerate("+-", start=1):
        level = ServiceLevel(success=0.5, window=2)
        ends = count(ends, end_of(seq, MET if sign == "+" else FAILED, level), part=PART)
    assert ends.is_kept
    assert not count(ends, end_of(3, MET, ServiceLevel(window=3)), part=PART).is_kept


@pytest.mark.parametrize(("level", "outcome"), [(None, MET), (ServiceLevel(), None)])
def test_an_end_without_a_promise_or_an_outcome_does_not_count(level, outcome):
    opened = replace(given.OPENED, service_level=level)
    end = EpisodeFinished(status=given.FINISHED.status, service_level=outcome)
    assert end_to_count(opened, end, seq=1) is None


def test_an_end_that_is_read_again_counts_once_and_is_told_again():
    level = ServiceLevel(success=1, window=9)
    ends = count(LatestEnds(), end_of(1, FAILED, level), part=PART)
    assert count(ends, end_of(1, FAILED, level), part=PART) == ends
    again = level_changed(ends, end_of(1, FAILED, level), part=PART)
    assert again is not None
    assert again.id == "e1.service_level.breached"


def test_ends_of_other_streams_count_by_their_own_numbers():
    level = ServiceLevel(success=1, window=9)
    ends = count(LatestEnds(), end_of(7, MET, level), part="journal-0of2")
    ends = count(ends, end_of(1, FAILED, level), part="journal-1of2")
    assert ends.outcomes == "+-"
    assert level_changed(ends, end_of(1, FAILED, level), part="journal-0of2") is None


def test_what_is_certainly_published_is_told_no_more():
    level = ServiceLevel(success=1, window=9)
    ends = count(LatestEnds(), end_of(3, FAILED, level), part=PART)
    assert without_published(ends, part=PART, published=2) == ends
    assert without_published(ends, part="journal-1of2", published=3) == ends
    assert without_published(ends, part=PART, published=3).changes == ()

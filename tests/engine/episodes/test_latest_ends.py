"""What follows from the latest ends: promises that are kept, budgets that suit."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from engine.episodes.latest_ends import (
    USED_MAX,
    USED_MIN,
    LatestEnds,
    Used,
    adapted,
    count,
    end_to_count,
    level_changed,
    without_published,
)
from streams.model.events import EndStatus, EpisodeFinished, Fork
from streams.model.service_levels import LevelOutcome, ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget, Mode
from tests.engine.reactor import journals as given

PART = "journal"
MET, FAILED = LevelOutcome.MET, LevelOutcome.FAILED

SIGNS = {"+": MET, "-": FAILED, "s": LevelOutcome.LATE_START, "e": LevelOutcome.LATE_END}


def end_of(seq, outcome, level):
    opened = replace(given.OPENED, episode_id=f"e{seq}", service_level=level)
    return end_to_count(opened, replace(given.FINISHED, service_level=outcome), seq=seq)


def changes(outcomes, level):
    """Return what is told of ends with so many `outcomes`, by their signs, oldest first."""
    ends, told = LatestEnds(), []
    for seq, sign in enumerate(outcomes, start=1):
        end = end_of(seq, SIGNS[sign], level)
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


def test_an_event_tells_the_share_what_was_broken_and_whose_end_changed_it():
    level = ServiceLevel(start_s=5, end_s=60, success=0.5, window=4)
    (breached,) = changes("+s-", level)
    assert breached.id == "e3.service_level.breached"
    assert breached.hops == given.OPENED.trigger.hops + 1
    assert breached.payload == {
        "episode_id": "e3",
        "actor_id": "monitor",
        "expectation_id": "limits",
        "episodes": 3,
        "met": 1,
        "late_start": 1,
        "failed": 1,
        "late_end": 0,
        "ratio": pytest.approx(1 / 3),
        "success": 0.5,
        "start_s": 5,
        "end_s": 60,
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
    assert ends.outcomes == "+f"
    assert level_changed(ends, end_of(1, FAILED, level), part="journal-0of2") is None


def test_what_is_certainly_published_is_told_no_more():
    level = ServiceLevel(success=1, window=9)
    ends = count(LatestEnds(), end_of(3, FAILED, level), part=PART)
    assert without_published(ends, part=PART, published=2) == ends
    assert without_published(ends, part="journal-1of2", published=3) == ends
    assert without_published(ends, part=PART, published=3).changes == ()


WITHIN = AdaptiveBudget(turns=(3, 40), tokens=(1_000, 90_000), wall_s=(5, 600))
FIRST = Budget(turns=10, tokens=5_000, wall_s=60)


def used(*turns):
    return [Used(each, 100 * each, 1_000 * each) for each in turns]


def test_a_quarter_more_than_the_95th_percentile_is_allowed_rounded_up():
    assert adapted(FIRST, WITHIN, used(2, 4, 6, 8, 10)) == Budget(turns=12, tokens=1_200, wall_s=12)


def test_a_few_episodes_are_no_evidence():
    assert adapted(FIRST, WITHIN, used(*[30] * (USED_MIN - 1))) == FIRST
    assert adapted(FIRST, WITHIN, used(*[30] * USED_MIN)).turns == 38


def test_it_never_leaves_its_bounds():
    assert adapted(FIRST, WITHIN, used(*[1] * 9)) == Budget(turns=3, tokens=1_000, wall_s=5)
    assert adapted(FIRST, WITHIN, used(*[900] * 9)) == Budget(turns=40, tokens=90_000, wall_s=600)


def test_a_limit_without_bounds_is_as_the_budget_says():
    within = AdaptiveBudget(turns=(3, 40))
    assert adapted(FIRST, within, used(*[16] * 9)) == replace(FIRST, turns=20)


def test_percentile_and_headroom_are_as_declared():
    within = AdaptiveBudget(turns=(1, 99), percentile=0.5, headroom=1.1)
    assert adapted(FIRST, within, used(1, 2, 10, 80, 90)).turns == 11


@pytest.mark.parametrize(
    ("cost", "limit"), [("0.10", "0.125"), ("0.00003", "0.01"), ("9", "2"), ("0.10001", "0.1251")]
)
def test_dollars_follow_what_was_used_to_a_hundredth_of_a_cent_within_their_bounds(cost, limit):
    within = AdaptiveBudget(usd=("0.01", 2), headroom=1.25)
    spent = [Used(1, 0, 0, Decimal(cost))] * USED_MIN
    assert adapted(Budget(usd="0.5"), within, spent).usd == Decimal(limit)


def counted(opened, **ended):
    end = end_to_count(opened, replace(given.FINISHED, turns_used=7, **ended), seq=1)
    return end is not None and end.used == Used(7, 0, 0)


ADAPTS = replace(given.OPENED, adaptive_budget=WITHIN)


def test_what_ran_out_of_its_budget_is_evidence_and_what_ended_otherwise_is_none():
    assert counted(ADAPTS)
    assert counted(ADAPTS, status=EndStatus.PARTIALLY_FAILED)
    assert counted(ADAPTS, status=EndStatus.FAILED, error_class="budget_exceeded")
    assert not counted(ADAPTS, status=EndStatus.FAILED, error_class="loop_detected")
    assert not counted(ADAPTS, status=EndStatus.CANCELED)


def test_dry_runs_forks_and_budgets_that_do_not_adapt_are_no_evidence():
    fork = Fork(episode_id="e0", step_no=1, by="ann")
    assert not counted(replace(ADAPTS, mode=Mode.DRY_RUN))
    assert not counted(replace(ADAPTS, fork=fork))
    assert not counted(given.OPENED)


def test_only_the_latest_hundred_are_kept():
    ends = LatestEnds()
    for seq in range(1, USED_MAX + 2):
        end = end_to_count(ADAPTS, replace(given.FINISHED, turns_used=seq), seq=seq)
        ends = count(ends, end, part=PART)
    assert [each.turns for each in ends.used] == list(range(2, USED_MAX + 2))
    assert ends.outcomes == "", "nothing was promised"

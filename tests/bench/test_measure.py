"""What the runs of a case say together."""

from __future__ import annotations

import pytest

from bench.measure import CLIENT, Case, Run, in_turns, percentile, ratio, still_gains, summarise

STRICT = Case("vigil", "steps_strict", in_flight=64)
PEER = Case("restate", "steps", in_flight=64)


def run(per_s: float, took_ms: list[float]) -> Run:
    return Run(count=round(per_s * 2), seconds=2.0, took_ms=took_ms, load_cores=0.1)


def test_systems_take_turns():
    turns = list(in_turns([STRICT, PEER], runs=3))

    assert turns == [(1, STRICT), (1, PEER), (2, STRICT), (2, PEER), (3, STRICT), (3, PEER)]


def test_a_result_is_the_median_run_with_the_slowest_and_the_fastest():
    runs = [run(per_s, [1.0]) for per_s in (90, 300, 100, 95, 110)]

    result = summarise(STRICT, runs, sync="always")

    assert (result.per_s, result.per_s_min, result.per_s_max) == (100, 90, 300)
    assert result.runs == 5


def test_a_latency_is_the_median_over_runs_of_each_runs_own():
    runs = [run(100, [1.0, 2.0, 30.0]), run(100, [1.0, 4.0, 50.0]), run(100, [9.0, 9.0, 9.0])]

    result = summarise(STRICT, runs, sync="always")

    assert (result.p50_ms, result.p99_ms) == (4.0, 30.0)


def test_the_client_is_shown_at_its_busiest():
    runs = [Run(10, 1.0, [1.0], load_cores) for load_cores in (0.2, 0.9, 0.3)]

    assert summarise(STRICT, runs, sync="always").load_cores == 0.9


def test_commits_are_counted_for_each_episode():
    runs = [Run(10, 1.0, [1.0], 0.1, commits) for commits in (80, 90, 85)]

    assert summarise(STRICT, runs, sync="always").commits_each == 8.5


@pytest.mark.parametrize(
    ("percent", "is_value"), [(1, 1), (50, 50), (99, 99), (100, 100)]
)  # fmt: skip
def test_a_percentile_is_one_of_the_values(percent: int, is_value: int):
    assert percentile(range(100, 0, -1), percent) == is_value


def test_the_percentile_of_one_value_is_that_value():
    assert percentile([7.0], 99) == 7.0


def test_a_ratio_says_how_often_theirs_fits_into_ours():
    assert ratio(630, 200) == "3.1x"
    assert ratio(190, 200) == "0.95x"


def test_nothing_is_compared_with_what_was_not_measured():
    assert ratio(630, 0) == "?"


def test_processor_time_is_that_of_all_parts_but_the_client():
    spent = Run(10, 1.0, [1.0], 0.1, cpu_s={"node": 0.02, "nats": 0.01, CLIENT: 5.0})

    assert summarise(STRICT, [spent], sync="always").cpu_us_each == 3_000


@pytest.mark.parametrize(
    ("per_s", "is_tried"),
    [
        ((), True),
        ((100,), True),
        ((100, 104), True),
        ((100, 104, 104), False),
        ((100, 90, 200, 190), True),
        ((100, 90, 200, 190, 209), False),
    ],
)
def test_more_in_flight_is_tried_until_it_brings_nothing_twice_in_a_row(per_s, is_tried):
    assert still_gains(per_s) == is_tried

"""When an episode goes in circles, and when it only looks as if."""

from __future__ import annotations

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from engine.app.actions import fingerprint, observe
from engine.episodes.episode import CYCLE_STEPS_MAX, ROUNDS, WINDOW_STEPS, Trace, find_loop


def loop_in(traces):
    return tuple(trace.fingerprint for trace in find_loop(traces))


def steps(marks, *, tokens_each=0):
    return [Trace(mark, tokens_each * (index + 1)) for index, mark in enumerate(marks)]


@pytest.mark.parametrize("cycle", ["A", "AB", "ABC", "ABCD", "AAB"])
def test_three_equal_rounds_are_a_loop(cycle):
    assert loop_in(steps(cycle * 3)) == tuple(cycle)


@pytest.mark.parametrize(
    "marks",
    ["", "A", "AA", "ABAB", "ABABA", "ABCABC", "ABCABCAB", "AAAB", "ABABAC", "ABCDE" * 3],
)
def test_less_than_three_rounds_or_a_longer_cycle_is_none(marks):
    assert loop_in(steps(marks)) == ()


def test_a_loop_is_found_however_much_useful_work_came_before():
    work = [f"work {number}" for number in range(1_000)]
    assert loop_in(steps([*work, "A", "B", "A", "B", "A", "B"])) == ("A", "B")


def test_the_shortest_cycle_is_the_one_that_is_named():
    assert loop_in(steps("A" * WINDOW_STEPS)) == ("A",)


def test_a_loop_that_was_left_again_is_none():
    assert loop_in(steps("AAAB")) == ()


def test_tokens_spent_in_between_are_thinking_not_looping():
    assert loop_in(steps("ABABAB", tokens_each=1)) == ()


def test_tokens_spent_before_the_rounds_are_no_excuse():
    assert loop_in([Trace("T", 500), *(Trace("A", 500) for _ in range(3))]) == ("A",)


def test_the_same_kind_of_step_with_other_data_is_no_loop():
    marks = [fingerprint(observe({"reading": number})) for number in range(30)]
    assert loop_in(steps(marks)) == ()


marks = st.text(alphabet="ABC", max_size=WINDOW_STEPS)
cycles = st.text(alphabet="ABC", min_size=1, max_size=CYCLE_STEPS_MAX)


@forall(marks, cycles)
def test_any_short_cycle_is_found_after_any_past(past, cycle):
    assert loop_in(steps(past + cycle * ROUNDS))


@forall(marks)
def test_what_is_called_a_loop_is_what_the_last_steps_repeat(past):
    found = "".join(loop_in(steps(past)))
    assert not found or past.endswith(found * ROUNDS)


@forall(st.lists(st.integers(), unique=True, max_size=40))
def test_steps_that_all_differ_are_never_a_loop(numbers):
    assert loop_in(steps(map(str, numbers))) == ()


@forall(marks)
def test_the_window_is_all_that_matters(past):
    traces = steps(past * 3)
    assert find_loop(traces) == find_loop(traces[-WINDOW_STEPS:])


def test_the_same_step_with_another_outcome_each_time_is_no_loop():
    tries = [Trace("a", 0, outcome) for outcome in (1, 1, 2)]

    assert find_loop(tries) == ()
    assert loop_in([*tries, *tries, *tries]) == ("a", "a", "a")

"""The functions of a workflow's steps, called with all that steps before them may bring."""

from __future__ import annotations

from itertools import count

import pytest

from engine.app.workflow import Workflow, retrying
from vigil.testing import check_workflow

HIT = {"hit": True, "owners": ["ann"]}


def review(**rate) -> Workflow:
    found = Workflow("review")
    found.step("screen", "compliance", "screen", on_failure=rate.pop("on_failure", "abort"))
    found.step("rate", "risk", "rate", depends_on=["screen"], **rate)
    return found


def test_inputs_that_fit_all_that_may_come_hold():
    flow = review(
        when=lambda trigger, prior: trigger.payload["amount"] > 1,
        input=lambda trigger, prior: {"owners": prior["screen"]["owners"]},
    )
    check_workflow(flow, {"amount": 1}, {"amount": 7}, results={"screen": [HIT]})


def test_a_workflow_without_functions_needs_no_results():
    check_workflow(review())


@pytest.mark.parametrize("on_failure", ["continue", "pause", retrying(then="continue")])
def test_an_input_that_needs_a_result_which_may_be_none_is_found(on_failure):
    flow = review(on_failure=on_failure, input=lambda _, prior: {"hit": prior["screen"]["hit"]})
    with pytest.raises(AssertionError, match=r"rate: with .*None.*: input: TypeError"):
        check_workflow(flow, results={"screen": [HIT]})


def test_so_is_one_after_a_step_that_may_be_skipped():
    flow = Workflow("review")
    flow.step("screen", "compliance", "screen", when=lambda trigger, prior: False)
    flow.step("rate", "risk", "rate", depends_on=["screen"], when=lambda _, p: p["screen"]["hit"])
    with pytest.raises(AssertionError, match=r"rate: with .*: when: TypeError"):
        check_workflow(flow, results={"screen": [HIT]})


def test_so_is_one_of_a_step_further_on():
    flow = review(on_failure="continue")
    flow.step("tell", "desk", "tell", depends_on=["rate"], input=lambda _, p: {**p["screen"]})
    with pytest.raises(AssertionError, match=r"tell: with .*: input: TypeError"):
        check_workflow(flow, results={"screen": [HIT], "rate": [{"risk": 1}]})


def test_so_is_an_item_that_failed_while_the_others_went_on():
    flow = Workflow("review")
    flow.step("each", "a", "b", for_each=lambda trigger, prior: [1, 2], on_failure="continue")
    flow.step(
        "sum", "a", "c", depends_on=["each"],
        input=lambda _, prior: {"n": sum(one["n"] for one in prior["each"] or [])},
    )  # fmt: skip
    with pytest.raises(AssertionError, match=r"sum: with .*\[None\].*: input: TypeError"):
        check_workflow(flow, results={"each": [[{"n": 1}, {"n": 2}]]})


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ({"input": lambda *_: None}, "input: returned None, not a dict"),
        ({"when": lambda *_: 1}, "when: returned a int, not True or False"),
        ({"for_each": lambda *_: "ab"}, "for_each: returned a str, not a list"),
        ({"input": lambda trigger, _: {"a": trigger.payload["b"]}}, "input: KeyError: 'b'"),
    ],
)
def test_what_is_no_input_is_found_with_what_it_was_given(option, problem):
    with pytest.raises(AssertionError, match=f"rate: with {{}} and .*: {problem}"):
        check_workflow(review(**option), results={"screen": [HIT]})


def test_an_input_that_is_another_one_each_time_is_found():
    numbers = count()
    flow = review(input=lambda *_: {"n": next(numbers)})
    with pytest.raises(AssertionError, match="returns something else each time"):
        check_workflow(flow, results={"screen": [HIT]})


def test_a_step_whose_results_nobody_gave_is_named():
    flow = review(input=lambda *_: {})
    with pytest.raises(AssertionError, match="rate: there are no results of 'screen' before it"):
        check_workflow(flow)


def test_results_of_a_step_that_there_is_not_are_refused():
    with pytest.raises(AssertionError, match="there is no step 'scren'; there are screen, rate"):
        check_workflow(review(), results={"scren": [HIT]})

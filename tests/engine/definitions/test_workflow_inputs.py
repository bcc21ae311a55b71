"""What steps are told by a definition: paths are looked up, everything else stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from engine.definitions import to_workflow, workflow_of
from engine.definitions.workflow import FilledInput, is_path
from engine.validation import encode
from streams.model.triggers import ManualTrigger
from tests.engine.workflows.flows import done, fails, given

OWNERS = [{"name": "ann"}, "bob", None]


def flow(**steps):
    """Define the workflow `w` with these steps of one actor."""
    said = {
        name: {"actor": "act", "expectation": name, **options} for name, options in steps.items()
    }
    return to_workflow(workflow_of({"name": "w", "steps": said}))


def told(said, payload, prior=None):
    """Return what a step with this input is told."""
    return FilledInput(said)(ManualTrigger(requested_by="ada", payload=payload), prior or {})


@pytest.mark.parametrize(
    ("said", "filled"),
    [
        ("trigger.client", "acme"),
        ("trigger.address.country", "DE"),
        ("trigger.a.b", "a key with a dot"),
        ("trigger", {"client": "acme", "address": {"country": "DE"}, "a.b": "a key with a dot"}),
        ("trigger.address.street", None),
        ("trigger.client.id", None),
        ("prior.screen", {"hit": True}),
        ("prior.screen.hit", True),
        ("prior.skipped.hit", None),
        ("a text", "a text"),
        ("prior", "prior"),
        ("trigger:client", "trigger:client"),
        ("Trigger.client", "Trigger.client"),
        ("items.1", "items.1"),
        (None, None),
        (7, 7),
        ([1, "trigger.client", ["prior.screen.hit"]], [1, "acme", [True]]),
        ({"deep": {"er": "trigger.client"}}, {"deep": {"er": "acme"}}),
        ({"value": "trigger.client"}, "trigger.client"),
        ({"value": {"a": ["trigger.client"]}}, {"a": ["trigger.client"]}),
        ({"value": "trigger.client", "unit": "m"}, {"value": "acme", "unit": "m"}),
    ],
)
def test_a_path_stands_for_what_it_leads_to(said, filled):
    payload = {"client": "acme", "address": {"country": "DE"}, "a.b": "a key with a dot"}
    prior = {"screen": {"hit": True}, "skipped": None}
    assert told({"field": said}, payload, prior) == {"field": filled}


def test_a_field_called_value_is_one_like_any_other():
    assert told({"value": "trigger.a"}, {"a": 5}) == {"value": 5}


def test_the_whole_input_may_be_one_path():
    assert told("trigger", {"a": 5}) == {"a": 5}
    with pytest.raises(TypeError, match=r"^trigger\.a: 5 is not an object$"):
        told("trigger.a", {"a": 5})


def test_a_step_runs_with_the_trigger_and_with_what_earlier_steps_brought():
    review = flow(
        screen={"input": {"client": "trigger.client"}},
        rate={
            "depends_on": ["screen"],
            "input": {"of": "prior.screen.client", "list": ["prior.screen.hit", "trigger.none"]},
        },
    )
    happened = given(review, {"client": "acme"}).when(done("screen", {"client": "a1", "hit": True}))
    assert happened.input_of("screen") == {"client": "acme"}
    assert happened.input_of("rate") == {"of": "a1", "list": [True, None]}


WATCHED = {"prior.screen.hit": True, "trigger.amount": {"gte": 10}}


@pytest.mark.parametrize(
    ("amount", "hit", "runs"),
    [(10, True, True), (9, True, False), (10, False, False), ("10", True, False), (10, 1, False)],
)
def test_a_step_runs_when_all_of_its_conditions_hold(amount, hit, runs):
    review = flow(screen={}, rate={"depends_on": ["screen"], "when": WATCHED})
    happened = given(review, {"amount": amount}).when(done("screen", {"hit": hit}))
    assert happened.item("rate").status == ("running" if runs else "skipped")


def test_a_step_that_was_skipped_brings_nothing_to_ask_for():
    review = flow(
        screen={"on_failure": "continue"},
        rate={"depends_on": ["screen"], "when": {"prior.screen.hit": {"exists": True}}},
    )
    assert given(review).when(fails("screen")).item("rate").status == "skipped"


def test_a_step_fans_out_over_the_list_at_a_path():
    happened = given(flow(tell={"for_each": "trigger.owners"}), {"owners": OWNERS})
    assert [happened.input_of("tell", each) for each in range(3)] == [
        {"name": "ann"},
        {"item": "bob"},
        {"item": None},
    ]


def test_each_item_may_be_a_part_of_what_its_input_says():
    said = {"who": "item.name", "item": "item", "client": "trigger.client"}
    tell = {"for_each": "trigger.owners", "input": said}
    happened = given(flow(tell=tell), {"owners": OWNERS, "client": "acme"})
    assert [happened.input_of("tell", each) for each in range(3)] == [
        {"who": "ann", "item": {"name": "ann"}, "client": "acme"},
        {"who": None, "item": "bob", "client": "acme"},
        {"who": None, "item": None, "client": "acme"},
    ]


def test_a_step_has_no_items_if_the_list_is_empty():
    given(flow(tell={"for_each": "trigger.owners"}), {"owners": []}).is_("done")


@pytest.mark.parametrize("payload", [{}, {"owners": None}, {"owners": "ann"}])
def test_a_step_fails_if_there_is_no_list(payload):
    """Nobody would notice a path that is mistyped if that were a list of nothing."""
    happened = given(flow(tell={"for_each": "trigger.owners"}), payload)
    happened.then("failed tell[0]: bad_input", "abort: bad_input", "finish failed")
    ended = happened.said[0]
    assert ended.error_detail.startswith("for_each: TypeError: trigger.owners: ")
    assert ended.error_detail.endswith(" is not a list")


# Whatever comes.

TEXTS = st.text(max_size=6) | st.sampled_from(
    ["trigger", "trigger.a", "prior.x.a", "prior.x", "item.a", "trigger.", "value", "prior."]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(TEXTS | st.sampled_from("abx"), VALUES, max_size=4)


@settings(max_examples=200)
@forall(said=OBJECTS, payload=OBJECTS, result=VALUES)
def test_no_payload_and_no_result_is_too_strange_for_an_input(said, payload, result):
    filled = told(said, payload, {"x": result})
    assert filled.keys() == said.keys()
    assert encode(filled, what="input") == encode(told(said, payload, {"x": result}), what="input")
    for key, each in said.items():
        if not is_path(each) and not isinstance(each, dict | list):
            assert filled[key] == each


@forall(payload=OBJECTS, result=VALUES)
def test_no_payload_and_no_result_is_too_strange_for_a_condition(payload, result):
    wanted = {"trigger.a": {"gt": 5}, "prior.x.a": {"between": ["a", "b"]}, "trigger.b": {"neq": 1}}
    condition = flow(x={}, last={"depends_on": ["x"], "when": wanted}).steps["last"].when
    trigger = ManualTrigger(requested_by="ada", payload=payload)
    assert condition(trigger, {"x": result}) in (True, False)

"""Actors that name their stacks are on no other, and neither is what cannot do without them."""

from __future__ import annotations

import pytest

from engine.app.actor import STACKS_MAX, Actor
from engine.app.app import Absent, App, absent_from, on_stack
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.triggers import event, manual, workflow
from engine.app.workflow import Workflow
from engine.errors import BadWorkflow, DeclarationError


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


def actor(id_, *stacks):
    made = Actor(id_, stacks=stacks or None)
    made.expect("x", Watch, on=[event("a.b"), workflow()])
    return made


def flow(name, *asked, runs=(), undo=None):
    made = Workflow(name, on=manual())
    for number, each in enumerate(asked):
        made.step(f"s{number}", each, "x")
    for number, each in enumerate(runs):
        made.sub(f"w{number}", each)
    if undo:
        made.step("undone", "anywhere", "x", compensate=(undo, "x"))
    return made


def app(*workflows):
    return App(actors=[actor("anywhere"), actor("billing", "orders")], workflows=workflows)


def test_an_actor_is_on_every_stack_unless_it_names_some():
    assert set(on_stack(app(), "orders").actors) == {"anywhere", "billing"}
    assert set(on_stack(app(), "shipping").actors) == {"anywhere"}


@pytest.mark.parametrize("other", ["orders-qa", "order", "Orders"])
def test_a_stack_is_named_whole_with_its_env(other):
    assert "billing" not in on_stack(app(), other).actors


def test_the_app_stays_whole_and_so_does_what_its_actors_share():
    whole = app()
    part = on_stack(whole, "shipping")
    assert set(whole.actors) == {"anywhere", "billing"}
    assert part.tools == whole.tools
    assert part.actors["anywhere"] is whole.actors["anywhere"]


@pytest.mark.parametrize(
    "lacking",
    [
        flow("wf", "anywhere", "billing"),
        flow("wf", undo="billing"),
    ],
    ids=["a step asks it", "a step is undone by it"],
)
def test_a_workflow_is_only_where_every_actor_is_that_it_asks(lacking):
    whole = app(lacking, flow("other", "anywhere"))
    part = on_stack(whole, "shipping")
    assert set(part.workflows) == {"other"}
    assert set(part.actors) == {"anywhere", "workflow-other"}
    assert set(on_stack(whole, "orders").workflows) == {"wf", "other"}


def test_a_workflow_is_only_where_the_workflows_within_it_are():
    inner, outer = flow("inner", "billing"), flow("outer", "anywhere", runs=["middle"])
    whole = app(flow("middle", runs=["inner"]), outer, inner)
    assert set(on_stack(whole, "shipping").workflows) == set()
    assert set(on_stack(whole, "orders").workflows) == {"inner", "middle", "outer"}


def test_a_workflow_may_name_an_actor_of_other_stacks_but_none_that_the_app_lacks():
    with pytest.raises(BadWorkflow, match="'nobody' is not there"):
        app(flow("wf", "nobody"))


def test_what_is_absent_is_named_in_order_and_what_begins_a_workflow_is_not():
    whole = app(flow("b", "billing"), flow("a", "billing"), flow("c", "anywhere"))
    absent = absent_from(whole, "shipping")
    assert absent == Absent(actors=("billing",), workflows=("a", "b"))
    assert absent_from(whole, "orders") == Absent(actors=(), workflows=())


@pytest.mark.parametrize(
    ("stacks", "problem"),
    [
        ("orders", "is not a list"),
        (7, "is not a list"),
        ([], "0 stacks; name 1 to 100, or leave it out for every one"),
        ([str(n) for n in range(STACKS_MAX + 1)], "101 stacks"),
        (["a b"], "use 1 to 32 of A-Z"),
        ([7], "expected string"),
        (["orders", "orders"], "names a stack twice"),
    ],
)
def test_stacks_that_cannot_be_are_refused_when_declared(stacks, problem):
    with pytest.raises(DeclarationError, match=problem) as refused:
        Actor("monitor", stacks=stacks)
    assert (refused.value.actor, refused.value.field) == ("monitor", "stacks")

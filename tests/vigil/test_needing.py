"""What workflows that are defined as data cannot do without."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.cluster.nodes import ExpectationInfo
from engine.definitions import agent_of, canonical, workflow_of
from streams.json import NOTHING
from streams.model.definitions import RegisteredDefinition
from streams.model.events.definitions import DefinitionKind
from tests.vigil.journal import said_by
from vigil.asking.definitions.checks import around, lacks, needed_by

AGENT, WORKFLOW = DefinitionKind.AGENT, DefinitionKind.WORKFLOW


def actor(id_, *expectations):
    strategy = {"on": {"manual": True}, "strategy": {"ref": "parts:Look"}}
    body = canonical(agent_of({"id": id_, "expectations": dict.fromkeys(expectations, strategy)}))
    return RegisteredDefinition(kind=AGENT, id=id_, revision=1, seq=1, body=body)


def flow(name, **steps):
    """Return a workflow; a step is `actor.expectation`, or the name of another workflow."""
    body = canonical(workflow_of({"name": name, "steps": {k: step(v) for k, v in steps.items()}}))
    return RegisteredDefinition(kind=WORKFLOW, id=name, revision=1, seq=1, body=body)


def step(said):
    id_, is_task, expectation = said.partition(".")
    return {"actor": id_, "expectation": expectation} if is_task else {"workflow": id_}


def disabled(registered):
    return replace(registered, body=NOTHING)


REVIEW = flow("review", screen="desk.screen", rate="desk.rate", pay="bank.pay")


def node(**coded):
    """Return a node that declares actors with these expectations in code."""
    said = said_by("n1", {}, **dict.fromkeys(coded, 0))
    infos = {
        id_: replace(
            said.actors[id_], expectations={name: ExpectationInfo() for name in expectations}
        )
        for id_, expectations in coded.items()
    }
    return replace(said, actors=infos)


def test_a_workflow_needs_the_actors_of_its_steps():
    assert needed_by([REVIEW], (AGENT, "desk")) == {"review": ["screen", "rate"]}
    assert needed_by([REVIEW], (AGENT, "desk"), only=["rate"]) == {"review": ["rate"]}
    assert needed_by([REVIEW], (AGENT, "review")) == {}


def test_a_workflow_needs_those_that_it_runs_and_what_undoes_a_step():
    compensate = {"actor": "undoer", "expectation": "undo"}
    said = {"name": "outer", "steps": {"a": {"workflow": "review"},
            "b": {"actor": "desk", "expectation": "rate", "compensate": compensate}}}  # fmt: skip
    outer = RegisteredDefinition(
        kind=WORKFLOW, id="outer", revision=1, seq=1, body=canonical(workflow_of(said))
    )

    assert needed_by([outer], (WORKFLOW, "review")) == {"outer": ["a"]}
    assert needed_by([outer], (AGENT, "undoer")) == {"outer": ["b"]}


def test_a_workflow_that_is_disabled_needs_nothing():
    assert needed_by([disabled(REVIEW)], (AGENT, "desk")) == {}


@pytest.mark.parametrize(
    ("nodes", "definitions", "found"),
    [
        ([node(desk=["screen", "rate"], bank=["pay"])], [], []),
        ([node(other=["x"])], [actor("desk", "screen", "rate"), actor("bank", "pay")], []),
        ([node(desk=[], bank=["pay"])], [], []),
        ([], [], []),
        (
            [node(desk=["screen"], bank=["pay"])],
            [],
            ["step rate: actor 'desk' has no expectation 'rate'; it has: screen"],
        ),
        (
            [node(desk=["screen", "rate"])],
            [disabled(actor("bank", "pay"))],
            ["step pay: there is no actor 'bank'; there are: desk"],
        ),
        (
            [node(desk=["screen", "rate"])],
            [actor("bank", "pay_out")],
            ["step pay: actor 'bank' has no expectation 'pay'; it has: pay_out"],
        ),
    ],
    ids=[
        "in code", "defined", "a node that is cut short", "no node", "another expectation",
        "disabled", "defined otherwise",
    ],
)  # fmt: skip
def test_what_a_workflow_names_is_there_in_code_or_as_a_definition(nodes, definitions, found):
    assert lacks(nodes, [REVIEW, *definitions], "review") == found


def test_what_is_in_code_goes_before_what_is_defined():
    nodes = [node(desk=["screen", "rate"], bank=["pay"])]
    assert lacks(nodes, [REVIEW, actor("desk", "other")], "review") == []


def test_a_workflow_within_another_must_be_there():
    outer = flow("outer", a="review")
    absent = "step a: there is no workflow 'review'; there are: outer"
    assert lacks([node(x=["y"])], [outer], "outer") == [absent]
    assert lacks([node(x=["y"])], [outer, REVIEW], "outer") == []


def test_workflows_that_run_each_other_are_found_out():
    assert around([flow("a", x="b"), flow("b", x="c.y"), REVIEW]) == ""
    assert around([flow("a", x="b"), flow("b", x="a")]) in ("a → b → a", "b → a → b")

"""What a node is to have: its code, and of what is defined whatever can run beside it."""

from __future__ import annotations

from dataclasses import replace

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.triggers import manual
from engine.app.workflow import Workflow
from engine.app.workflow_plan import WORKFLOWS_MAX
from engine.definitions.make import IN_CODE, catalog_of, in_code, make, unmade
from streams.json import NOTHING, raw
from streams.model.definitions import RegisteredDefinition
from streams.model.events import DefinitionKind

AGENT, WORKFLOW = DefinitionKind.AGENT, DefinitionKind.WORKFLOW


class Watch(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        raise NotImplementedError

    def converge(self, state, ctx):
        return ConvergeResult()


def app() -> App:
    coded = Actor("coded")
    coded.expect("x", Watch(), on=manual())
    flow = Workflow("coded")
    flow.step("x", "coded", "x")
    return App(actors=[coded], workflows=[flow], strategies={"watch": Watch})


def agent(id_="monitor", revision=1, **more) -> RegisteredDefinition:
    x = {"strategy": {"ref": "watch"}, "on": {"manual": True}}
    body = raw({"id": id_, "expectations": {"x": x}, **more})
    return RegisteredDefinition(kind=AGENT, id=id_, revision=revision, seq=1, body=body)


def flow(*steps, name="w", revision=1) -> RegisteredDefinition:
    said = {f"s{number}": step for number, step in enumerate(steps)}
    body = raw({"name": name, "steps": said})
    return RegisteredDefinition(kind=WORKFLOW, id=name, revision=revision, seq=1, body=body)


def of(actor="monitor"):
    return {"actor": actor, "expectation": "x"}


def cast_with(*revisions, stack=None):
    return catalog_of(app(), [make(each, app()) for each in revisions], stack=stack)


def test_without_definitions_a_node_has_what_is_in_code():
    own = app()
    assert catalog_of(own, []) == in_code(own)


def test_what_is_defined_is_there_beside_what_is_in_code():
    contents = cast_with(agent(revision=4), flow(of(), of("coded"), revision=5))
    revisions = {id_: actor.revision for id_, actor in contents.actors.items()}
    assert revisions == {"coded": 0, "workflow-coded": 0, "monitor": 4, "workflow-w": 5}
    assert {name: each.revision for name, each in contents.workflows.items()} == {
        "coded": 0,
        "w": 5,
    }
    assert contents.problems == {}


def test_what_is_disabled_is_not_there_and_no_problem():
    disabled = RegisteredDefinition(kind=AGENT, id="monitor", revision=1, seq=2, body=NOTHING)
    contents = cast_with(disabled)
    assert ("monitor" in contents.actors, contents.problems) == (False, {})


def test_code_goes_before_definitions_of_actors_and_of_workflows():
    contents = cast_with(agent("coded"), flow(of("coded"), of("coded"), name="coded"))
    assert contents.problems == {"agent.coded": IN_CODE, "workflow.coded": IN_CODE}
    assert contents.actors["coded"].revision == contents.workflows["coded"].revision == 0


def test_only_workflows_have_actors_that_begin_them():
    assert "begins with 'workflow-'" in cast_with(agent("workflow-w")).problems["agent.workflow-w"]


def test_a_definition_is_what_it_was_applied_as():
    misplaced = agent("monitor")
    registered = RegisteredDefinition(
        kind=AGENT, id="other", revision=1, seq=1, body=misplaced.body
    )
    contents = cast_with(registered)
    assert "calls itself 'monitor'" in contents.problems["agent.other"]


def test_an_actor_of_other_stacks_is_a_problem_here_and_so_is_what_names_it():
    revisions = agent(stacks=["orders"]), flow(of())
    contents = cast_with(*revisions, stack="billing")
    assert contents.problems["agent.monitor"] == "it is for orders, and this stack is billing"
    assert "'monitor' is not there" in contents.problems["workflow.w"]
    assert cast_with(*revisions, stack="orders").problems == {}
    assert cast_with(*revisions).problems == {}


def test_a_workflow_that_lacks_something_takes_only_those_along_that_need_it():
    inner, outer = flow(of("missing"), name="inner"), flow({"workflow": "inner"}, name="outer")
    contents = cast_with(agent(), inner, outer, flow(of()))
    assert set(contents.workflows) == {"coded", "w"}
    assert "'missing' is not there" in contents.problems["workflow.inner"]
    assert "'inner' is not there" in contents.problems["workflow.outer"]


def test_a_workflow_that_begins_nothing_has_somebody_who_sees_to_its_instances():
    disabled = RegisteredDefinition(kind=WORKFLOW, id="v", revision=1, seq=2, body=NOTHING)
    contents = cast_with(agent(), flow(of()), flow(of("missing"), name="u"), disabled)
    assert set(contents.closed) == {"workflow-u", "workflow-v"}
    assert not contents.closed.keys() & contents.actors.keys()
    assert all(not each.expectations for each in contents.closed.values())


def test_who_stands_in_for_what_has_a_problem_is_an_understudy():
    disabled = RegisteredDefinition(kind=AGENT, id="off", revision=1, seq=2, body=NOTHING)
    lacking = agent("lacking", gatherers=["none"])
    contents = cast_with(disabled, lacking, agent("coded"), flow(of("missing")))
    assert set(contents.closed) == {"off", "lacking", "workflow-w"}
    assert contents.fallbacks == {"lacking", "workflow-w"}


def test_who_stands_in_for_what_is_disabled_is_one_if_it_could_not_be_made_either():
    off = replace(unmade("agent.off"), lack="there is no such template")
    assert catalog_of(app(), [off]).fallbacks == {"off"}


def test_nobody_sees_to_what_no_workflow_can_be_called_or_what_is_in_code():
    odd = RegisteredDefinition(kind=WORKFLOW, id="x" * 64, revision=1, seq=2, body=NOTHING)
    coded = RegisteredDefinition(kind=WORKFLOW, id="coded", revision=1, seq=2, body=NOTHING)
    assert cast_with(odd, coded).closed == {}


def test_a_problem_says_which_revision_it_is_about():
    contents = cast_with(agent("coded", revision=3), flow(of("missing"), revision=4))
    assert contents.problems_at == {"agent.coded": 3, "workflow.w": 4}


def test_workflows_that_run_each_other_are_problems_and_the_rest_is_not():
    circle = [flow({"workflow": to}, name=name) for name, to in (("a", "b"), ("b", "a"))]
    contents = cast_with(agent(), *circle, flow(of()))
    assert set(contents.workflows) == {"coded", "w"}
    assert set(contents.problems) == {"workflow.a", "workflow.b"}


def test_what_begins_a_workflow_in_code_is_nobody_to_run_a_step():
    begins = {"actor": "workflow-coded", "expectation": "start"}
    assert "'workflow-coded' is not there" in cast_with(flow(begins)).problems["workflow.w"]


def test_of_too_many_workflows_none_that_is_defined_is_there():
    many = [flow(of("coded"), name=f"w{number}") for number in range(WORKFLOWS_MAX)]
    contents = cast_with(*many)
    assert set(contents.workflows) == {"coded"}
    assert "more than 1,000" in contents.problems["workflow.w0"]

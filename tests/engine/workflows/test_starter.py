"""The actor that begins a workflow, as an app has it."""

from __future__ import annotations

import pytest

from engine.actor import Actor
from engine.app import App
from engine.errors import BadWorkflow, DeclarationError
from engine.strategy import Abort, Retry
from engine.tools import Failure
from engine.trigger import event, every, workflow
from engine.workflows.starter import TRIES_MAX, StartWorkflow
from engine.workflows.workflow import Workflow
from tests.engine.runtime.workflow_stage import Scripted


def app_of(made: Workflow, *more: Actor) -> App:
    made.step("a", "act", "a")
    actor = Actor("act")
    actor.expect("a", Scripted(), on=workflow())
    return App(actors=[actor, *more], workflows=[made])


def test_each_workflow_has_an_actor_that_hears_what_begins_it():
    made = Workflow("w", on=event("a.b"), subject_key="x", debounce_s=3)
    starter = app_of(made).actors["workflow-w"]
    (start,) = starter.expectations.values()
    assert (start.name, start.on, start.subject_key, start.debounce_s) == (
        "start",
        made.on,
        "x",
        3,
    )


def test_a_name_that_its_actor_could_not_have_is_refused():
    app_of(Workflow("w" * 55))
    with pytest.raises(BadWorkflow, match="name: 56 characters, the limit is 55"):
        app_of(Workflow("w" * 56))


def test_an_actor_of_the_same_id_is_refused():
    other = Actor("workflow-w")
    other.expect("a", Scripted(), on=workflow())
    with pytest.raises(BadWorkflow, match="an actor is called 'workflow-w'"):
        app_of(Workflow("w"), other)


def test_what_nothing_that_begins_it_is_asked_is_refused_in_the_workflow_s_name():
    with pytest.raises(BadWorkflow, match="workflow 'w': dedupe"):
        app_of(Workflow("w", on=every("1h"), dedupe=lambda event: "x"))


def test_an_app_has_no_workflow_of_an_actor_that_it_does_not_declare():
    made = Workflow("w")
    made.step("b", "elsewhere", "b")
    with pytest.raises(BadWorkflow, match="'elsewhere' is not there"):
        app_of(made)


def test_no_app_may_have_the_tool_that_begins_instances():
    with pytest.raises(ValueError, match="the engine has that name"):
        Actor("act", tools={"vigil_workflows": Scripted})


def test_the_log_s_absence_is_outwaited_for_some_tries():
    strategy = StartWorkflow("w")
    state = strategy.State()
    for _ in range(TRIES_MAX - 1):
        handled = strategy.handle_result(state, None, Failure("tool_unavailable", "away"))
        assert isinstance(handled, Retry)
        state = handled.state
    assert isinstance(
        strategy.handle_result(state, None, Failure("tool_unavailable", "away")), Abort
    )


def test_each_try_is_another_action_so_that_none_looks_like_a_circle():
    strategy = StartWorkflow("w")
    first, second = (strategy.next_step(strategy.State(tries), None) for tries in (0, 1))
    assert first != second


@pytest.mark.parametrize("id_", ["-waits", "workflow-other"])
def test_no_actor_is_called_as_the_engines_own_queues_or_actors_are(id_):
    actor = Actor(id_)
    actor.expect("a", StartWorkflow("w"), on=workflow())
    with pytest.raises(DeclarationError, match=r"id: begins with '(-|workflow-)'"):
        App(actors=[actor])

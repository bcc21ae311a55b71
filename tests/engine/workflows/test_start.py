"""The triggers of a workflow, as an app has them."""

from __future__ import annotations

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event, every, workflow
from engine.app.workflow import Workflow
from engine.app.workflow_plan import Starter
from engine.errors import BadWorkflow, DeclarationError
from tests.engine.workflow_stage import Scripted


def app_of(made: Workflow, *more: Actor) -> App:
    made.step("a", "act", "a")
    actor = Actor("act")
    actor.expect("a", Scripted(), on=workflow())
    return App(actors=[actor, *more], workflows=[made])


def test_each_workflow_has_a_starter_that_hears_what_starts_it():
    made = Workflow("w", on=event("a.b"), subject_key="x", debounce_s=3)
    starter = app_of(made).actors["workflow-w"]
    assert isinstance(starter, Starter)
    (start,) = starter.expectations.values()
    assert (start.name, start.on, start.subject_key, start.debounce_s) == (
        "start",
        made.on,
        "x",
        3,
    )


def test_a_name_that_its_starter_could_not_have_is_refused():
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


@pytest.mark.parametrize("id_", ["-waits", "workflow-other"])
def test_no_actor_is_called_as_the_engines_own_queues_or_actors_are(id_):
    actor = Actor(id_)
    actor.expect("a", Scripted(), on=workflow())
    with pytest.raises(DeclarationError, match=r"id: begins with '(-|workflow-)'"):
        App(actors=[actor])

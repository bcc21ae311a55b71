"""The actor that begins a workflow, as an app has it."""

from __future__ import annotations

import pytest

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import Abort, Retry
from engine.app.tools import Failure
from engine.app.triggers import event, every, workflow
from engine.app.workflow import Workflow
from engine.app.workflow_plan import TRIES_MAX, StartResult, StartWorkflow
from engine.episodes.episode import Episode
from engine.errors import BadWorkflow, DeclarationError
from engine.workflows.start import busy_instance, skipped, why_unbegun
from streams.json import raw
from streams.model.events import EndStatus, EpisodeConverged, EpisodeFinished, EpisodeOpened
from streams.model.triggers import Budget, ManualTrigger
from tests.engine.workflow_stage import Scripted


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


def converged(*, is_skipped: bool) -> EpisodeConverged:
    """Return what an episode decides that has begun the instance `i`, or found it busy."""
    begun = StartResult(instance_id="i", is_skipped=is_skipped)
    result = StartWorkflow("w").converge(StartWorkflow.State(1, begun), None)
    return EpisodeConverged(classification=raw(result.classification))


@pytest.mark.parametrize(
    ("episode", "why"),
    [
        (Episode(), ""),
        (Episode(converged=converged(is_skipped=True)), ""),
        (
            Episode(
                converged=converged(is_skipped=True),
                finished=EpisodeFinished(status=EndStatus.DONE),
            ),
            "instance i was not over",
        ),
        (
            Episode(
                converged=converged(is_skipped=False),
                finished=EpisodeFinished(status=EndStatus.DONE),
            ),
            "",
        ),
        (
            Episode(
                finished=EpisodeFinished(
                    status=EndStatus.CANCELED, error_class="canceled", error_detail="by ada"
                )
            ),
            "canceled: by ada",
        ),
    ],
)
def test_an_episode_that_has_ended_says_why_it_began_no_instance(episode, why):
    assert why_unbegun(episode) == why


def test_an_episode_that_began_an_instance_found_none_busy():
    assert busy_instance(converged(is_skipped=True)) == "i"
    assert busy_instance(converged(is_skipped=False)) == ""
    assert busy_instance(None) == ""


def starts(actor_id: str) -> EpisodeOpened:
    """Return how an episode was opened that begins an instance, or one of another actor."""
    return EpisodeOpened(
        episode_id="e1",
        actor_id=actor_id,
        expectation_id="start",
        trigger=ManualTrigger(requested_by="ada", entity_id="acme", hops=2),
        dedupe_key="manual:k",
        budget=Budget(),
    )


def test_who_tells_again_of_an_instance_that_did_not_begin_tells_the_same():
    first, again = (skipped(starts("workflow-w"), converged(is_skipped=True), seq=9) for _ in "12")
    assert first == again
    assert (first.name, first.id, first.hops) == ("workflow.skipped", "e1.skipped", 3)


def test_nothing_was_skipped_where_an_instance_began_or_none_was_to_begin():
    assert skipped(starts("workflow-w"), converged(is_skipped=False), seq=9) is None
    assert skipped(starts("workflow-w"), None, seq=9) is None
    said = EpisodeConverged(classification=raw({"primary": "skipped", "instance_id": "i"}))
    assert skipped(starts("worker"), said, seq=9) is None
    assert skipped(starts("worker"), EpisodeConverged(), seq=9) is None

"""What follows outside from what an instance decides: the same however often it is asked for."""

from __future__ import annotations

import pytest

from engine.app.tools import overrides
from engine.app.workflow import Workflow, retrying
from engine.app.workflow_plan import DEPTH_MAX
from engine.episodes.episode import UNOPENED, evolve
from engine.workflows.effects import Effects, follow_up
from engine.workflows.events import instance_events
from engine.workflows.instance import UNSTARTED, HeldSubject, attempt_id, attempt_key
from engine.workflows.start import sub_started
from engine.workflows.steps import end_of_episode, end_of_instance
from streams.json import raw, unraw
from streams.model.events import EndStatus, EpisodeConverged, EpisodeFinished, EpisodeStarted
from streams.model.triggers import Mode, Overrides, PublicEvents
from streams.model.workflows import StepOutcome
from tests.engine.workflows.flows import (
    STACK,
    Flow,
    cancel,
    canceled,
    decided,
    done,
    fails,
    flow,
    given,
    needs,
    resumed,
    spec_of,
    task,
    undoable,
    waits,
)


def told(after):
    events = instance_events(after.flow.instance)
    return [event.name.removeprefix("workflow.") for event in events]


# Episodes.


def test_a_step_opens_an_episode_that_knows_where_it_belongs():
    after = given(flow("a", ("b", needs("a"))), {"client": 7}).when(done("a", 1))
    (opened,) = after.flow.effects.opens
    instance = after.flow.instance.begun.instance_id
    trigger = opened.trigger
    assert (opened.actor_id, opened.expectation_id) == ("act", "b")
    assert opened.dedupe_key == attempt_key(instance, "b", 0, 1)
    assert opened.public_events is PublicEvents.WITHOUT_STARTS
    assert opened.service_level == task("act", "b").service_level
    assert opened.adaptive_budget == task("act", "b").adaptive_budget
    assert (trigger.workflow_id, trigger.workflow_instance_id) == ("w", instance)
    assert (trigger.workflow_step_id, trigger.workflow_step_no) == ("b", 1)
    assert (trigger.item, trigger.attempt, trigger.is_compensation) == (0, 1, False)
    assert trigger.payload == {"trigger": {"client": 7}, "prior": {"a": 1}}
    assert opened.episode_id == attempt_id(
        stack=STACK, task=task("act", "b"), workflow="", key=opened.dedupe_key
    )


def test_what_follows_is_the_same_however_often_it_is_asked_for():
    after = given(flow("a", "b"))
    assert follow_up(after.flow.instance) == follow_up(after.flow.instance) == after.flow.effects


def test_nothing_follows_from_an_instance_that_has_not_begun():
    assert follow_up(UNSTARTED) == Effects()


def test_only_the_newest_commit_asks_for_anything():
    after = given(flow("a", "b")).when(done("a"))
    assert after.flow.effects.opens == ()


def test_every_attempt_opens_an_episode_of_its_own():
    after = given(flow(("a", {"on_failure": retrying(2, backoff_s=1)})))
    (first,) = after.flow.effects.opens
    after.when(fails("a"), waits(1))
    (second,) = after.flow.effects.opens
    assert first.episode_id != second.episode_id
    assert second.trigger.attempt == 2


def test_episodes_of_a_dry_run_are_dry_and_those_of_a_step_have_its_overrides():
    dry = flow("a", "b")
    all_, own = overrides(synthesis="all", tools={"m.x": 1}), overrides(synthesis="own")
    run = Flow(dry, mode=Mode.DRY_RUN, overrides=all_, step_overrides={"b": own})
    run.settle()
    a, b = run.effects.opens
    assert (a.mode, b.mode) == (Mode.DRY_RUN, Mode.DRY_RUN)
    assert a.overrides == Overrides(tools={"m.x": raw(1)}, synthesis=raw("all"))
    assert b.overrides == Overrides(tools={"m.x": raw(1)}, synthesis=raw("own"))
    assert instance_events(run.instance) == ()


def test_live_episodes_have_no_overrides():
    (opened,) = given(flow("a")).flow.effects.opens
    assert (opened.mode, opened.overrides) == (Mode.LIVE, None)


# Workflows in workflows.


def outer(**said):
    made = Workflow("outer")
    made.sub("inner", "w", **said)
    return made


INNER = flow("a", "x", ("b", needs("a")))


def sub_of(after) -> Flow:
    """Return the instance that the newest commit of another one begins."""
    (sub,) = after.flow.effects.starts
    run = Flow(INNER)
    run.journal, run.instance = [], UNSTARTED
    run.commit((sub_started(spec_of(INNER), sub),))
    run.settle()
    return run


def test_a_step_that_is_a_workflow_begins_an_instance_which_tells_it_of_its_end():
    after = given(outer(input=lambda trigger, prior: {"n": 7}))
    inner = sub_of(after)
    assert inner.instance.begun.instance_id == after.flow.running()["inner", 0][1]
    assert (inner.instance.begun.trigger.payload, inner.instance.begun.depth) == ({"n": 7}, 1)
    for step in ("a", "x", "b"):
        assert inner.effects.parent is None
        done(step, f"{step} done")(inner)
    said = inner.effects.parent
    assert (said.workflow, said.step, said.item, said.attempt) == ("outer", "inner", 0, 1)
    ended = end_of_instance(inner.instance)
    assert unraw(ended.result) == {"b": "b done", "x": "x done"}
    assert [event.status for event in after.flow.put(ended)[1:]] == ["done"]


def test_the_failure_of_a_workflow_is_that_of_its_step():
    after = given(outer())
    inner = sub_of(after)
    for step in (fails("a", "no_funds"), canceled("x")):
        step(inner)
    ended = end_of_instance(inner.instance)
    assert (ended.outcome, ended.error_class) == (StepOutcome.FAILED, "no_funds")


def test_canceling_reaches_the_workflows_within():
    after = given(outer()).when(cancel())
    (told_,) = after.flow.effects.sub_cancels
    assert (told_.workflow, told_.by) == ("w", "workflow outer")
    assert told_.instance_id == after.flow.running()["inner", 0][1]
    assert after.flow.effects.cancels == ()


def test_an_instance_that_is_no_step_of_another_tells_none():
    after = given(flow("a")).when(done("a"))
    assert after.flow.effects.parent is None
    assert end_of_instance(after.flow.instance) is None


def test_workflows_do_not_nest_deeper_than_they_may():
    run = given(outer())
    (sub,) = run.flow.effects.starts
    deep = Flow(outer())
    deep.journal, deep.instance = [], UNSTARTED
    begun = sub_started(spec_of(outer()), sub)
    deep.commit((type(begun)(**{**fields(begun), "depth": DEPTH_MAX}),))
    said = deep.settle()
    assert said[0].error_class == "too_deep"
    assert deep.effects.starts == ()


def fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


# What is canceled, woken, released.


def test_undoing_that_takes_too_long_is_canceled():
    after = given(flow(undoable("a", timeout_s=60), ("b", needs("a"))))
    after.when(done("a"), fails("b"))
    (opened,) = after.flow.effects.opens
    assert (after.flow.effects.wake_at - after.flow.now).total_seconds() == 60
    after.when(waits(60))
    (told_,) = after.flow.effects.cancels
    assert told_.episode_id == opened.episode_id


def test_an_instance_wakes_for_what_is_due_first():
    several = flow(("a", {"timeout_s": 60}), ("b", {"timeout_s": 30}), timeout_s=90)
    after = given(several)
    assert (after.flow.effects.wake_at - after.flow.now).total_seconds() == 30
    after.when(done("b"))
    assert (after.flow.effects.wake_at - after.flow.now).total_seconds() == 60


def test_an_instance_that_waits_for_others_alone_does_not_wake():
    assert given(flow("a")).flow.effects.wake_at is None


def test_an_instance_that_has_ended_does_not_wake():
    after = given(flow("a", timeout_s=60)).when(done("a"))
    assert after.flow.effects.wake_at is None


HELD = HeldSubject(workflow="w", subject="c1")


def test_neither_a_dry_run_nor_a_step_locks_a_subject():
    exclusive = flow("a", subject_key="client", overlap="skip")
    dry = Flow(exclusive, {"client": "c1"}, mode=Mode.DRY_RUN)
    (sub,) = given(outer(input=lambda trigger, prior: {"client": "c1"})).flow.effects.starts
    inner = Flow(exclusive)
    inner.journal, inner.instance = [], UNSTARTED
    inner.commit((sub_started(spec_of(exclusive), sub),))
    for run in (dry, inner):
        run.settle()
        done("a")(run)
        assert (run.instance.phase, run.effects.releases) == ("done", None)


@pytest.mark.parametrize("end", [done("a"), fails("a")])
def test_the_end_releases_the_subject(end):
    held = given(flow("a", subject_key="client", overlap="skip"), {"client": "c1"})
    assert held.flow.effects.releases is None
    held.when(end)
    assert held.flow.effects.releases == HELD


def test_what_was_not_held_is_not_released():
    after = given(flow("a", subject_key="client"), {"client": "c1"}).when(done("a"))
    assert after.flow.effects.releases is None


# The world.


def test_the_world_is_told_of_steps_and_of_the_end():
    after = given(flow("a", ("b", needs("a"))))
    assert told(after) == ["step_started"]
    after.when(done("a"))
    assert told(after) == ["step_completed", "step_started"]
    after.when(done("b"))
    assert told(after) == ["step_completed", "completed"]
    event = instance_events(after.flow.instance)[-1]
    assert event.payload["workflow"] == "w"
    assert event.hops == 1


def test_the_world_is_told_of_the_beginning():
    events = instance_events(Flow(flow("a")).instance)
    assert [event.name for event in events] == ["workflow.started"]


def test_the_world_is_told_of_failures_and_what_becomes_of_them():
    said = {"on_failure": retrying(2, backoff_s=1, then="pause")}
    after = given(flow(("a", said))).when(fails("a"))
    assert told(after) == ["step_failed", "step_postponed"]
    after.when(waits(1), fails("a"))
    assert told(after) == ["step_failed", "step_paused", "blocked"]
    after.when(resumed("a", "retry"), cancel(), canceled("a"))
    assert told(after) == ["step_canceled", "canceled"]


def test_the_world_is_told_once_that_an_instance_waits_for_people():
    asking = flow(*[(name, {"requires_approval": True}) for name in ("a", "b")])
    after = given(asking)
    assert told(after) == ["step_approval_asked", "step_approval_asked", "blocked"]
    after.when(decided("a", "approve"), done("a"))
    assert told(after) == ["step_completed", "blocked"]


def test_the_world_is_told_once_of_each_share_of_the_budget_that_is_spent():
    after = given(flow("a", ("b", needs("a")), ("c", needs("b")), budget_usd=1))
    used = []
    for step in (done("a", spent="0.30"), done("b", spent="0.55"), fails("c", spent="0.40")):
        after.when(step)
        events = instance_events(after.flow.instance)
        used.append([each for each in events if each.name == "workflow.budget_used"])
    assert [[each.payload["percent"] for each in some] for some in used] == [[], [50, 80], [100]]
    assert (used[1][0].payload["used"], used[1][0].payload["budget"]) == ("0.85", "1.00")
    assert len({each.id for some in used for each in some}) == 3


def test_ids_of_what_is_told_are_never_the_same_twice():
    run = given(flow("a", ("b", needs("a", on_failure="continue"))))
    ids = [event.id for event in instance_events(run.flow.instance)]
    for step in (done("a"), fails("b")):
        run.when(step)
        ids += [event.id for event in instance_events(run.flow.instance)]
    assert len(set(ids)) == len(ids) == 6


# How attempts end.


def episode(status, converged=None):
    (opened,) = given(flow("a")).flow.effects.opens
    state = evolve(UNOPENED, opened)
    state = evolve(state, EpisodeStarted(node="n", attempt=1))
    if converged is not None:
        state = evolve(state, converged)
    return evolve(state, EpisodeFinished(status=status, error_class="crash"))


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (EndStatus.DONE, StepOutcome.DONE),
        (EndStatus.PARTIALLY_FAILED, StepOutcome.DONE),
        (EndStatus.FAILED, StepOutcome.FAILED),
        (EndStatus.CANCELED, StepOutcome.CANCELED),
    ],
)
def test_the_end_of_an_episode_is_that_of_its_attempt(status, outcome):
    assert end_of_episode(episode(status)).outcome is outcome


def test_a_step_brings_what_its_episode_found_out():
    converged = EpisodeConverged(classification=raw({"hit": True}), confidence=0.5, summary="s")
    ended = end_of_episode(episode(EndStatus.DONE, converged))
    assert unraw(ended.result) == {
        "classification": {"hit": True},
        "confidence": 0.5,
        "summary": "s",
    }
    run = given(flow("a"))
    assert run.flow.put(ended)[-1].status == "done"


def test_a_step_brings_the_result_that_its_strategy_named_if_it_named_one():
    converged = EpisodeConverged(classification=raw({"hit": True}), result=raw(["a", 1]))
    assert unraw(end_of_episode(episode(EndStatus.DONE, converged)).result) == ["a", 1]


def test_an_episode_that_runs_or_belongs_to_no_workflow_ends_no_attempt():
    (opened,) = given(flow("a")).flow.effects.opens
    assert end_of_episode(evolve(UNOPENED, opened)) is None
    assert end_of_episode(UNOPENED) is None

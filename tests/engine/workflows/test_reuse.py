"""A result of the same work is used again: what stands for an item, and what never does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.app.tools import overrides
from engine.app.workflow import retrying
from engine.validation import KEPT_BYTES_MAX
from engine.workflows.effects import recalled
from engine.workflows.events import instance_events
from streams.json import raw, unraw
from streams.model.events import EndStatus, EpisodeConverged, EpisodeFinished, EpisodeStarted
from streams.model.triggers import Mode
from streams.ports.log import Commit, Recorded
from tests.engine.workflows.flows import (
    STACK,
    cancel,
    done,
    fails,
    flow,
    given,
    missed,
    needs,
    resumed,
    reused,
    waits,
)
from tests.spec import EPOCH

REUSE_S = 60
RATED = flow("a", ("rate", needs("a", reuse_s=REUSE_S)), ("b", needs("rate")))


def rated(result=1, **options):
    """An instance whose step `rate` runs, or is to be looked for a result of."""
    return given(RATED, **options).when(done("a", result))


# When it is looked for.


def test_a_step_is_prepared_and_begins_when_no_result_is_found():
    rated().then("done a", "prepare rate").after(missed("rate")).then("begin rate")


def test_a_result_that_is_found_is_the_steps_own():
    after = rated().after(reused("rate", {"score": 7}))
    after.then("reuse rate", "prepare b", "begin b")
    assert after.input_of("b")["prior"] == {"rate": {"score": 7}}
    assert (after.item("rate").status, after.item("rate").reused_episode_id) == ("done", "earlier")
    assert after.flow.effects.opens[0].expectation_id == "b"


def test_what_comes_of_looking_a_second_time_changes_nothing():
    rated().when(missed("rate"), reused("rate", 7)).then_nothing().after(missed("rate"))
    rated().when(reused("rate", 7), missed("rate")).then_nothing().after(reused("rate", 8))


def test_it_is_looked_for_until_it_is_recorded_what_was_found():
    both = flow(("a", {"for_each": lambda t, p: [{"n": 1}, {"n": 2}], "reuse_s": REUSE_S}), "b")
    after = given(both)
    assert [each.item for each in after.flow.effects.recalls] == [0, 1]
    after.when(missed("a", 0), done("b"))
    assert [each.item for each in after.flow.effects.recalls] == [1]
    assert after.when(reused("a", 2, 1)).flow.effects.recalls == ()


def test_an_item_of_a_list_is_done_by_a_result_of_its_own():
    both = flow(("a", {"for_each": lambda t, p: [{"n": 1}, {"n": 2}], "reuse_s": REUSE_S}))
    after = given(both).when(reused("a", "one", 0), missed("a", 1), done("a", "two", 1))
    assert after.flow.instance.steps["a"].result(after.flow.instance.specs["a"]) == ["one", "two"]


def test_what_is_tried_again_is_meant():
    steps = flow(("a", {"reuse_s": REUSE_S, "on_failure": retrying(2, backoff_s=1, then="pause")}))
    after = given(steps).when(missed("a"), fails("a"), waits(2)).then("begin a #2")
    after.when(fails("a"), resumed("a", "retry")).then("resume a", "begin a #3")


def test_nothing_is_begun_or_used_again_once_an_instance_stops():
    for way in (missed("rate"), reused("rate", 7)):
        rated().when(cancel(), way).then_nothing().is_("canceled")


def test_a_result_that_is_too_large_to_keep_does_not_stand():
    large = "x" * (KEPT_BYTES_MAX + 1)
    rated().when(reused("rate", large)).then("begin rate")


def test_an_instance_that_looks_for_a_result_waits_for_nobody():
    beside = flow(("ask", {"requires_approval": True}), ("a", {"reuse_s": REUSE_S}))
    given(beside).is_("running").after(missed("a")).is_("running").after(done("a")).is_("blocked")


def test_the_world_is_told_of_it():
    after = rated().after(reused("rate", 7))
    told = [
        (each.name, each.payload.get("reused_episode_id"))
        for each in instance_events(after.flow.instance)
    ]
    assert told[0] == ("workflow.step_reused", "earlier")


# What is remembered.


def test_an_episode_that_is_done_is_remembered_for_as_long_as_its_result_may_stand():
    after = rated().when(missed("rate"))
    (_, id_) = after.flow.running()["rate", 0]
    (keep,) = after.when(done("rate", 7)).flow.effects.keeps
    assert (keep.episode_id, keep.ttl_s) == (id_, REUSE_S)


def test_what_failed_or_was_used_again_is_not_remembered():
    assert rated().when(missed("rate"), fails("rate")).flow.effects.keeps == ()
    assert rated().when(reused("rate", 7)).flow.effects.keeps == ()
    assert rated().flow.effects.keeps == ()


# Which results may stand.


SCORE = raw({"score": 7})


def journal(opened, *, status=EndStatus.DONE, ended_s=0.0):
    """The journal of an episode that has ended."""
    finished = EpisodeFinished(status=status, tokens_used=0)
    events = (
        opened,
        EpisodeStarted(node="n1", attempt=1),
        EpisodeConverged(classification=raw(None), confidence=1.0, summary="", result=SCORE),
        finished,
    )
    commit = Commit(id="c1", at=EPOCH + timedelta(seconds=ended_s), events=events)
    return [Recorded(subject="s.episode.e", seq=1, commit=commit)]


def earlier(**options):
    """What an episode of the step was opened with, and what looks for its result."""
    after = rated(**options)
    (recall,) = after.flow.effects.recalls
    (opened,) = after.when(missed("rate")).flow.effects.opens
    return opened, recall


def found(opened, recall, *, at_s=0.0, stack=STACK, **said):
    now = EPOCH + timedelta(seconds=at_s)
    return recalled(recall, journal(opened, **said), stack=stack, at=now)


def test_an_episode_that_did_the_same_and_is_done_stands_for_it():
    opened, recall = earlier()
    said = found(opened, recall)
    assert (said.episode_id, unraw(said.result)) == (opened.episode_id, {"score": 7})


@pytest.mark.parametrize("at_s", [0, REUSE_S])
def test_a_result_stands_for_as_long_as_the_step_says(at_s):
    assert found(*earlier(), at_s=at_s).episode_id


def test_an_older_result_does_not_stand():
    assert not found(*earlier(), at_s=REUSE_S + 1).episode_id


@pytest.mark.parametrize("status", sorted({*EndStatus} - {EndStatus.DONE}))
def test_only_what_is_done_stands(status):
    assert not found(*earlier(), status=status).episode_id


def test_an_episode_that_is_not_there_or_has_not_ended_does_not_stand():
    opened, recall = earlier()
    begun = Commit(id="c1", at=EPOCH, events=(opened,))
    records = [Recorded(subject="s.episode.e", seq=1, commit=begun)]
    for each in ([], records):
        assert not recalled(recall, each, stack=STACK, at=EPOCH).episode_id


CHANGES = {
    "another input": lambda it: replace(it, trigger=replace(it.trigger, input={"other": 1})),
    "another expectation": lambda it: replace(it, expectation_id="other"),
    "another actor": lambda it: replace(it, actor_id="other"),
    "another revision of the definition": lambda it: replace(it, revision=2),
    "another revision of the code": lambda it: replace(it, spec_rev="r2"),
    "a dry run": lambda it: replace(it, mode=Mode.DRY_RUN),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_the_gates_name_other_work_does_not_stand(change):
    opened, recall = earlier()
    assert not found(change(opened), recall).episode_id


def test_a_dry_run_uses_only_what_a_dry_run_with_the_same_overrides_brought():
    well = {"mode": Mode.DRY_RUN, "overrides": overrides(synthesis="well")}
    ill = {"mode": Mode.DRY_RUN, "overrides": overrides(synthesis="ill")}
    own = {"mode": Mode.DRY_RUN, "step_overrides": {"rate": overrides(synthesis="ill")}}
    ways = [{}, well, ill]
    for one in ways:
        for other in ways:
            opened, recall = earlier(**one)[0], earlier(**other)[1]
            assert bool(found(opened, recall).episode_id) == (one == other)
    assert found(earlier(**own)[0], earlier(**ill)[1]).episode_id


@forall(
    st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False) | st.none())
)
@settings(max_examples=50, deadline=None)
def test_an_input_is_the_same_whatever_way_it_was_written(given_):
    ordered = dict(sorted(given_.items(), reverse=True))
    one, other = rated(given_), rated(ordered)
    (opened,) = one.when(missed("rate")).flow.effects.opens
    (recall,) = other.flow.effects.recalls
    assert found(opened, recall).episode_id

"""The life of an instance, as rules."""

from __future__ import annotations

import re
import sys

import pytest
from msgspec.structs import replace

from engine.app.workflow import retrying
from engine.errors import Refused
from engine.validation import KEPT_BYTES_MAX
from engine.workflows.decide import COMMIT_BYTES_MAX, decide, step_decided
from engine.workflows.instance import fold_instance
from engine.workflows.steps import INPUTS_BYTES_MAX, WIDTH_MAX
from streams.json import raw
from streams.model.commands import DecideStep, Verdict
from streams.model.events import StepApproved
from streams.model.triggers import ManualTrigger
from streams.model.workflows import StepOutcome
from streams.ports.log import Commit
from streams.wire.codec import encode_commit
from tests.engine.workflows.flows import (
    advance,
    cancel,
    canceled,
    decided,
    done,
    fails,
    flow,
    given,
    needs,
    not_undone,
    resumed,
    undoable,
    undone,
    waits,
)

CHAIN = flow("a", ("b", needs("a")), ("c", needs("b")))
DIAMOND = flow("a", ("b", needs("a")), ("c", needs("a")), ("d", needs("b", "c")))


# What follows what.


def test_steps_that_depend_on_nothing_begin_together():
    given(flow("a", "b")).then("prepare a", "begin a", "prepare b", "begin b")


def test_a_step_begins_when_what_it_depends_on_is_done():
    given(CHAIN).then("prepare a", "begin a").after(done("a")).then(
        "done a", "prepare b", "begin b"
    )


def test_steps_side_by_side_run_together_and_are_waited_for():
    (
        given(DIAMOND)
        .when(done("a"))
        .then("done a", "prepare b", "begin b", "prepare c", "begin c")
        .after(done("c"))
        .then("done c")
        .after(done("b"))
        .then("done b", "prepare d", "begin d")
    )


def test_an_instance_is_done_when_all_its_steps_are():
    given(flow("a", "b")).when(done("b"), done("a")).then("done a", "finish done").is_("done")


@pytest.mark.parametrize("again", [advance(), "a"])
def test_nothing_happens_after_the_end(again):
    ended = given(flow("a"))
    told = ended.flow.end("a", outcome=StepOutcome.DONE)
    ended.when(done("a"))
    assert ended.flow.put(told if again == "a" else again) == ()
    ended.when(cancel()).then_nothing()


# What steps know.


def test_a_step_gets_the_payload_and_the_results_it_depends_on():
    after = given(CHAIN, {"client": 7}).when(done("a", {"hit": True}), done("b", 2))
    assert after.input_of("b") == {"trigger": {"client": 7}, "prior": {"a": {"hit": True}}}
    assert after.input_of("c") == {"trigger": {"client": 7}, "prior": {"b": 2}}


def test_a_function_gets_the_trigger_and_all_results_before_it():
    seen = []

    def input_(trigger, prior):
        seen.append((type(trigger), trigger.payload, prior))
        return {"client": trigger.payload["client"], "a": prior["a"]}

    chain = flow("a", "x", ("b", needs("a")), ("c", needs("b", input=input_)))
    after = given(chain, {"client": 7}).when(done("a", 1), done("x", 9), done("b", 2))
    assert after.input_of("c") == {"client": 7, "a": 1}
    assert seen == [(ManualTrigger, {"client": 7}, {"a": 1, "b": 2})]


def test_what_a_function_does_to_what_it_gets_is_seen_by_nobody():
    def spoil(trigger, prior):
        trigger.payload["client"] = prior["a"]["n"] = 0
        return {}

    spoiled = flow("a", ("b", needs("a", input=spoil)), ("c", needs("a")))
    after = given(spoiled, {"client": 7}).when(done("a", {"n": 1}))
    assert after.input_of("c") == {"trigger": {"client": 7}, "prior": {"a": {"n": 1}}}


def no(trigger, prior):
    return False


def test_a_step_whose_condition_does_not_hold_is_skipped_and_brings_nothing():
    after = given(flow(("a", {"when": no}), ("b", needs("a"))))
    after.then("skip a: condition", "prepare b", "begin b")
    assert after.input_of("b")["prior"] == {"a": None}


# Lists of items.


def owners(trigger, prior):
    return trigger.payload["owners"]


FAN = flow(("n", {"for_each": owners}), ("last", needs("n")))


def test_a_step_runs_once_for_each_item_all_at_the_same_time():
    after = given(FAN, {"owners": ["ada", {"name": "bob"}]})
    after.then("prepare n x2", "begin n[0]", "begin n[1]")
    assert [after.input_of("n", each) for each in (0, 1)] == [{"item": "ada"}, {"name": "bob"}]


def test_results_of_items_are_joined_in_the_order_of_the_list():
    after = given(FAN, {"owners": [1, 2, 3]}).when(done("n", "z", item=2), done("n", "x"))
    after.then("done n[0]").after(done("n", "y", item=1))
    after.then("done n[1]", "prepare last", "begin last")
    assert after.input_of("last")["prior"] == {"n": ["x", "y", "z"]}


def test_a_list_without_items_is_done_at_once():
    after = given(FAN, {"owners": []}).then("prepare n x0", "prepare last", "begin last")
    assert after.input_of("last")["prior"] == {"n": []}


def test_an_item_that_fails_where_it_goes_on_brings_none():
    going_on = flow(("n", {"for_each": owners, "on_failure": "continue"}), ("z", needs("n")))
    after = given(going_on, {"owners": [1, 2]}).when(fails("n", item=0), done("n", 2, item=1))
    assert after.input_of("z")["prior"] == {"n": [None, 2]}


def test_an_item_that_fails_is_tried_again_alone():
    again = flow(("n", {"for_each": owners, "on_failure": retrying(2, backoff_s=4)}))
    after = given(again, {"owners": [1, 2]}).when(fails("n", item=1))
    after.then("failed n[1]: crash", "postpone n[1]").after(waits(4)).then("begin n[1] #2")
    after.when(done("n", item=1), done("n")).then("done n[0]", "finish done")


# Functions that go wrong.


def boom(trigger, prior):
    raise KeyError("hit")


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        ({"when": boom}, "when: KeyError: 'hit'"),
        ({"when": lambda t, p: "yes"}, "when: returned a str, not True or False"),
        ({"when": lambda t, p: p["later"]}, "when: KeyError: 'later'"),
        ({"input": boom}, "input: KeyError"),
        ({"input": lambda t, p: None}, "input: returned None, not a dict"),
        ({"input": lambda t, p: {"a": object()}}, "input: .*object"),
        ({"input": lambda t, p: {"a": "x" * KEPT_BYTES_MAX}}, "the limit is 262,144"),
        ({"input": lambda t, p: sys.exit("bye")}, "input: SystemExit: bye"),
        ({"for_each": boom}, "for_each: KeyError"),
        ({"for_each": lambda t, p: "abc"}, "for_each: returned a str, not a list"),
        ({"for_each": lambda t, p: [1] * (WIDTH_MAX + 1)}, "1,001 items, the limit is 1,000"),
        ({"for_each": lambda t, p: ["x" * 200_000] * 3}, "the limit is 524,288"),
    ],
)
def test_a_function_that_goes_wrong_fails_its_step_as_bad_input(options, detail):
    after = given(flow(("a", options), "later"))
    place = "a[0]" if "for_each" in options else "a"
    after.then(f"failed {place}: bad_input", "abort: bad_input", "finish failed")
    assert after.item("a").episode_id == ""
    assert re.search(detail, after.item("a").error_detail)


def test_a_policy_holds_for_bad_input_too():
    said = {"input": boom, "on_failure": retrying(2, backoff_s=1, then="pause")}
    after = given(flow(("a", said)))
    after.then("failed a: bad_input", "postpone a").after(waits(1))
    after.then("failed a #2: bad_input", "pause a").is_("blocked")


def test_attempts_at_an_input_count_as_attempts_at_the_step():
    said = {"on_failure": retrying(2, backoff_s=1)}
    after = given(flow(("a", {"input": lambda t, p: t.payload["x"], **said})), {"x": 1})
    after.flow.code = replace(after.flow.code, workflow=flow(("a", {"input": lambda t, p: {}})))
    after.when(waits(1)).then("prepare a", "begin a #2")
    after.when(fails("a")).then("failed a #2: crash", "abort: crash", "finish failed")


# Failures.


def test_a_failure_aborts_the_instance_and_nothing_more_begins():
    after = given(flow("a", "b", ("c", needs("b")))).when(fails("a"))
    after.then("failed a: crash", "abort: crash").is_("stopping")
    after.when(done("b")).then("done b", "finish failed").is_("failed")
    assert after.flow.instance.finished.step == "a"
    assert (after.item("c").status, after.item("b").status) == ("canceled", "done")


def test_what_runs_is_canceled_when_the_instance_aborts():
    after = given(flow("a", "b", "c")).when(fails("a"))
    (one, other) = after.flow.effects.cancels
    assert (one.actor_id, one.reason, one.by) == ("act", "crash", "workflow w")
    assert {one.episode_id, other.episode_id} == {id_ for _, id_ in after.flow.running().values()}
    after.when(canceled("b"), canceled("c")).then("canceled c", "finish failed")


def test_a_step_that_may_fail_is_passed_over():
    after = given(flow(("a", {"on_failure": "continue"}), ("b", needs("a")))).when(fails("a"))
    after.then("failed a: crash", "skip a: failed", "prepare b", "begin b")
    assert after.input_of("b")["prior"] == {"a": None}


RETRYING = flow(("a", {"on_failure": retrying(3, backoff_s=4, skip_on=["no_funds"])}))


def test_a_step_is_tried_again_after_a_wait():
    after = given(RETRYING).when(fails("a")).then("failed a: crash", "postpone a")
    wake_at = after.flow.effects.wake_at
    assert 2 <= (wake_at - after.flow.now).total_seconds() <= 4
    after.when(waits(1.9)).then_nothing().when(waits(2.1)).then("begin a #2")
    after.when(done("a")).then("done a #2", "finish done")


def test_attempts_that_are_used_up_end_it():
    after = given(RETRYING).when(fails("a"), waits(4), fails("a"), waits(8), fails("a"))
    after.then("failed a #3: crash", "abort: crash", "finish failed")


def test_some_error_classes_are_not_tried_again():
    given(RETRYING).when(fails("a", "no_funds")).then(
        "failed a: no_funds", "abort: no_funds", "finish failed"
    )


def test_the_input_of_an_attempt_is_that_of_the_first_one():
    answers = iter([{"n": 1}, {"n": 2}])
    said = {"input": lambda t, p: next(answers), "on_failure": retrying(2, backoff_s=1)}
    after = given(flow(("a", said))).when(fails("a"), waits(1)).then("begin a #2")
    assert after.input_of("a") == {"n": 1}


def test_an_episode_that_somebody_else_canceled_has_failed():
    given(RETRYING).when(canceled("a")).then("failed a: canceled", "postpone a")


def test_a_result_that_is_too_large_is_a_failure():
    after = given(flow("a")).when(done("a", "x" * KEPT_BYTES_MAX))
    after.then("failed a: result_too_large", "abort: result_too_large", "finish failed")


# Pausing.


PAUSING = flow(("a", {"on_failure": "pause"}), "b", ("c", needs("a")))


def test_a_step_that_pauses_waits_for_a_person_while_others_go_on():
    after = given(PAUSING).when(fails("a")).then("failed a: crash", "pause a").is_("running")
    after.when(done("b")).then("done b").is_("blocked")
    after.when(waits(9_999)).then_nothing()


def test_a_person_has_a_paused_step_tried_again():
    after = given(PAUSING).when(fails("a"), resumed("a", "retry"))
    after.then("resume a", "begin a #2").is_("running")


def test_a_person_has_a_paused_step_skipped():
    after = given(PAUSING).when(fails("a"), resumed("a", "skip"))
    after.then("resume a", "prepare c", "begin c")
    assert after.input_of("c")["prior"] == {"a": None}


def test_attempts_count_anew_once_a_person_has_stepped_in():
    again = flow(("a", {"on_failure": retrying(2, backoff_s=1, then="pause")}))
    after = given(again).when(fails("a"), waits(1), fails("a"))
    after.then("failed a #2: crash", "pause a")
    after.when(resumed("a", "retry")).then("resume a", "begin a #3")
    after.when(fails("a")).then("failed a #3: crash", "postpone a #3")


def test_all_items_that_are_paused_are_resumed_together():
    fan = flow(("n", {"for_each": owners, "on_failure": "pause"}))
    after = given(fan, {"owners": [1, 2, 3]})
    after.when(fails("n", item=0), fails("n", item=2), resumed("n", "retry"))
    after.then("resume n", "begin n[0] #2", "begin n[2] #2")


def test_only_what_is_paused_can_be_resumed():
    after = given(PAUSING).when(fails("a"))
    after.then_refused(resumed("b", "retry"), "step 'b' is not paused; paused: a")


def test_the_same_resumption_twice_is_one():
    after = given(PAUSING).when(fails("a"), resumed("a", "retry"), fails("a"))
    after.when(resumed("a", "retry")).then_nothing()
    after.when(resumed("a", "retry", id_="r2")).then("resume a", "begin a #3")


# Approvals.


def asking(**options):
    said = {"requires_approval": True, "compensate": ("act", "undo")} | options
    return flow("z", ("a", {**said, "depends_on": ["z"]}))


def test_a_step_that_needs_approval_opens_nothing_before_it_has_it():
    after = given(asking()).when(done("z")).then("done z", "ask a").is_("blocked")
    assert after.flow.effects.opens == ()
    after.when(decided("a", "approve")).then("approve a", "prepare a", "begin a")


def test_what_was_approved_is_what_runs():
    answers = iter([{"sum": 1}, {"sum": 1_000_000}])
    after = given(asking(input=lambda t, p: next(answers))).when(done("z"))
    after.when(decided("a", "approve"))
    assert after.input_of("a") == {"sum": 1}


def test_a_step_runs_with_what_its_inputs_were_changed_to():
    after = given(asking(input=lambda t, p: {"sum": 1})).when(done("z"))
    after.when(decided("a", "approve", inputs=[{"sum": 2}]))
    after.then("approve a", "prepare a", "begin a")
    assert after.input_of("a") == {"sum": 2}
    events = [event for each in after.flow.journal for event in each.commit.events]
    (approved,) = [each for each in events if isinstance(each, StepApproved)]
    assert approved.edited_hash == "e" * 64


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ([], "0 inputs; the step has 1 items, and each needs one"),
        ([{"sum": 1}, {"sum": 2}], "2 inputs; the step has 1 items"),
        ([7], "the input of an item must be a JSON object"),
    ],
)
def test_inputs_are_changed_and_not_how_many_there_are(inputs, why):
    after = given(asking()).when(done("z"))
    after.then_refused(decided("a", "approve", inputs=inputs), why)


def test_inputs_that_an_older_version_asked_about_are_approved_as_they_are():
    after = given(asking()).when(done("z"))
    asked = after.flow.instance.steps["a"].asked
    older = replace(asked, approval=replace(asked.approval, editable=False))
    instance = after.flow.instance
    command = DecideStep(
        workflow="w",
        instance_id="i",
        id="d1",
        step="a",
        verdict=Verdict.APPROVE,
        plan_hash=asked.approval.plan_hash,
        by="ada",
        edited_hash="e" * 64,
        edited_inputs=(raw({}),),
    )
    steps = {**instance.steps, "a": replace(instance.steps["a"], asked=older)}
    with pytest.raises(Refused, match="its plan cannot be changed"):
        step_decided(replace(instance, steps=steps), command, at=after.flow.now)


def test_a_step_that_is_denied_has_failed_and_is_not_asked_for_again():
    after = given(asking(on_failure=retrying(5))).when(done("z"), decided("a", "deny"))
    after.then("deny a", "abort: denied", "finish failed")
    assert after.flow.instance.finished.error_detail == "by ada: why not"


def test_a_policy_holds_for_what_is_denied():
    after = given(asking(on_failure="pause")).when(done("z"), decided("a", "deny"))
    after.then("deny a", "pause a").after(resumed("a", "retry")).then("resume a", "ask a")
    after.when(decided("a", "approve", id_="d2")).then("approve a", "prepare a", "begin a")


def test_nobody_deciding_in_time_denies_it():
    after = given(asking(approval_expires_s=60)).when(done("z"))
    assert (after.flow.effects.wake_at - after.flow.now).total_seconds() == 60
    after.when(waits(59)).then_nothing().when(waits(1))
    after.then("deny a", "abort: approval_expired", "finish failed")


def test_a_decision_names_what_it_decides():
    after = given(asking(approvers=["bob"], approval_expires_s=60)).when(done("z"))
    after.then_refused(decided("a", "approve", plan_hash="0" * 64), "another plan")
    after.then_refused(decided("a", "approve", by="eve"), "none of those who may decide: bob")
    after.then_refused(decided("z", "approve"), "step 'z' does not wait for approval")
    after.then_refused(decided("none", "approve"), "does not wait")
    after.flow.wait(61)
    after.then_refused(decided("a", "approve", by="bob"), "expired")


def test_the_same_decision_twice_is_one():
    after = given(asking()).when(done("z"), decided("a", "approve"))
    after.when(decided("a", "approve")).then_nothing()


def test_other_inputs_are_another_plan():
    hashes = set()
    for number in (1, 2):
        after = given(asking(input=lambda t, p, n=number: {"n": n})).when(done("z"))
        hashes.add(after.flow.instance.steps["a"].asked.approval.plan_hash)
    assert len(hashes) == 2


# Time.


def test_an_attempt_that_takes_too_long_has_failed_and_is_canceled():
    late = flow(("a", {"timeout_s": 60, "on_failure": retrying(2, backoff_s=4)}))
    after = given(late)
    (_, episode_id) = after.flow.running()["a", 0]
    assert (after.flow.effects.wake_at - after.flow.now).total_seconds() == 60
    after.when(waits(59.9)).then_nothing().when(waits(0.1))
    after.then("failed a: step_timeout", "postpone a")
    (told,) = after.flow.effects.cancels
    assert (told.episode_id, told.reason) == (episode_id, "step_timeout")


def test_an_instance_that_takes_too_long_aborts():
    after = given(flow("a", ("b", {"on_failure": "pause"}), timeout_s=60)).when(waits(59.9))
    after.then_nothing().when(waits(0.1)).then("abort: workflow_timeout")
    assert len(after.flow.effects.cancels) == 2
    after.when(canceled("a"), canceled("b")).then("canceled b", "finish failed")


def test_what_is_done_in_the_last_moment_is_done():
    after = given(flow("a", timeout_s=60))
    after.flow.wait(60)
    after.when(done("a")).then("done a", "finish done")


def test_time_never_runs_backward():
    after = given(RETRYING)
    after.flow.wait(-3_600)
    after.when(fails("a"))
    assert after.flow.journal[-1].commit.at == after.flow.journal[0].commit.at


# What is told twice, late, or wrongly.


def test_the_end_of_an_attempt_told_twice_changes_nothing():
    after = given(CHAIN)
    told = after.flow.end("a", outcome=StepOutcome.DONE)
    assert after.flow.put(told) != ()
    assert after.flow.put(told) == ()


def test_the_end_of_an_attempt_that_was_given_up_changes_nothing():
    late = flow(("a", {"timeout_s": 60, "on_failure": retrying(2, backoff_s=4)}))
    after = given(late)
    told = after.flow.end("a", outcome=StepOutcome.DONE)
    after.when(waits(60))
    assert after.flow.put(told) == ()
    after.when(waits(4)).then("begin a #2")
    assert after.flow.put(told) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": "x"},
        {"item": 1},
        {"item": -1},
        {"attempt": 2},
        {"episode_id": "other"},
        {"is_compensation": True},
    ],
)
def test_the_end_of_what_is_not_there_changes_nothing(wrong):
    after = given(CHAIN)
    told = replace(after.flow.end("a", outcome=StepOutcome.DONE), **wrong)
    assert after.flow.put(told) == ()


# Undoing.


SAGA = flow(undoable("a"), undoable("b", "a"), ("c", needs("b")), ("d", needs("c")))


def test_what_was_done_is_undone_last_first_one_after_the_other():
    after = given(SAGA).when(done("a", 1), done("b", 2), done("c"), fails("d"))
    after.then("failed d: crash", "abort: crash", "undo b").is_("compensating")
    (opened,) = after.flow.effects.opens
    assert (opened.expectation_id, opened.trigger.is_compensation) == ("undo_b", True)
    assert opened.trigger.input["result"] == 2
    assert opened.trigger.input["input"]["prior"] == {"a": 1}
    after.when(undone("b")).then("undone b", "undo a")
    after.when(undone("a")).then("undone a", "finish failed")


def test_nothing_is_undone_while_anything_runs():
    after = given(flow(undoable("a"), "b", "c")).when(done("a"), fails("b"))
    after.then("failed b: crash", "abort: crash").after(canceled("c"))
    after.then("canceled c", "undo a")


def test_what_was_done_just_before_it_could_be_canceled_is_undone_too():
    given(flow(undoable("a"), "b")).when(fails("b"), done("a")).then("done a", "undo a")


def test_only_items_that_are_done_are_undone():
    fan = flow(("n", {"for_each": owners, "compensate": ("act", "undo")}))
    after = given(fan, {"owners": [1, 2, 3]}).when(done("n", item=2), done("n", item=0))
    after.when(fails("n", item=1)).then("failed n[1]: crash", "abort: crash", "undo n[0]")
    after.when(undone("n", 0)).then("undone n[0]", "undo n[2]")


def test_undoing_is_tried_as_often_as_the_step():
    again = flow(undoable("a", on_failure=retrying(2, backoff_s=4)), ("b", needs("a")))
    after = given(again).when(done("a"), fails("b"), not_undone("a"))
    after.then("not undone a, later").when(waits(4)).then("undo a #2")
    after.when(not_undone("a")).then("not undone a #2", "finish failed")
    assert after.flow.instance.finished.not_undone == ("a",)


def test_what_cannot_be_undone_keeps_nothing_else_from_it():
    after = given(SAGA).when(done("a"), done("b"), fails("c"), not_undone("b"))
    after.then("not undone b", "undo a").after(undone("a")).then("undone a", "finish failed")
    assert after.flow.instance.finished.not_undone == ("b",)


def test_undoing_that_takes_too_long_has_failed():
    after = given(flow(undoable("a", timeout_s=60), ("b", needs("a"))))
    after.when(done("a"), fails("b"), waits(60)).then("not undone a", "finish failed")
    after.then("not undone a", "finish failed")


def test_the_end_of_undoing_told_twice_changes_nothing():
    after = given(SAGA).when(done("a"), done("b"), fails("c"))
    told = after.flow.undo_end("b", outcome=StepOutcome.DONE)
    assert after.flow.put(told) != ()
    assert after.flow.put(told) == ()


# Canceling.


def test_an_instance_that_is_canceled_cancels_what_runs_and_undoes_what_is_done():
    after = given(SAGA).when(done("a"), cancel()).then("cancel").is_("stopping")
    assert len(after.flow.effects.cancels) == 1
    after.when(canceled("b")).then("canceled b", "undo a")
    after.when(undone("a")).then("undone a", "finish canceled").is_("canceled")
    assert after.flow.instance.finished.error_detail == "by ada: not wanted"


def test_canceling_twice_is_canceling_once():
    given(CHAIN).when(cancel(), cancel()).then_nothing()


def test_an_instance_that_waits_for_people_can_be_canceled():
    given(asking()).when(done("z"), cancel()).then("cancel", "finish canceled")


def test_an_instance_that_stops_cannot_be_resumed_or_decided_on():
    after = given(flow(("a", {"on_failure": "pause"}), "b")).when(fails("a"), cancel())
    after.then_refused(resumed("a", "retry"), "not paused; paused: none")


# Sizes.


def test_what_does_not_fit_in_one_commit_comes_with_the_next():
    large = {"for_each": lambda t, p: ["x" * 100_000] * 5}
    after = given(flow(*[(f"s{n}", large) for n in range(4)]))
    assert len(after.flow.running()) == 20
    assert len(after.flow.journal) == 5
    for record in after.flow.journal:
        assert len(encode_commit(record.commit)) <= COMMIT_BYTES_MAX + 1_024


def test_the_widest_step_fits_in_one_commit():
    name = "n" * 64
    each = "x" * (INPUTS_BYTES_MAX // WIDTH_MAX - 12)
    wide = flow((name, {"for_each": lambda t, p: [each] * WIDTH_MAX}))
    after = given(wide)
    assert len(after.flow.running()) == WIDTH_MAX
    commit = Commit(id="c", at=after.flow.now, events=tuple(after.said))
    assert len(encode_commit(commit)) < 1_000_000


def test_the_same_journal_and_command_give_the_same_events():
    after = given(SAGA).when(done("a"))
    told = after.flow.end("b", outcome=StepOutcome.DONE)
    again = fold_instance(after.flow.journal)
    assert again == after.flow.instance
    first, second = (
        decide(each, told, code=after.flow.code, at=after.flow.now)
        for each in (again, after.flow.instance)
    )
    assert first == second != ()

"""Workflows as they are declared: what cannot work is refused, and the error says where."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from engine.app.actions import converge
from engine.app.actor import Actor
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import overrides
from engine.app.triggers import event, every, manual
from engine.app.workflow import (
    ATTEMPTS_MAX,
    BACKOFF_S_MAX,
    STEPS_MAX,
    Workflow,
    ancestors,
    cycle,
    depths,
    policy_of,
    remedy,
    retrying,
    wait_s,
)
from engine.app.workflow_plan import DEPTH_MAX, checked_workflows, problem_of_code, spec_of
from engine.errors import BadRequest, BadWorkflow, DeclarationError
from engine.workflows.instance import attempt_id, attempt_key, instance_id, reuse_key
from engine.workflows.start import start_of, started
from streams.json import raw
from streams.model.service_levels import ServiceLevel
from streams.model.triggers import AdaptiveBudget, Budget, ManualTrigger, Mode, PublicEvents
from streams.model.workflows import OnFailure, Remedy, Task
from tests.spec import EPOCH


class Nothing(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        return converge()

    def converge(self, state, ctx):
        return ConvergeResult()


def actor(id_="risk", *expectations):
    made = Actor(id_, spec_rev="r7", public_events="without_starts")
    for name in expectations or ("rate", "undo"):
        made.expect(
            name,
            Nothing,
            on=manual(),
            subject_key="client.id",
            priority=3,
            budget=Budget(turns=2),
            dry_run=overrides(synthesis="ok"),
            service_level=ServiceLevel(end_s=9),
            adaptive_budget=AdaptiveBudget(turns=(1, 9)),
        )
    return made


ACTORS = {"risk": actor()}


def flow(name="review", **options):
    return Workflow(name, **options)


def refused(match):
    return pytest.raises(BadWorkflow, match=match)


# What is declared.


def test_a_workflow_keeps_its_steps_in_the_order_of_their_declaration():
    review = flow(on=event("client.changed"), subject_key="client", debounce_s=3)
    review.step("screen", "risk", "rate")
    rate = review.step(
        "rate",
        "risk",
        "rate",
        depends_on=["screen"],
        when=lambda trigger, prior: True,
        on_failure=retrying(attempts=3, backoff_s=5, skip_on=["bad_input"]),
        timeout_s=600,
        requires_approval=True,
        compensate=("risk", "undo"),
    )
    assert list(review.steps) == ["screen", "rate"]
    assert rate.on_failure == OnFailure(attempts_max=3, backoff_s=5, skip_on=("bad_input",))
    assert rate.functions == ("when",)
    assert rate.compensate == ("risk", "undo")


def test_a_step_may_depend_on_one_that_is_declared_later():
    review = flow()
    review.step("last", "risk", "rate", depends_on=["first"])
    review.step("first", "risk", "rate")
    assert checked_workflows([review], ACTORS) == {"review": review}


def test_a_workflow_is_begun_by_people_alone_unless_it_says_more():
    assert flow().on == (manual(),)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"on": event}, "on"),
        ({"subject_key": ".."}, "subject_key"),
        ({"debounce_s": -1, "on": event("a")}, "debounce_s"),
        ({"debounce_s": 3, "on": every("15m")}, "debounce_s"),
        ({"timeout_s": "soon"}, "timeout_s"),
        ({"overlap": "queue"}, "overlap"),
        ({"dedupe": "id"}, "dedupe"),
    ],
)
def test_an_option_that_cannot_work_is_named_with_its_workflow(options, field):
    with refused(f"^workflow 'review': {field}: "):
        flow(**options)


@pytest.mark.parametrize("name", ["", "a.b", "x" * 65, None, 7])
def test_what_is_no_name_names_no_workflow(name):
    with refused("name: .* is not a name"):
        flow(name)


async def waits(trigger, prior):
    return {}


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"input": "x"}, "input"),
        ({"when": True}, "when"),
        ({"for_each": waits}, "for_each"),
        ({"input": lambda t, p: {}, "for_each": lambda t, p: []}, "input"),
        ({"depends_on": "screen"}, "depends_on"),
        ({"depends_on": ["a.b"]}, "depends_on"),
        ({"depends_on": ["a", "a"]}, "depends_on"),
        ({"depends_on": ["s"] * 101}, "depends_on"),
        ({"on_failure": "retry"}, "on_failure"),
        ({"on_failure": retrying}, "on_failure"),
        ({"on_failure": OnFailure(attempts_max=0)}, "on_failure"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"requires_approval": 1}, "requires_approval"),
        ({"approvers": ["ada"]}, "requires_approval"),
        ({"approval_expires_s": 9}, "requires_approval"),
        ({"requires_approval": True, "approvers": "ada"}, "approvers"),
        ({"requires_approval": True, "approvers": [""]}, "approvers"),
        ({"requires_approval": True, "approvers": ()}, "approvers"),
        ({"approvers": []}, "requires_approval"),
        ({"compensate": "undo"}, "compensate"),
        ({"compensate": ("risk", "a.b")}, "compensate"),
        ({"reuse_s": -1}, "reuse_s"),
        ({"reuse_s": "60"}, "reuse_s"),
        ({"reuse_s": 60, "requires_approval": True}, "reuse_s"),
        ({"reuse_s": 60, "compensate": ("risk", "undo")}, "reuse_s"),
    ],
)
def test_an_option_that_cannot_work_is_named_with_its_step(options, field):
    with refused(f"^workflow 'review', step 'rate': {field}: "):
        flow().step("rate", "risk", "rate", **options)


def test_an_error_of_a_workflow_is_one_of_a_declaration():
    with pytest.raises(DeclarationError) as error:
        flow().step("a.b", "risk", "rate")
    assert (error.value.workflow, error.value.step, error.value.field) == ("review", "a.b", "name")


def test_an_option_that_nobody_knows_is_refused():
    with pytest.raises(TypeError, match="reuse"):
        flow().step("rate", "risk", "rate", reuse=3)


def test_no_result_of_another_workflow_is_used_again():
    with refused("step 'onboard': reuse_s: "):
        flow().sub("onboard", "onboarding", reuse_s=60)


def test_no_two_steps_have_one_name():
    review = flow()
    review.step("rate", "risk", "rate")
    with refused("step 'rate': name: declared twice"):
        review.sub("rate", "other")


def test_there_are_only_so_many_steps():
    review = flow()
    for number in range(STEPS_MAX):
        review.step(f"s{number}", "risk", "rate")
    with refused("the limit is 100"):
        review.step("more", "risk", "rate")


def test_a_circle_is_refused_when_it_closes_with_its_way_spelled_out():
    review = flow()
    review.step("a", "risk", "rate", depends_on=["c"])
    review.step("b", "risk", "rate", depends_on=["a"])
    with refused("step 'c': depends_on: leads in a circle: ") as error:
        review.step("c", "risk", "rate", depends_on=["b"])
    way = str(error.value).rpartition(": ")[2].split(" → ")
    assert way[0] == way[-1]
    needs = {"a": "c", "b": "a", "c": "b"}
    assert [needs[each] for each in way[:-1]] == way[1:]
    assert "c" not in review.steps


def test_a_step_does_not_depend_on_itself():
    with refused("a → a"):
        flow().step("a", "risk", "rate", depends_on=["a"])


# With the app.


def with_step(*args, name="review", **options):
    review = flow(name)
    review.step(*args, **options)
    return review


@pytest.mark.parametrize(
    ("review", "problem"),
    [
        (flow(), "workflow 'review': steps: none"),
        (with_step("a", "risk", "rate", depends_on=["b"]), "'b' is not there; there are a"),
        (with_step("a", "tax", "rate"), "step 'a': actor: 'tax' is not there; there are risk"),
        (with_step("a", "risk", "x"), "expectation: 'x' is not there; there are rate, undo"),
        (with_step("a", "risk", "rate", compensate=("risk", "x")), "compensate: 'x' is not there"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(review, problem):
    with refused(re.escape(problem)):
        checked_workflows([review], ACTORS)


def nested(name, *inner):
    outer = flow(name)
    for each in inner:
        outer.sub(f"run_{each}", each)
    return outer


def test_a_workflow_that_is_not_there_is_named():
    with refused("workflow 'a', step 'run_b': workflow: 'b' is not there; there are a"):
        checked_workflows([nested("a", "b")], ACTORS)


def test_where_there_is_nothing_to_choose_from_that_is_said():
    with refused("step 'a': actor: 'risk' is not there; there is none"):
        checked_workflows([with_step("a", "risk", "rate")], {})


def test_a_workflow_never_runs_itself_by_way_of_others():
    with refused("runs itself: ") as error:
        checked_workflows([nested("a", "b"), nested("b", "c"), nested("c", "a")], ACTORS)
    assert error.value.step == f"run_{error.value.problem.split(' → ')[1]}"


def test_workflows_are_nested_only_so_deep():
    chain = [nested(f"w{n}", f"w{n + 1}") for n in range(DEPTH_MAX)]
    last = with_step("a", "risk", "rate", name=f"w{DEPTH_MAX}")
    assert len(checked_workflows([*chain, last], ACTORS)) == DEPTH_MAX + 1
    with refused("the limit is 8"):
        checked_workflows([nested("outer", "w0"), *chain, last], ACTORS)


@pytest.mark.parametrize("workflows", ["review", [flow], None])
def test_what_are_no_workflows_are_refused(workflows):
    with refused("workflows: "):
        checked_workflows(workflows, ACTORS)


def test_no_two_workflows_have_one_name():
    both = [with_step("a", "risk", "rate"), with_step("b", "risk", "rate")]
    with refused("workflow 'review': name: declared twice"):
        checked_workflows(both, ACTORS)


def test_an_instance_is_told_what_its_actors_say():
    review = flow(subject_key="client.id", timeout_s=9, overlap="skip")
    review.step("rate", "risk", "rate", compensate=("risk", "undo"), when=lambda t, p: True)
    review.sub("onboard", "other", depends_on=["rate"])
    spec = spec_of(review, ACTORS)
    rate, onboard = spec.steps
    assert rate.task == Task(
        actor_id="risk",
        expectation_id="rate",
        budget=Budget(turns=2),
        spec_rev="r7",
        subject_key="client.id",
        priority=3,
        overrides=overrides(synthesis="ok"),
        public_events=PublicEvents.WITHOUT_STARTS,
        service_level=ServiceLevel(end_s=9),
        adaptive_budget=AdaptiveBudget(turns=(1, 9)),
    )
    assert rate.compensation.expectation_id == "undo"
    assert rate.functions == ("when",)
    assert (onboard.task, onboard.workflow, onboard.depends_on) == (None, "other", ("rate",))
    assert (spec.timeout_s, spec.overlap, spec.subject_key) == (9.0, "skip", "client.id")


def test_code_that_lacks_what_an_instance_needs_is_told_apart():
    spec = spec_of(with_step("a", "risk", "rate", when=lambda t, p: True), ACTORS)
    assert problem_of_code(spec, with_step("a", "risk", "rate", when=lambda t, p: False)) is None
    for other, problem in [
        (with_step("b", "risk", "rate"), "has no step 'a'"),
        (with_step("a", "risk", "rate"), "step 'a' of workflow 'review' was begun with when"),
    ]:
        assert problem in problem_of_code(spec, other)


# How an instance begins.


def begun(spec, *, dedupe_key="manual:1", stack="s", **options):
    trigger = ManualTrigger(requested_by="ada", payload={"client": {"id": 7}})
    start = start_of(spec.name, trigger, dedupe_key, stack=stack)
    return started(spec, replace(start, **options))


def test_the_same_cause_begins_the_same_instance():
    spec = spec_of(with_step("a", "risk", "rate"), ACTORS)
    assert begun(spec) == begun(spec)
    others = [begun(spec, dedupe_key="manual:2"), begun(spec, stack="t")]
    assert len({each.instance_id for each in [begun(spec), *others]}) == 3


def test_an_instance_is_about_what_its_subject_key_leads_to():
    spec = spec_of(flow_with("client.id"), ACTORS)
    assert begun(spec).subject == "7"


def flow_with(subject_key):
    review = flow(subject_key=subject_key)
    review.step("a", "risk", "rate")
    return review


def test_only_a_dry_run_keeps_what_stands_for_the_outside():
    spec = spec_of(with_step("a", "risk", "rate", compensate=("risk", "undo")), ACTORS)
    (live,) = begun(spec).spec.steps
    (dry,) = begun(spec, mode=Mode.DRY_RUN).spec.steps
    assert live.task.overrides is live.compensation.overrides is None
    assert dry.task.overrides == dry.compensation.overrides == overrides(synthesis="ok")


def test_overrides_of_a_step_that_is_not_there_are_refused():
    spec = spec_of(with_step("a", "risk", "rate"), ACTORS)
    with pytest.raises(BadRequest, match="there is no step 'b'"):
        begun(spec, mode=Mode.DRY_RUN, step_overrides={"b": overrides()})


def test_what_fits_in_no_commit_does_not_begin():
    spec = spec_of(with_step("a", "risk", "rate"), ACTORS)
    trigger = ManualTrigger(requested_by="ada", payload={"text": "x" * 800_000})
    with pytest.raises(BadRequest, match="the limit is 786,432"):
        started(spec, start_of(spec.name, trigger, "k", stack="s"))


# Failures.


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": ATTEMPTS_MAX + 1},
        {"backoff_s": -1},
        {"backoff_s": float("inf")},
        {"backoff_s": BACKOFF_S_MAX + 1},
        {"backoff_s": "5"},
        {"skip_on": "timeout"},
        {"skip_on": [7]},
        {"skip_on": [""]},
        {"then": "retry"},
    ],
)
def test_retries_that_cannot_work_are_refused_by_name(options):
    with pytest.raises(ValueError, match=rf"retrying\(\): {next(iter(options))}"):
        retrying(**options)


def test_a_word_is_a_policy_of_one_attempt():
    assert policy_of("pause") == OnFailure(attempts_max=1, then=Remedy.PAUSE)


def after(attempts, *, error_class="crash", **options):
    policy = retrying(**{"attempts": 3, "then": "continue"} | options)
    return remedy(policy, error_class=error_class, attempts=attempts, at=EPOCH, seed="s")


def test_a_step_is_tried_again_until_its_attempts_are_used_up():
    assert after(1) > EPOCH
    assert after(2) > EPOCH
    assert after(3) is Remedy.CONTINUE


@pytest.mark.parametrize("error_class", ["denied", "approval_expired", "no_funds"])
def test_some_failures_are_final(error_class):
    assert after(1, error_class=error_class, skip_on=["no_funds"]) is Remedy.CONTINUE


def test_waits_double_and_a_part_of_each_is_left_off():
    for attempts in range(1, 60):
        whole_s = min(5 * 2.0 ** (attempts - 1), BACKOFF_S_MAX)
        waits = {wait_s(5.0, attempts=attempts, seed=f"{n}") for n in range(20)}
        assert all(whole_s / 2 <= each <= whole_s for each in waits)
        assert len(waits) == 20


def test_the_same_failure_waits_for_the_same_time():
    assert wait_s(5.0, attempts=2, seed="a") == wait_s(5.0, attempts=2, seed="a")


# Graphs and ids.


def test_what_is_no_circle_has_no_way_back():
    assert cycle({"a": ("b", "c"), "b": ("c",), "c": ()}) == ""


def test_all_that_a_step_depends_on_is_known_and_how_deep_it_lies():
    graph = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d", "a")}
    assert ancestors(graph, "d") == {"a", "b", "c"}
    assert depths(graph) == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 3}


def test_every_attempt_has_an_id_of_its_own():
    task = Task(actor_id="risk", expectation_id="rate", budget=Budget())
    keys = [
        attempt_key("i", step, item, attempt, is_compensation=undo)
        for step in ("a", "b") for item in (0, 11) for attempt in (1, 2) for undo in (False, True)
    ]  # fmt: skip
    episodes = {attempt_id(stack="s", task=task, workflow="", key=each) for each in keys}
    instances = {attempt_id(stack="s", task=None, workflow="w", key=each) for each in keys}
    assert len(episodes | instances) == 32


def test_ids_are_the_same_for_ever():
    assert instance_id(stack="s", workflow="review", dedupe_key="event:1") == (
        "7bb3a64b-ae90-840b-97df-46c91636068f"
    )
    assert attempt_key("i", "rate", 2, 3) == "workflow:i/rate/2/3"
    assert attempt_key("i", "rate", 2, 3, is_compensation=True) == "compensation:i/rate/2/3"


def reused(**said):
    task = Task(actor_id="risk", expectation_id="rate", budget=Budget(), spec_rev="r1")
    usual = {"stack": "s", "task": task, "given": raw({"a": 1, "b": 2}), "mode": Mode.LIVE}
    return reuse_key(**{"overrides": None, **usual, **said})


def test_only_what_does_the_same_may_stand_for_an_episode():
    other = Task(actor_id="risk", expectation_id="undo", budget=Budget(), spec_rev="r1")
    newer = Task(actor_id="risk", expectation_id="rate", budget=Budget(), spec_rev="r2")
    keys = [
        reused(),
        reused(stack="t"),
        reused(task=other),
        reused(task=newer),
        reused(given=raw({"a": 1})),
        reused(mode=Mode.DRY_RUN),
        reused(mode=Mode.DRY_RUN, overrides=overrides(synthesis="x")),
    ]
    assert len(set(keys)) == len(keys)


def test_the_order_of_an_inputs_keys_and_the_size_of_a_budget_say_nothing():
    large = Task(actor_id="risk", expectation_id="rate", budget=Budget(turns=99), spec_rev="r1")
    assert reused() == reused(given=b'{"b":2,"a":1}', task=large)

"""What an instance may spend on requests to models, and how its attempts share that."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from functools import reduce

import pytest
from msgspec.structs import replace

from engine.app.workflow import Workflow, retrying
from engine.app.workflow_plan import spec_of as spec_with
from engine.episodes.episode import UNOPENED, evolve
from engine.errors import BadWorkflow
from engine.workflows.budget import adapting, capped, kept_usd
from engine.workflows.instance import UNSTARTED
from engine.workflows.start import sub_started
from engine.workflows.steps import end_of_episode, end_of_instance
from streams.model.events import (
    EndStatus,
    EpisodeFinished,
    EpisodeStarted,
    StepAnnounced,
)
from streams.model.money import USD_LEAST
from streams.model.triggers import AdaptiveBudget, Budget
from streams.model.workflows import StepStatus
from tests.engine.workflows.flows import (
    Flow,
    cancel,
    canceled,
    decided,
    done,
    fails,
    flow,
    given,
    missed,
    needs,
    spec_of,
    task,
    undoable,
    undone,
    waits,
)
from vigil import Actor, manual

HALF = Decimal("0.50")
LATER = {"on_failure": retrying(2, backoff_s=60)}


def fan(width, **options):
    items = {"for_each": lambda trigger, prior: [{"n": n} for n in range(width)]}
    return ("a", {**items, **options})


def shares(run):
    """Return what each running attempt may spend, by step and item."""
    running = run.flow.instance.with_status(StepStatus.RUNNING)
    return {f"{step}[{n}]": item.budget_usd for (step, n), item in running}


def spent(run):
    return run.flow.instance.spent_usd


def budgets(run):
    """Return the dollars of the episodes that the newest commit opens."""
    return [each.budget.usd for each in run.flow.effects.opens]


# Who gets what.


def test_without_a_budget_nothing_is_kept():
    run = given(flow("a"), dollars={"a": "0.50"})
    assert (shares(run), budgets(run)) == ({"a[0]": 0}, [HALF])


def test_an_attempt_may_spend_what_its_expectation_declares():
    run = given(flow("a", budget_usd=2), dollars={"a": "0.50"})
    assert (shares(run), budgets(run)) == ({"a[0]": HALF}, [HALF])
    (opened,) = run.flow.effects.opens
    assert opened.trigger.budget_usd == HALF


def test_one_that_declares_nothing_gets_all_that_is_left():
    run = given(flow("a", ("b", needs("a")), budget_usd=2)).when(done("a", spent="0.75"))
    assert budgets(run) == [Decimal("1.25")]


def test_as_many_begin_as_there_are_dollars_for_and_each_end_lets_others_begin():
    run = given(flow(fan(5), budget_usd="1.20"), dollars={"a": "0.50"})
    run.then("prepare a x5", "begin a[0]", "begin a[1]")
    run.when(done("a", item=1, spent="0.10")).then("done a[1]", "begin a[2]")
    run.when(done("a", item=0, spent="0.05")).then("done a[0]", "begin a[3]")
    run.when(done("a", item=2)).then("done a[2]", "begin a[4]")
    assert (spent(run), kept_usd(run.flow.instance)) == (Decimal("0.15"), 1)


def test_steps_beside_one_another_share_too():
    run = given(flow("a", "b", budget_usd="0.70"), dollars={"a": "0.50", "b": "0.50"})
    run.then("prepare a", "begin a", "prepare b")
    run.when(done("a", spent="0.30")).then("done a", "begin b")
    assert budgets(run) == [Decimal("0.40")]


def test_what_runs_alone_begins_with_what_is_left_even_if_that_is_nothing():
    run = given(flow("a", ("b", needs("a")), budget_usd=1), dollars={"b": "0.50"})
    run.when(done("a", spent="1.00")).then("done a", "prepare b", "begin b")
    assert budgets(run) == [USD_LEAST]


def test_one_that_declares_nothing_waits_until_nothing_else_is_kept():
    run = given(flow("a", "b", budget_usd=1))
    run.then("prepare a", "begin a", "prepare b").is_("running")
    run.when(done("a", spent="0.25")).then("done a", "begin b")
    assert budgets(run) == [Decimal("0.75")]


def test_an_approved_step_waits_for_its_dollars():
    asks = ("b", {"requires_approval": True})
    run = given(flow("a", asks, budget_usd=1)).when(decided("b", "approve"))
    run.then("approve b", "prepare b").when(done("a")).then("done a", "begin b")


def test_as_many_are_looked_up_as_there_are_dollars_for():
    run = given(flow(fan(5, reuse_s=60), budget_usd=1), dollars={"a": "0.50"})
    assert [each.item for each in run.flow.effects.recalls] == [0, 1]
    run.when(missed("a", 0), missed("a", 1))
    assert run.flow.effects.recalls == ()
    run.when(done("a", item=0))
    assert [each.item for each in run.flow.effects.recalls] == [2]


def test_what_was_looked_up_in_vain_waits_for_its_dollars_and_is_looked_up_again():
    reusing = ("b", {"reuse_s": 60})
    run = given(flow("a", reusing, budget_usd=1)).when(missed("b")).then_nothing()
    run.when(done("a")).then("done a")
    assert [each.step for each in run.flow.effects.recalls] == ["b"]
    run.when(missed("b")).then("begin b")


# What counts as spent.


def test_a_failed_attempt_has_spent_too_and_the_next_one_gets_what_is_left():
    run = given(flow(("a", LATER), budget_usd=1), dollars={"a": "0.80"})
    run.when(fails("a", spent="0.60")).then("failed a: crash", "postpone a")
    run.when(waits(60)).then("begin a #2")
    assert (spent(run), budgets(run)) == (Decimal("0.60"), [Decimal("0.40")])


def test_an_attempt_that_took_too_long_counts_as_all_that_it_may_spend():
    run = given(flow(("a", {"timeout_s": 60}), budget_usd=1), dollars={"a": "0.30"})
    run.when(waits(60))
    assert spent(run) == Decimal("0.30")


def test_a_request_of_unknown_outcome_counts_as_the_most_that_it_can_cost():
    (opened,) = given(flow("a", budget_usd=1)).flow.effects.opens
    asked = StepAnnounced(
        step_no=1,
        fingerprint="f",
        tool_name="",
        idempotency_key="k",
        path="1",
        reserved_usd=Decimal("0.30"),
    )
    end = EpisodeFinished(status=EndStatus.CANCELED)
    events = (opened, EpisodeStarted(node="n", attempt=1), asked, end)
    assert end_of_episode(reduce(evolve, events, UNOPENED)).spent_usd == Decimal("0.30")


def test_undoing_gets_what_is_left_and_counts():
    undone_ = flow(undoable("a"), ("b", needs("a")), budget_usd=1)
    run = given(undone_).when(done("a", spent="0.20"), fails("b", spent="0.30"))
    assert budgets(run) == [HALF]
    assert kept_usd(run.flow.instance) == HALF
    run.when(undone("a", spent="0.10")).then("undone a", "finish failed")
    assert (spent(run), kept_usd(run.flow.instance)) == (Decimal("0.60"), 0)


def test_undoing_that_took_too_long_counts_as_all_that_it_may_spend():
    undone_ = flow(undoable("a", timeout_s=60), ("b", needs("a")), budget_usd=1)
    run = given(undone_).when(done("a", spent="0.20"), fails("b"), waits(60))
    assert spent(run) == 1


def test_a_stopped_instance_keeps_what_runs_until_its_end():
    run = given(flow("a", budget_usd=1), dollars={"a": "0.30"}).when(cancel())
    assert kept_usd(run.flow.instance) == Decimal("0.30")
    run.when(canceled("a"))
    assert kept_usd(run.flow.instance) == 0


def test_inputs_that_cannot_be_said_cost_nothing():
    wrong = ("b", needs("a", input=lambda trigger, prior: 7))
    run = given(flow("a", wrong, budget_usd=1)).when(done("a", spent="0.20"))
    assert (spent(run), run.flow.instance.status) == (Decimal("0.20"), "failed")


# Time.


def test_no_timer_is_set_for_a_next_attempt_for_which_there_are_no_dollars():
    run = given(flow(("a", LATER), "b", budget_usd=1), dollars={"a": "0.50", "b": "0.50"})
    run.when(fails("a", spent="0.10"))
    assert run.flow.effects.wake_at is None
    run.when(done("b"))
    assert run.flow.effects.wake_at == run.item("a").retry_at
    assert run.item("a").retry_at - run.flow.now <= timedelta(seconds=60)


def test_a_step_that_is_not_prepared_is_tried_again_in_time_since_that_costs_nothing():
    said = iter([7, {}])
    odd = ("a", {"input": lambda trigger, prior: next(said), **LATER})
    run = given(flow("b", odd, budget_usd=1))
    assert run.flow.effects.wake_at == run.item("a").retry_at
    run.when(waits(60)).then("prepare a")


# Workflows in workflows.


def outer(**options):
    made = Workflow("outer", **options)
    made.sub("inner", "w")
    return made


def inner_of(run, *, budget_usd=0, dollars=None):
    """Return the nested instance that the newest commit begins."""
    (sub,) = run.flow.effects.starts
    inner = Flow(flow("a", "b"))
    inner.journal, inner.instance = [], UNSTARTED
    spec = spec_of(flow("a", "b", budget_usd=budget_usd), dollars or {})
    inner.commit((sub_started(spec, sub),))
    inner.settle()
    return inner


@pytest.mark.parametrize(
    ("of_outer", "of_inner", "expected"),
    [("1.00", "0.40", "0.40"), ("1.00", "3.00", "1.00"), ("1.00", 0, "1.00"), (0, "0.40", "0.40")],
)
def test_a_nested_instance_has_its_own_budget_or_what_is_kept_for_it(of_outer, of_inner, expected):
    run = given(outer(budget_usd=of_outer), dollars={"inner": of_inner})
    assert inner_of(run, budget_usd=of_inner).instance.begun.budget_usd == Decimal(expected)


def test_what_a_nested_instance_has_spent_counts_in_the_outer_one():
    run = given(outer(budget_usd=1), dollars={"inner": "0.60"})
    inner = inner_of(run, dollars={"a": "0.20", "b": "0.20"})
    done("a", spent="0.10")(inner)
    done("b", spent="0.15")(inner)
    run.flow.put(end_of_instance(inner.instance))
    assert spent(run) == Decimal("0.25")


# What an attempt may do with its share.


def test_an_episode_has_the_lower_of_its_own_budget_and_its_share():
    assert capped(Budget(usd="0.50"), Decimal("0.20")).usd == Decimal("0.20")
    assert capped(Budget(usd="0.50"), Decimal("0.90")).usd == HALF
    assert capped(Budget(), Decimal("0.20")).usd == Decimal("0.20")


@pytest.mark.parametrize(
    ("share", "adapts"), [("0", True), ("0.80", True), ("0.79", False), ("0.000001", False)]
)
def test_an_episode_with_less_than_it_may_spend_adapts_nothing(share, adapts):
    bounds = AdaptiveBudget(usd=("0.10", "0.80"), turns=(1, 9))
    declares = replace(task("act", "a", "0.20"), adaptive_budget=bounds)
    assert (adapting(declares, Decimal(share)) is bounds) is adapts


def test_an_episode_that_declares_no_dollars_adapts_unless_it_has_none():
    declares = task("act", "a")
    assert adapting(declares, HALF) is declares.adaptive_budget
    assert adapting(declares, USD_LEAST) is None


# Declarations.


def declared(budget_usd, *, adapts=None):
    actor = Actor("act")
    within = Budget(usd="0.20")

    @actor.expectation(on=manual(), budget=within, adaptive_budget=adapts)
    async def a(ctx, trigger): ...

    made = Workflow("w", budget_usd=budget_usd)
    made.step("a", "act", "a")
    return made, {"act": actor}


def test_the_most_that_an_adaptive_budget_may_become_is_kept():
    made, actors = declared(1, adapts=AdaptiveBudget(usd=("0.10", "0.60")))
    run = Flow(made)
    run.journal, run.instance = [], UNSTARTED
    run.commit((replace(given(made).flow.instance.begun, spec=spec_with(made, actors)),))
    run.settle()
    assert kept_usd(run.instance) == Decimal("0.60")


def test_a_step_that_is_a_workflow_says_the_budget_of_that():
    made, actors = declared("0.70")
    above = Workflow("above", budget_usd=2)
    above.sub("inner", "w")
    (step,) = spec_with(above, actors, {"w": made}).steps
    assert step.budget_usd == Decimal("0.70")


@pytest.mark.parametrize("wrong", ["lots", -1, float("nan")])
def test_a_sum_that_is_none_is_refused(wrong):
    with pytest.raises(BadWorkflow, match=r"w.*budget_usd"):
        Workflow("w", budget_usd=wrong)

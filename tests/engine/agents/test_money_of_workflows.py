"""The steps of a workflow's instance ask models, and share its dollars."""

from __future__ import annotations

from decimal import Decimal

from pydantic_ai.messages import ModelResponse, TextPart

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import ConvergeResult
from engine.app.triggers import workflow
from engine.app.workflow import Workflow
from streams.memory import memory_ports
from streams.model.events import StepAnnounced, StepEnded
from streams.model.triggers import Budget
from streams.model.workflows import StepStatus, WorkflowStatus
from tests.engine.agents.test_money_of_syntheses import DEAREST, PRICES, model_of
from tests.engine.stage import CLOCK, life, running
from tests.engine.workflow_stage import begin, ended, history, instance

EACH = DEAREST * 2
"""What an episode may spend: enough for one request and its input."""

ONE = Decimal("1.05")
"""Enough for one request; once that has cost something, for no other."""


class Asked:
    """A model that notes what was kept and spent whenever it is asked."""

    def __init__(self, ports):
        self.ports, self.id, self.seen = ports, "", []

    async def answer(self, messages, info):
        now = await instance(self.ports, self.id)
        kept = sum((item.budget_usd for _, item in now.with_status(StepStatus.RUNNING)), Decimal(0))
        self.seen.append(now.spent_usd + kept)
        return ModelResponse([TextPart("fine")])


async def once(ctx, trigger):
    return ConvergeResult(summary=await ctx.synthesize("How is it?"))


def app_of(answer, *, budget_usd, width=6):
    async def asked(messages, info):
        return await answer.answer(messages, info)

    worker = Actor("worker", synthesizer=model_of(asked))
    worker.expect("one", once, on=workflow(), budget=Budget(tokens=0, usd=EACH))
    made = Workflow("w", budget_usd=budget_usd)
    items = {"for_each": lambda trigger, prior: [{"n": n} for n in range(width)]}
    made.step("each", "worker", "one", on_failure="continue", **items)
    return App(actors=[worker], workflows=[made], prices=PRICES)


async def played(budget_usd):
    ports = memory_ports(clock=CLOCK)
    model = Asked(ports)
    async with running(app_of(model, budget_usd=budget_usd), ports):
        model.id = await begin(ports, "w")
        done = await ended(ports, model.id)
    ends = [each for each in await history(ports, model.id) if isinstance(each, StepEnded)]
    return done, model, [await life(ports, each.episode_id) for each in ends]


async def test_all_items_are_done_a_few_at_a_time_where_their_costs_fit():
    done, model, lives = await played(EACH * 2)
    assert done.status is WorkflowStatus.DONE
    assert {each.end.status.value for each in lives} == {"done"}
    assert len(model.seen) == 6
    assert max(model.seen) <= EACH * 2
    assert done.spent_usd == sum(each.end.usd_used for each in lives) > 0


async def test_no_request_is_made_that_could_pass_the_budget():
    done, model, lives = await played(ONE)
    assert done.spent_usd <= ONE
    ends = {each.end.error_class for each in lives}
    assert ends == {"", "budget_exceeded"}
    refused = [each for each in lives if each.end.error_class]
    assert not any(each.of(StepAnnounced) for each in refused)
    assert len(model.seen) == len(lives) - len(refused)

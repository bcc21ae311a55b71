"""What a test sees of what requests to models cost, and of the limits in dollars."""

from __future__ import annotations

from decimal import Decimal

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from vigil import Actor, App, Budget, ConvergeResult, Price, Workflow, manual, workflow
from vigil.testing import run

PRICES = {"function:fake": Price(input_per_million=1_000, output_per_million=10_000)}
"""A thousandth of a dollar for a token of input, a hundredth for one of output."""

EACH = Decimal("0.06")
"""What a request costs."""


def answer(messages, info):
    return ModelResponse([TextPart("fine")], usage=RequestUsage(input_tokens=10, output_tokens=5))


helper = Agent(
    FunctionModel(answer, model_name="fake"), name="helper", model_settings={"max_tokens": 100}
)


async def ask(ctx, trigger):
    await ctx.observe("it asks")
    return ConvergeResult(summary=(await ctx.agent(helper, "How is it?")).output)


async def delegate(ctx, trigger):
    await ctx.agent(helper, "Who may know?")
    await ctx.episode("worker", "ask")
    return ConvergeResult(summary="asked")


def app_of(*, usd="0", budget_usd="0", prices=PRICES):
    worker, budget = Actor("worker"), Budget(turns=20, tokens=0, usd=usd)
    worker.expect("ask", ask, on=[manual(), workflow()], budget=budget)
    worker.expect("delegate", delegate, on=manual(), budget=budget)
    review = Workflow("review", budget_usd=budget_usd)
    review.step("ask", "worker", "ask")
    return App(actors=[worker], workflows=[review], prices=prices)


async def test_a_request_has_its_cost_and_its_episode_the_sum():
    async with run(app_of(usd="5.00")) as vigil:
        await vigil.fire("worker", "ask")
        await vigil.run_until_idle()
        episode = vigil.episode()
        assert episode.cost_usd == EACH
        assert [each.cost_usd for each in episode.steps] == [None, EACH, None]
        assert episode.budget.usd == Decimal("5.00")


async def test_what_children_have_cost_is_in_their_own_episodes():
    async with run(app_of()) as vigil:
        await vigil.fire("worker", "delegate")
        await vigil.run_until_idle()
        assert {each.expectation: each.cost_usd for each in vigil.episodes()} == {
            "delegate": EACH,
            "ask": EACH,
        }


async def test_a_request_of_unknown_cost_has_none_and_its_episode_counts_it_for_nothing():
    async with run(app_of(prices={})) as vigil:
        await vigil.fire("worker", "ask")
        await vigil.run_until_idle()
        episode = vigil.episode()
        assert {each.cost_usd for each in episode.steps} == {None}
        assert episode.cost_usd == 0


async def test_an_instance_has_what_it_has_spent_and_its_budget():
    async with run(app_of(budget_usd="5.00")) as vigil:
        await vigil.start_workflow("review")
        await vigil.run_until_idle()
        review = vigil.workflow()
        assert (review.spent_usd, review.budget_usd) == (EACH, Decimal("5.00"))

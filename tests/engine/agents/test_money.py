"""What agents cost: each request by the price of its moment, within limits that a crash keeps."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from engine.agents.toolset import toolset
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.triggers import event
from engine.execution.driver import EpisodeTurns
from engine.functions.names import unpriced_models
from streams.model.events import EndStatus, EpisodeBlocked, StepAnnounced, StepKind, StepRecorded
from streams.model.money import Price
from streams.model.triggers import Budget
from tests.engine.agents.stage import Script, agent_of, classified, last_told
from tests.engine.functions.stage import middle, resume
from tests.engine.stage import (
    HAPPENED,
    decide,
    lived,
    open_episode,
    opening,
    ports_in_memory,
    running,
)
from tests.engine.stage import life as life_of

PRICE = Price(input_per_million=1_000, output_per_million=10_000)
"""A thousandth of a dollar for a token of input, a hundredth for one of output."""

SHORT = {"max_tokens": 100}


async def look() -> str:
    return "high"


def looking(*, settings=SHORT):
    script = Script([("look", {})], last_told)
    agent = agent_of(script, look, model_settings=settings)

    async def check(ctx, trigger):
        result = await ctx.agent(agent, "go")
        return ConvergeResult(classification={"said": result.output, "usd": str(result.cost_usd)})

    return check


def app_of(function, *, usd="0", on_exhausted=None, **options):
    actor = Actor("worker")
    budget = Budget(turns=100, tokens=0, usd=Decimal(usd))
    actor.expect("thing", function, on=event(HAPPENED), budget=budget, on_exhausted=on_exhausted)
    return App(actors=[actor], **{"prices": {"function:mine": PRICE}, **options})


async def played(app):
    ports = ports_in_memory()
    async with running(app, ports):
        return await lived(ports, await open_episode(ports, app))


def requests(life):
    return [each for each in life.of(StepRecorded) if each.kind is StepKind.MODEL_REQUEST]


async def test_each_request_has_its_cost_and_the_result_has_the_sum():
    life = await played(app_of(looking()))
    costs = [each.cost_usd for each in requests(life)]
    for each in requests(life):
        tokens = each.input_tokens * Decimal("0.001") + each.output_tokens * Decimal("0.01")
        assert each.cost_usd == tokens
    assert classified(life)["usd"] == str(sum(costs))


async def test_what_nobody_knows_the_price_of_has_no_cost_and_not_none():
    life = await played(app_of(looking(), prices={}))
    assert [each.cost_usd for each in requests(life)] == [None, None]
    assert classified(life)["usd"] == "None"


async def test_within_a_limit_the_most_is_reserved_before_each_request():
    life = await played(app_of(looking(), usd="10"))
    reserved = [each.reserved_usd for each in life.of(StepAnnounced)]
    assert len(reserved) == 2
    for most, each in zip(reserved, requests(life), strict=True):
        assert most >= each.cost_usd


async def test_that_a_tool_asks_people_is_not_sent_and_reserves_nothing():
    def asking(**options):
        tools = toolset(tool(look, idempotent=True), **options)
        agent = agent_of(Script("fine"), toolsets=[tools], model_settings=SHORT)

        async def check(ctx, trigger):
            return ConvergeResult(summary=(await ctx.agent(agent, "go")).output)

        return app_of(check, usd="10")

    free, asks = [await played(asking(**each)) for each in ({}, {"ask_from": "read"})]
    reserved = [life.of(StepAnnounced)[0].reserved_usd for life in (free, asks)]
    # The library's own word for such a tool is three bytes longer.
    assert reserved[1] - reserved[0] <= PRICE.input_per_million / 1_000_000


async def test_a_request_that_may_cost_more_than_is_left_is_not_made():
    life = await played(app_of(looking(), usd="1.50"))
    assert life.end.status is EndStatus.FAILED
    assert life.end.error_class == "budget_exceeded"
    assert life.end.error_detail.startswith("usd: ")
    assert len(requests(life)) == 1


@pytest.mark.parametrize(
    ("options", "settings", "error_class"),
    [
        ({"prices": {}}, SHORT, "unpriced_model"),
        ({}, None, "unlimited_answer"),
    ],
)
async def test_what_cannot_be_limited_is_refused_before_it_is_asked(options, settings, error_class):
    life = await played(app_of(looking(settings=settings), usd="10", **options))
    assert life.end.error_class == error_class
    assert requests(life) == []


@pytest.mark.parametrize("key", ["test", "test:test"])
@pytest.mark.parametrize("is_deferred", [False, True])
async def test_a_price_holds_by_wrapped_name_of_the_model(key, is_deferred):
    agent = Agent("test", name="any", model_settings=SHORT, defer_model_check=is_deferred)

    async def asks(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    life = await played(app_of(asks, usd="10", prices={key: PRICE}))
    assert life.end.status is EndStatus.DONE, life.end
    (asked,) = requests(life)
    used = asked.input_tokens * Decimal("0.001") + asked.output_tokens * Decimal("0.01")
    assert asked.cost_usd == life.end.usd_used == used


by_name = Agent("test", name="any", model_settings=SHORT, defer_model_check=True)
by_made = Agent("test", name="any", model_settings=SHORT)
by_wrapped = Agent(WrapperModel(TestModel()), name="any", model_settings=SHORT)


async def asks_by_name(ctx, trigger):
    return ConvergeResult(summary=(await ctx.agent(by_name, "go")).output)


async def asks_what_is_made(ctx, trigger):
    return ConvergeResult(summary=(await ctx.agent(by_made, "go")).output)


async def asks_what_is_wrapped(ctx, trigger):
    return ConvergeResult(summary=(await ctx.agent(by_wrapped, "go")).output)


async def asks_another(ctx, trigger):
    return ConvergeResult(summary=(await ctx.agent(by_wrapped, "go", model="test")).output)


@pytest.mark.parametrize(
    "asks", [asks_by_name, asks_what_is_made, asks_what_is_wrapped, asks_another]
)
async def test_a_price_that_is_unknown_is_told_before_it_fails_by_the_same_name(asks):
    app = app_of(asks, usd="10", prices={})
    (told,) = unpriced_models(app)
    life = await played(app)
    assert (life.end.error_class, life.end.error_detail) == ("unpriced_model", told.instead)
    key = told.instead.split("'")[1]
    priced = app_of(asks, usd="10", prices={key: PRICE})
    assert unpriced_models(priced) == {}
    assert (await played(priced)).end.status is EndStatus.DONE


async def test_after_a_crash_at_each_moment_nothing_is_reserved_or_spent_twice():
    app = app_of(looking(), usd="10")
    undisturbed = await played(app)
    events = middle(undisturbed)
    for until in range(len(events)):
        life = await resume(app, events[:until])
        assert classified(life) == classified(undisturbed), until
        assert life.episode.usd_used == undisturbed.episode.usd_used
        assert life.episode.usd_reserved == 0


async def test_a_reservation_is_durable_before_the_request_is_made():
    ports, announced = ports_in_memory(), []

    async def answer(messages, info):
        so_far = await life_of(ports, opening(app).episode_id)
        announced.append(len(so_far.of(StepAnnounced)))
        return ModelResponse([TextPart("fine")])

    model = FunctionModel(answer, model_name="mine")
    agent = Agent(model, name="helper", model_settings=SHORT)

    async def check(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    app = app_of(check, usd="10")
    async with running(app, ports):
        await lived(ports, await open_episode(ports, app))
    assert announced == [1]


@pytest.mark.parametrize(
    ("error", "cost"),
    [
        (ModelHTTPError(400, "mine", "no"), Decimal(0)),
        (ModelAPIError("mine", "the connection was lost"), None),
    ],
)
async def test_what_a_failed_request_has_cost_is_known_if_the_provider_has_refused_it(error, cost):
    agent = agent_of(Script(error), model_settings=SHORT)

    async def check(ctx, trigger):
        await ctx.agent(agent, "go", retries=None)

    life = await played(app_of(check, usd="10"))
    (request,) = requests(life)
    assert request.cost_usd == cost


async def test_an_agent_that_may_spend_no_more_asks_people_and_goes_on_where_it_was():
    ports, app = ports_in_memory(), app_of(looking(), usd="1.07", on_exhausted="ask")
    async with running(app, ports):
        episode_id = await open_episode(ports, app)
        await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
        await decide(ports, episode_id)
        life = await lived(ports, episode_id)
    assert classified(life)["said"] == "high"
    assert len(requests(life)) == 2
    assert life.episode.granted.usd == Decimal("1.07")


async def test_requests_under_way_end_before_people_are_asked():
    is_refused, asked = asyncio.Event(), []

    async def answer(messages, info):
        asked.append(str(messages[0].parts[-1].content))
        if len(asked) == 1:
            await is_refused.wait()
        return ModelResponse([TextPart("fine")])

    agent = Agent(FunctionModel(answer, model_name="mine"), name="helper", model_settings=SHORT)

    async def check(ctx, trigger):
        said = await ctx.gather(*(ctx.agent(agent, f"number {each}") for each in (1, 2)))
        return ConvergeResult(classification={"said": [each.output for each in said]})

    def refused(self, exceeded):
        is_refused.set()
        return request_for(self, exceeded)

    request_for = EpisodeTurns.request_for
    ports, app = ports_in_memory(), app_of(check, usd="1.03", on_exhausted="ask")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpisodeTurns, "request_for", refused)
        async with running(app, ports):
            episode_id = await open_episode(ports, app)
            await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeBlocked))
            await decide(ports, episode_id)
            life = await lived(ports, episode_id)
    assert classified(life)["said"] == ["fine", "fine"]
    assert sorted(asked) == ["number 1", "number 2"]

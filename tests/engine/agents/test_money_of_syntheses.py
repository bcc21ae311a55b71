"""What syntheses cost: the most is reserved before a `Model` is asked, as for agents."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from decimal import Decimal

import anyio
import pytest
from msgspec.structs import replace
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from engine.agents.toolset import toolset
from engine.agents.unit import AGENT_BYTES_MAX
from engine.app.actions import synthesize
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.tools import Synthesis, overrides
from engine.app.triggers import event
from engine.episodes.cancel import ask_to_cancel
from engine.runtime.store import Turns
from engine.spending.episode import EpisodeSpending
from engine.spending.store import SpendingStore
from engine.spending.window import every_window
from streams.errors import Unavailable
from streams.memory import memory_ports
from streams.model.commands import Cancel
from streams.model.events import EndStatus, StepAnnounced, StepKind, StepRecorded
from streams.model.money import Price, Spending
from streams.model.triggers import Budget, Mode
from tests.engine.agents.stage import agent_of, classified
from tests.engine.functions.stage import middle, resume
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    Scripted,
    ask_start,
    lived,
    open_episode,
    opening,
    running,
    write,
)
from tests.engine.stage import life as life_of
from vigil import Model
from vigil.testing import ModelServer, ModelUsage, TextAnswer, crash_everywhere, run

PRICE = Price(input_per_million=1_000, output_per_million=10_000)
"""A thousandth of a dollar for a token of input, a hundredth for one of output."""

PRICES = {
    "function:mine": PRICE,
    "openai:mine": PRICE,
    "function:cheap": Price(input_per_million=1, output_per_million=1),
}

SHORT = {"max_tokens": 100}

DEAREST = Decimal("1.00")
"""What the longest answer costs, without the input."""

SETTLING_TURNS = 50
"""Turns of the event loop that a cost is being settled: an agent that is canceled ends before."""


def says_fine(messages, info):
    return ModelResponse([TextPart("fine")])


def model_of(answer=says_fine, *, name="mine", settings=SHORT, **options):
    model = FunctionModel(answer, model_name=name)
    return Model(model, settings=settings, **{"retries": None, **options})


async def twice(ctx, trigger):
    said = [await ctx.synthesize("How is it?"), await ctx.synthesize("And now?")]
    return ConvergeResult(classification={"said": said})


def app_of(function, *, usd="0", synthesizer=None, actor=(), **options):
    worker = Actor("worker", synthesizer=synthesizer or model_of(), spending=actor)
    budget = Budget(turns=100, tokens=0, usd=Decimal(usd))
    worker.expect("thing", function, on=event(HAPPENED), budget=budget)
    return App(actors=[worker], **{"prices": PRICES, **options})


async def played(app, ports=None, reached=None):
    ports = ports or memory_ports(clock=CLOCK)
    async with running(app, ports):
        return await lived(ports, await open_episode(ports, app), reached)


async def spent_in(ports):
    store = SpendingStore(ports.gates, CLOCK, Turns())
    found = [await store.spent(each) for each in every_window("worker", CLOCK.now())]
    return [each for each in found if each.total]


def reserved(life):
    return [each.reserved_usd for each in life.of(StepAnnounced)]


async def test_what_is_refused_before_it_is_asked_leaves_nothing_reserved():
    agent = agent_of(says_fine, model_settings=SHORT, instructions="x" * AGENT_BYTES_MAX)

    async def ask(ctx, trigger):
        await ctx.agent(agent, "go", on_change="old")

    ports = memory_ports(clock=CLOCK)
    life = await played(app_of(ask, usd="100000", actor=[Spending(usd="100000")]), ports)
    assert life.end.error_class == "invalid_action"
    assert await spent_in(ports) == []


async def test_what_was_recorded_is_settled_also_where_its_episode_is_canceled_before_it_goes_on(
    monkeypatch,
):
    app, ports = app_of(twice, usd="10", actor=[Spending(usd="10")]), memory_ports(clock=CLOCK)
    settle, tried = EpisodeSpending.settle, asyncio.Event()

    async def away(self, path, usd):
        tried.set()
        raise Unavailable("gates", detail="they are away")

    monkeypatch.setattr(EpisodeSpending, "settle", away)
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await tried.wait()
        canceled = Cancel(actor_id="worker", episode_id=id_, by="ada")
        await ask_to_cancel(ports, canceled, id="c1")
        monkeypatch.setattr(EpisodeSpending, "settle", settle)
        life = await lived(ports, id_)
    (window,) = await spent_in(ports)
    assert life.end.status is EndStatus.CANCELED
    assert (window.used, window.reserved) == (life.end.usd_used, {})


async def test_the_most_is_reserved_before_a_model_is_asked_and_its_cost_takes_that_place():
    ports, at_request = memory_ports(clock=CLOCK), []

    async def answer(messages, info):
        life = await life_of(ports, opening(app).episode_id)
        at_request.append((life.episode.usd_reserved, (await spent_in(ports))[0].total))
        return says_fine(messages, info)

    app = app_of(twice, usd="10", synthesizer=model_of(answer), actor=[Spending(usd="10")])
    life = await played(app, ports)
    first, second = reserved(life)
    costs = [each.cost_usd for each in life.of(StepRecorded)]
    assert at_request == [(first, first), (second, costs[0] + second)]
    assert first > DEAREST > costs[0] > 0
    assert life.end.usd_used == sum(costs)
    (window,) = await spent_in(ports)
    assert (window.used, window.reserved) == (sum(costs), {})


async def test_a_strategy_class_reserves_as_well():
    app = app_of(Scripted(synthesize("How is it?")), usd="10")
    life = await played(app)
    assert len(reserved(life)) == 1
    assert life.of(StepAnnounced)[0].asks is StepKind.SYNTHESIS


async def test_a_synthesis_that_may_cost_more_than_is_left_is_not_asked_for():
    asked = []

    def answer(messages, info):
        asked.append(messages)
        return says_fine(messages, info)

    life = await played(app_of(twice, usd="1.03", synthesizer=model_of(answer)))
    assert (life.end.status, life.end.error_class) == (EndStatus.FAILED, "budget_exceeded")
    assert "the next request may cost 1.0" in life.end.error_detail
    assert len(asked) == 1


async def test_of_several_models_all_are_reserved_since_each_may_be_billed():
    both = model_of(name="cheap", fallbacks=[FunctionModel(says_fine, model_name="mine")])
    life = await played(app_of(twice, usd="10", synthesizer=both))
    alone = [
        reserved(await played(app_of(twice, usd="10", synthesizer=model_of(name=name))))
        for name in ("cheap", "mine")
    ]
    assert reserved(life) == [sum(each) for each in zip(*alone, strict=True)]


@pytest.mark.parametrize(
    ("error", "is_known"),
    [
        (ModelHTTPError(429, "mine", "later"), True),
        (ModelAPIError("mine", "the connection was lost"), False),
    ],
)
async def test_an_answer_after_a_request_to_another_model_that_may_be_billed_costs_the_most(
    error, is_known
):
    def fails(messages, info):
        raise error

    ports, answers = memory_ports(clock=CLOCK), FunctionModel(says_fine, model_name="mine")
    both = model_of(fails, fallbacks=[answers])

    async def once(ctx, trigger):
        return ConvergeResult(classification={"said": await ctx.synthesize("How is it?")})

    app = app_of(once, usd="10", synthesizer=both, actor=[Spending(usd="10")])
    life = await played(app, ports)
    (step,) = life.of(StepRecorded)
    alone = await played(app_of(once, usd="10"))
    assert classified(life) == {"said": "fine"}
    assert step.cost_usd == (alone.end.usd_used if is_known else None)
    assert step.cost_tokens == alone.of(StepRecorded)[0].cost_tokens
    assert life.end.usd_used == (alone.end.usd_used if is_known else sum(reserved(life)))
    (window,) = await spent_in(ports)
    assert (window.used, window.reserved) == (life.end.usd_used, {})


async def test_the_form_of_the_answer_is_part_of_what_is_sent():
    text, form = (model_of().request_sizes("?")[0] for _ in range(2))
    assert text == form
    made = model_of(output_type=dict[str, list[Decimal]]).request_sizes("?")[0]
    assert made.bytes_in > text.bytes_in
    longer = model_of(instructions="Be short.").request_sizes("?")[0]
    assert longer.bytes_in == text.bytes_in + len("Be short.")


@pytest.mark.parametrize(
    ("options", "settings", "error_class"),
    [
        ({"prices": {}}, SHORT, "unpriced_model"),
        ({}, None, "unlimited_answer"),
    ],
)
async def test_what_cannot_be_limited_is_refused_before_it_is_asked(options, settings, error_class):
    app = app_of(twice, usd="10", synthesizer=model_of(settings=settings), **options)
    life = await played(app)
    assert life.end.error_class == error_class
    assert "function:mine" in life.end.error_detail
    assert life.of(StepRecorded) == []


async def test_the_answers_of_a_model_may_be_limited_by_its_own_settings():
    model = FunctionModel(says_fine, model_name="mine", settings=SHORT)
    life = await played(app_of(twice, usd="10", synthesizer=Model(model)))
    assert len(reserved(life)) == 2


async def test_without_a_limit_nothing_is_reserved_or_announced():
    life = await played(app_of(twice, synthesizer=model_of(settings=None), prices={}))
    assert life.end.status is EndStatus.DONE
    assert reserved(life) == []


async def test_of_a_synthesizer_of_the_users_own_the_cost_counts_and_nothing_is_reserved():
    async def own(prompt, transient, ctx):
        return Synthesis(content="fine", cost_usd=Decimal("0.30"))

    life = await played(app_of(twice, usd="10", synthesizer=own))
    assert reserved(life) == []
    assert life.end.usd_used == Decimal("0.60")


async def test_what_an_override_of_a_dry_run_stands_for_reserves_nothing():
    app, ports = app_of(twice, usd="10"), memory_ports(clock=CLOCK)
    opened = opening(app)
    dry = replace(opened, mode=Mode.DRY_RUN, overrides=overrides(synthesis="fine"))
    async with running(app, ports):
        await write(ports, opened.episode_id, dry)
        await ask_start(ports, opened.episode_id)
        life = await lived(ports, opened.episode_id)
    assert (reserved(life), life.end.usd_used) == ([], 0)


async def test_what_a_test_answers_in_place_of_the_model_reserves_nothing():
    app = app_of(twice, usd="0.50")
    async with run(app, synthesizer="fine") as vigil:
        await vigil.fire("worker", "thing")
        await vigil.run_until_idle()
        assert vigil.episode().status == "done"


@pytest.mark.parametrize(
    ("error", "is_known"),
    [
        (ModelHTTPError(400, "mine", "no"), True),
        (ModelAPIError("mine", "the connection was lost"), False),
    ],
)
async def test_a_failed_request_costs_the_most_unless_the_provider_has_refused_it(error, is_known):
    def answer(messages, info):
        raise error

    ports = memory_ports(clock=CLOCK)
    synthesizer, day = model_of(answer), [Spending(usd="10")]
    life = await played(app_of(twice, usd="10", synthesizer=synthesizer, actor=day), ports)
    (most,) = reserved(life)
    (step,) = life.of(StepRecorded)
    assert step.cost_usd == (0 if is_known else None)
    assert life.end.usd_used == (0 if is_known else most)
    assert [each.used for each in await spent_in(ports)] == ([] if is_known else [most])


@pytest.mark.parametrize("others", [[ModelHTTPError(404, "mine", "no")], [TimeoutError()]])
async def test_of_several_models_that_fail_the_cost_is_known_if_each_has_refused(others):
    def failing(error):
        def answer(messages, info):
            raise error

        return FunctionModel(answer, model_name="mine")

    first = ModelHTTPError(429, "mine", "later")
    lost = ModelAPIError("mine", "the connection was lost")
    errors = [lost if isinstance(each, TimeoutError) else each for each in others]
    model = Model(
        failing(first), fallbacks=[failing(each) for each in errors], settings=SHORT, retries=None
    )
    life = await played(app_of(twice, usd="10", synthesizer=model))
    (step,) = life.of(StepRecorded)
    assert step.cost_usd == (None if errors == [lost] else 0)


async def test_a_synthesis_with_transient_values_costs_nothing_since_no_model_is_asked():
    async def logs_in(ctx, trigger):
        await ctx.synthesize("How is it?", transient={"key": "hunter2"})

    ports = memory_ports(clock=CLOCK)
    life = await played(app_of(logs_in, usd="10", actor=[Spending(usd="10")]), ports)
    (step,) = life.of(StepRecorded)
    assert (step.error_class, step.cost_usd) == ("invalid_arguments", 0)
    assert life.end.usd_used == 0
    assert await spent_in(ports) == []


async def test_an_answer_that_nobody_can_use_and_no_token_is_counted_of_costs_the_most():
    unknown = TextAnswer("it is al", usage=ModelUsage(), is_truncated=True)
    async with ModelServer([unknown]) as server:
        provider = OpenAIProvider(base_url=f"{server.url}/v1", api_key="test")
        model = Model(OpenAIChatModel("mine", provider=provider), settings=SHORT)
        life = await played(app_of(twice, usd="10", synthesizer=model))
    (step,) = life.of(StepRecorded)
    assert (step.error_class, step.cost_usd) == ("output_too_long", None)
    assert life.end.usd_used == reserved(life)[0]


async def test_a_synthesis_that_a_timeout_of_the_function_cuts_off_counts_once():
    patience = asyncio.timeout(None)

    async def answer(messages, info):
        if not patience.expired():
            patience.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
        return says_fine(messages, info)

    async def impatient(ctx, trigger):
        with suppress(TimeoutError):
            async with patience:
                await ctx.synthesize("How is it?")
        return ConvergeResult(summary=await ctx.synthesize("And now?"))

    app = app_of(impatient, usd="2.20", synthesizer=model_of(answer))
    life = await played(app)
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    first, second = life.of(StepRecorded)
    assert (first.error_class, first.cost_usd) == ("call_timeout", None)
    assert life.end.usd_used == reserved(life)[0] + second.cost_usd


def cut_off_while_settling(monkeypatch, cut_off):
    """Call `cut_off` while the first cost is being settled, which takes some turns of the loop."""
    settle, begun = EpisodeSpending.settle, []

    async def slow(spending, path, usd):
        begun.append(path)
        if len(begun) == 1:
            cut_off()
        for _ in range(SETTLING_TURNS):
            await asyncio.sleep(0)
        await settle(spending, path, usd)

    monkeypatch.setattr(EpisodeSpending, "settle", slow)


def over_now(patience):
    """Return what ends a timeout of asyncio."""
    return lambda: patience.reschedule(asyncio.get_running_loop().time())


async def assert_settled(life, ports):
    """Check that nothing is reserved, and that what is recorded is what the windows have."""
    (window,) = await spent_in(ports)
    costs = [each.cost_usd for each in life.of(StepRecorded) if each.is_request]
    assert (window.used, window.reserved) == (sum(costs), {})


@pytest.mark.parametrize("kind", ["asyncio", "anyio"])
async def test_a_timeout_of_the_function_comes_too_late_for_an_answer_that_is_recorded(
    kind, monkeypatch
):
    said, scope, patience = [], anyio.CancelScope(), asyncio.timeout(None)
    cut_off = over_now(patience) if kind == "asyncio" else scope.cancel
    cut_off_while_settling(monkeypatch, cut_off)

    async def impatient(ctx, trigger):
        with suppress(TimeoutError), scope:
            async with patience:
                said.append(await ctx.synthesize("How is it?"))
        return ConvergeResult(classification={"said": said})

    ports = memory_ports(clock=CLOCK)
    life = await played(app_of(impatient, usd="10", actor=[Spending(usd="10")]), ports)
    (step,) = life.of(StepRecorded)
    assert (step.error_class, classified(life)) == ("", {"said": ["fine"]})
    await assert_settled(life, ports)


@tool
async def look() -> str:
    """Look."""
    return "full"


def looking(asked):
    """Return an agent that looks, and ends then; it notes in `asked` what it is asked."""

    def answer(messages, info):
        asked.append(messages)
        return ModelResponse([ToolCallPart("look", {})]) if len(asked) == 1 else says_fine(0, 0)

    return agent_of(answer, toolsets=[toolset(look)], model_settings=SHORT)


async def test_an_agent_that_is_cut_off_while_a_cost_is_settled_leaves_nothing_reserved(
    monkeypatch,
):
    asked, patience = [], asyncio.timeout(None)
    cut_off_while_settling(monkeypatch, over_now(patience))
    helper = looking(asked)

    async def impatient(ctx, trigger):
        with suppress(TimeoutError):
            async with patience:
                await ctx.agent(helper, "How is it?")
        return ConvergeResult(summary="enough")

    ports = memory_ports(clock=CLOCK)
    app = app_of(impatient, usd="10", actor=[Spending(usd="10")], tools=[look])
    life = await played(app, ports)
    request, agent = life.of(StepRecorded)
    assert (request.kind, agent.error_class) == (StepKind.MODEL_REQUEST, "call_timeout")
    assert len(asked) == 1
    await assert_settled(life, ports)


async def test_an_episode_that_fails_while_the_cost_of_its_agent_is_settled_leaves_nothing_reserved(
    monkeypatch,
):
    settles = asyncio.Event()
    cut_off_while_settling(monkeypatch, settles.set)
    helper = looking([])

    async def spends_too_much(ctx):
        await settles.wait()
        await ctx.synthesize("How is it?" * 10_000)

    async def hasty(ctx, trigger):
        await ctx.gather(ctx.agent(helper, "How is it?"), spends_too_much(ctx))

    ports = memory_ports(clock=CLOCK)
    app = app_of(hasty, usd="10", actor=[Spending(usd="10")], tools=[look])
    life = await played(app, ports)
    assert life.end.error_class == "budget_exceeded"
    await assert_settled(life, ports)


async def test_after_a_crash_at_each_moment_nothing_is_reserved_or_spent_twice():
    app = app_of(twice, usd="10")
    undisturbed = await played(app)
    events = middle(undisturbed)
    assert len(events) == 5
    for until in range(len(events)):
        life = await resume(app, events[:until])
        assert classified(life) == classified(undisturbed), until
        assert life.episode.usd_used == undisturbed.episode.usd_used
        assert life.episode.usd_reserved == 0


async def test_another_prompt_after_a_crash_is_reserved_anew():
    def asking(prompt):
        async def once(ctx, trigger):
            return ConvergeResult(classification={"said": await ctx.synthesize(prompt)})

        return app_of(once, usd="10")

    before = await played(asking("How?"))
    life = await resume(asking("How is everything?"), before.of(StepAnnounced))
    assert classified(life) == {"said": "fine"}
    first, second = reserved(life)
    assert first < second
    assert life.episode.usd_reserved == 0


async def test_an_answer_is_paid_once_whenever_a_node_dies():
    app = app_of(twice, usd="1.20", actor=[Spending(usd="100")])

    async def answered(vigil):
        episode_id = await vigil.fire("worker", "thing")
        await vigil.run_until_idle()
        life = await life_of(vigil.ports, episode_id)
        assert life.end.status is EndStatus.DONE, life.end.error_detail
        assert life.end.usd_used == sum(each.cost_usd for each in life.of(StepRecorded))

    moments = await crash_everywhere(lambda: run(app, allow=["synthesizer"]), answered)
    assert moments > 6

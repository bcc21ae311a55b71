"""Names in strategies that do not exist are found before they are used."""

from __future__ import annotations

import inspect

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from engine.errors import DeclarationError
from engine.functions.names import (
    equal_agents,
    misspelt_names,
    unknown_names,
    unlimited_answers,
    unpriced_models,
)
from engine.spending.prices import nobody_knows
from streams.model.money import Price, Spending
from vigil import (
    Actor,
    App,
    Budget,
    ConvergeResult,
    Model,
    Strategy,
    Workflow,
    event,
    manual,
    propose_output,
    raise_finding,
    synthesize,
    tool,
    tool_call,
    update_finding,
)
from vigil import output as output_step
from vigil.agents import plan_of, toolset
from vigil.templates import agentic_task, observe_synthesize_converge


@tool(capability="disk")
async def largest(path: str = "/") -> str:
    return path


@tool(capability="disk")
async def removed(path: str = "/") -> str:
    return path


async def delivered(payload):
    return "ok"


def found_in(strategy):
    """Return what is found in a strategy, and what there is instead."""
    actor = Actor("worker", tools=[largest])
    actor.expect("thing", strategy, on=event("thing.happened"))
    app = App(actors=[actor], tools={"anything": called}, outputs={"mail": delivered})
    return [(each.found, each.instead) for each in unknown_names(app)]


async def called(args, ctx):
    return args


async def all_is_well(ctx, trigger):
    await ctx.call("disk.largest")
    await ctx.call(largest, path="/")
    await ctx.call("anything.whatever")
    await ctx.call(trigger.payload["tool"])
    await ctx.output("mail", {})
    trigger.call("nothing of ours")
    return [
        raise_finding("k", class_="c", severity="high"),
        raise_finding("k", class_="c", severity=trigger.payload["severity"]),
        propose_output("mail", {}),
    ]


def test_names_that_exist_and_names_that_are_computed_are_not_listed():
    assert found_in(all_is_well) == []


async def no_tool(ctx, trigger):
    await ctx.call("disk.biggest")


async def no_capability(ctx, trigger):
    await ctx.gather(ctx.call("disks.largest"), ctx.sleep(1))


async def no_function(ctx, trigger):
    await ctx.call(removed)


TOOLS = "one of anything.…, disk.largest"


@pytest.mark.parametrize(
    ("function", "name"),
    [(no_tool, "disk.biggest"), (no_capability, "disks.largest"), (no_function, "disk.removed")],
)
def test_a_tool_that_the_actor_does_not_have_is_listed_with_those_that_it_has(function, name):
    assert found_in(function) == [(f"tool {name!r}", TOOLS)]


@tool(capability="mails")
async def read() -> str:
    return ""


async def calls_two(ctx, trigger):
    await ctx.call("disk.largest")
    await ctx.call(read)


def test_a_tool_that_the_actor_may_not_call_is_none_that_it_has():
    actor = Actor("worker", capabilities=["mails"])
    actor.expect("thing", calls_two, on=manual())
    (found,) = unknown_names(App(actors=[actor], tools=[largest, read]))
    assert (found.found, found.instead) == ("tool 'disk.largest'", "one of mails.read")


async def no_output(ctx, trigger):
    await ctx.output("pager", {})
    return ConvergeResult(outputs=[propose_output("pagers", {})])


def test_an_output_that_the_app_does_not_have_is_listed():
    assert found_in(no_output) == [
        ("output 'pager'", "one of mail"),
        ("output 'pagers'", "one of mail"),
    ]


async def helped(ctx, trigger):
    return helper(trigger)


def helper(trigger):
    return [
        raise_finding("k", class_="c", severity="hgh"),
        update_finding("k", severity="worst"),
    ]


def test_a_severity_that_does_not_exist_is_listed_with_those_that_do():
    known = "one of low, medium, high, critical"
    assert found_in(helped) == [("severity 'hgh'", known), ("severity 'worst'", known)]


class Classic(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        self.call("not a tool")
        return output_step("pager", {}) if state else tool_call("disk", "biggest")

    def call(self, name):
        return name

    def handle_result(self, state, step, result):
        return state

    def converge(self, state, ctx):
        return ConvergeResult(findings=[raise_finding("k", class_="c", severity="bad")])


def test_the_methods_of_a_strategy_class_are_looked_at_too():
    assert [name for name, _ in found_in(Classic)] == [
        "output 'pager'",
        "tool 'disk.biggest'",
        "severity 'bad'",
    ]


def test_what_definitions_may_name_is_looked_at_too():
    app = App(strategies={"helped": helped})
    ((first, place), *_) = unknown_names(app).items()
    lines, begins = inspect.getsourcelines(helper)
    assert place == ("", "helped")
    assert first.place == f"test_names.py:{begins + 2}"
    assert "hgh" in lines[2]


def test_a_name_is_listed_once_however_many_expectations_use_it():
    actor = Actor("worker", tools=[largest])
    for name in ("one", "two"):
        actor.expect(name, no_tool, on=manual())
    (place,) = unknown_names(App(actors=[actor])).values()
    assert place == ("worker", "one")


def test_a_capability_that_does_not_exist_is_refused_with_those_that_do():
    actor = Actor("worker", tools=[largest], capabilities=["disk", "disks"])
    actor.expect("thing", all_is_well, on=manual())
    with pytest.raises(DeclarationError, match="no tool is called 'disks'; there are: disk"):
        App(actors=[actor])


async def starts_children(ctx, trigger):
    await ctx.episode("worker", "thing")
    await ctx.episode("worker", "thingy")
    await ctx.episode(actor="worker", expectation="thong")
    await ctx.episode("defined_elsewhere", "thing")
    await ctx.episode(trigger.payload["actor"], "thing")
    await ctx.episode("workr", "thing")


def test_an_expectation_that_an_actor_of_the_app_lacks_is_listed():
    assert found_in(starts_children) == [
        ("expectation of worker 'thingy'", "one of thing"),
        ("expectation of worker 'thong'", "one of thing"),
    ]


def misspelt_in(strategy, *names):
    actor = Actor("worker")
    actor.expect("thing", strategy, on=event(*names))
    return [(each.found, each.instead) for each in misspelt_names(App(actors=[actor]))]


def test_an_actor_that_is_spelt_nearly_as_one_of_the_app_is_warned_of():
    assert misspelt_in(starts_children, "thing.happened") == [
        ("actor 'workr'", "did you mean worker? This app has no other")
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("finding.rased", "finding.raised"),
        ("episodes.completed", "episode.completed"),
        ("workflow.step_start", "workflow.step_started"),
        ("finding.raised", ""),
        ("order.started", ""),
        ("finding.raised.again", ""),
    ],
)
def test_an_event_that_is_spelt_nearly_as_one_of_the_engine_is_warned_of(name, meant):
    said = (f"event {name!r}", f"did you mean {meant}, which the engine publishes?")
    assert misspelt_in(all_is_well, name) == ([said] if meant else [])


async def asks(ctx, question: str) -> str:
    """Ask an expert."""
    await ctx.call("disk.none")
    return (await ctx.agent(expert, question)).output


fitting = Agent("test", name="fitting", toolsets=[toolset(largest)])
nameless = Agent("test")
lacking = Agent("test", name="lacking", toolsets=[toolset(largest, removed)])
planning = Agent(
    "test", name="planning", output_type=[str, plan_of(removed, asks, previews={removed: largest})]
)
previewing = Agent(
    "test", name="previewing", output_type=plan_of(largest, previews={largest: removed})
)
expert = Agent("openia:gpt-5", name="expert", toolsets=[toolset(removed)], defer_model_check=True)
unprovided = Agent("gpt-5", name="unprovided", defer_model_check=True)
asking = Agent("test", name="asking", toolsets=[toolset(asks)])
other_fitting = Agent("test", name="fitting")

TOOLS = "one of anything.…, disk.largest"
NO_PROVIDER = "no provider is called 'openia'; did you mean openai?"


async def runs_fitting(ctx, trigger):
    await ctx.agent(fitting, "why?", model="openai:gpt-5")
    await ctx.agent(trigger.payload["agent"], "why?")


async def runs_nameless(ctx, trigger):
    await ctx.agent(nameless, "why?")


async def runs_lacking(ctx, trigger):
    await ctx.agent(agent=lacking, prompt="why?")


async def runs_models_without_a_provider(ctx, trigger):
    await ctx.agent(unprovided, "why?")
    await ctx.agent(fitting, "why?", model="clever")
    await ctx.agent(fitting, "why?", model="test")


async def runs_planning(ctx, trigger):
    await ctx.agent(planning, "why?")


async def runs_previewing(ctx, trigger):
    await ctx.agent(previewing, "why?")


async def runs_without_keeping(ctx, trigger):
    first = await ctx.agent(fitting, "why?")
    await ctx.agent(fitting, "and?", message_history=first.messages)
    await ctx.agent(fitting, "so?", message_history=(await ctx.agent(fitting, "so?")).messages)


async def runs_and_keeps(ctx, trigger):
    first = await ctx.agent(fitting, "why?", keep_messages=True)
    again = await ctx.agent(fitting, "and?", message_history=first.messages, keep_messages=True)
    other = await ctx.agent(fitting, "or?", **trigger.payload)
    once = await ctx.agent(fitting, "once?", message_history=[*again.messages, *other.messages])
    return once.output


async def runs_and_reads_of_a_parameter(ctx, trigger):
    read = lambda first: first.messages  # noqa: E731 - a parameter of its own
    first = await ctx.agent(fitting, "why?")
    return first, read


async def runs_and_reads_of_a_mapping(ctx, trigger):
    first = await ctx.agent(fitting, "why?")
    match trigger.payload:
        case {"first": first}:
            return first.messages
    return first


async def runs_and_reads_of_the_rest(ctx, trigger):
    first = await ctx.agent(fitting, "why?")
    match trigger.payload:
        case [*first] | {**first}:
            return first.messages
    return first


async def runs_and_reads_of_an_error(ctx, trigger):
    try:
        first = await ctx.agent(fitting, "why?")
    except ExceptionGroup as first:
        return first.messages
    return first


async def runs_another_model(ctx, trigger):
    await ctx.agent(fitting, "why?", model="openia:gpt-5")


async def runs_asking(ctx, trigger):
    await ctx.agent(asking, "why?")


AGENTS = {
    runs_fitting: [],
    runs_nameless: [("agent without a name", 'Agent(…, name="triage")')],
    runs_lacking: [("tool of agent 'lacking' 'disk.removed'", TOOLS)],
    runs_models_without_a_provider: [
        ("model 'gpt-5'", "write provider:model, such as openai:gpt-5"),
        ("model 'clever'", "write provider:model, such as openai:gpt-5"),
    ],
    runs_without_keeping: [
        ("first.messages", "ctx.agent(…, keep_messages=True)"),
        ("ctx.agent(…).messages", "ctx.agent(…, keep_messages=True)"),
    ],
    runs_and_keeps: [],
    runs_and_reads_of_a_parameter: [],
    runs_and_reads_of_a_mapping: [],
    runs_and_reads_of_the_rest: [],
    runs_and_reads_of_an_error: [],
    runs_planning: [
        ("tool of agent 'planning' 'disk.removed'", TOOLS),
        ("tool 'disk.none'", TOOLS),
        ("tool of agent 'expert' 'disk.removed'", TOOLS),
        ("model 'openia:gpt-5'", NO_PROVIDER),
    ],
    runs_previewing: [("tool of agent 'previewing' 'disk.removed'", TOOLS)],
    runs_another_model: [("model 'openia:gpt-5'", NO_PROVIDER)],
    runs_asking: [
        ("tool 'disk.none'", TOOLS),
        ("tool of agent 'expert' 'disk.removed'", TOOLS),
        ("model 'openia:gpt-5'", NO_PROVIDER),
    ],
}


@pytest.mark.parametrize("function", AGENTS, ids=lambda each: each.__name__)
def test_an_agent_that_cannot_be_run_is_listed_and_so_are_those_within_its_tools(
    monkeypatch, function
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert found_in(function) == AGENTS[function]


def limited_agent(**options):
    return Agent("test", name="limited", **options)


unlimited = Agent("test", name="unlimited")
short = limited_agent(model_settings={"max_tokens": 100})
short_model = limited_agent()
short_model.model = TestModel(settings={"max_tokens": 100})
computed = limited_agent(model_settings=lambda ctx: {"max_tokens": 100})
clever = Model("openai:clever")
brief = Model("openai:clever", settings={"max_tokens": 100})


async def runs_unlimited(ctx, trigger):
    await ctx.agent(unlimited, "why?")
    await ctx.agent(short, "why?")
    await ctx.agent(short_model, "why?")
    await ctx.agent(computed, "why?")


async def synthesizes(ctx, trigger):
    await ctx.synthesize("why?")


class Synthesizes(Strategy):
    def init(self, episode, trigger):
        return {}

    def converge(self, state, ctx):
        return ConvergeResult(summary="")

    def next_step(self, state, ctx):
        return synthesize("why?")


TEMPLATE = observe_synthesize_converge({"gatherer": "facts", "system_prompt": "s"})
DAILY = [Spending(usd=5, per="day")]
LIMIT = "a limit in dollars applies, so its answers need one, too"
OF_AGENT = ("agent 'unlimited'", f"{LIMIT}: Agent(…, model_settings={{'max_tokens': 4_000}})")
OF_MODEL = ("Model('openai:clever')", f"{LIMIT}: Model(…, settings={{'max_tokens': 4_000}})")


def unlimited_in(strategy, *, budget=None, spending=(), synthesizer=None, **of_app):
    actor = Actor("worker", spending=spending)
    actor.expect("thing", strategy, on=manual(), budget=budget or Budget(), synthesizer=synthesizer)
    app = App(actors=[actor], gatherers={"facts": delivered}, **of_app)
    return [(each.found, each.instead) for each in unlimited_answers(app)]


@pytest.mark.parametrize(
    ("strategy", "options", "found"),
    [
        (runs_unlimited, {}, []),
        (runs_unlimited, {"budget": Budget(usd=1)}, [OF_AGENT]),
        (runs_unlimited, {"spending": DAILY}, [OF_AGENT]),
        (synthesizes, {"synthesizer": clever}, []),
        (synthesizes, {"synthesizer": clever, "spending": DAILY}, [OF_MODEL]),
        (synthesizes, {"synthesizer": brief, "spending": DAILY}, []),
        (synthesizes, {"synthesizer": delivered, "spending": DAILY}, []),
        (Synthesizes(), {"synthesizer": clever, "spending": DAILY}, [OF_MODEL]),
        (TEMPLATE, {"synthesizer": clever}, []),
        (TEMPLATE, {"synthesizer": clever, "spending": DAILY}, [OF_MODEL]),
    ],
)
def test_answers_of_any_length_are_listed_where_dollars_are_limited(strategy, options, found):
    assert unlimited_in(strategy, **options) == found


def test_a_strategy_that_definitions_may_name_is_held_to_the_limits_of_the_app():
    app = App(strategies={"asks": runs_unlimited}, spending=DAILY)
    assert [(each.found, each.instead) for each in unlimited_answers(app)] == [OF_AGENT]
    assert unlimited_answers(App(strategies={"asks": runs_unlimited})) == {}


@pytest.mark.parametrize(
    ("budget_usd", "step", "found"),
    [
        (0, {}, []),
        (5, {}, [OF_AGENT]),
        (5, {"compensate": ("worker", "thing")}, [OF_AGENT]),
    ],
)
def test_the_budget_of_a_workflow_limits_what_its_steps_run(budget_usd, step, found):
    flow = Workflow("review", budget_usd=budget_usd)
    flow.step("look", *(("worker", "other") if step else ("worker", "thing")), **step)
    actor = Actor("worker")
    actor.expect("thing", runs_unlimited, on=manual())
    actor.expect("other", delivered_nothing, on=manual())
    app = App(actors=[actor], workflows=[flow])
    assert [(each.found, each.instead) for each in unlimited_answers(app)] == found


def test_so_does_that_of_a_workflow_around_it():
    inner, outer = Workflow("inner"), Workflow("outer", budget_usd=5)
    inner.step("look", "worker", "thing")
    outer.sub("review", "inner")
    actor = Actor("worker")
    actor.expect("thing", runs_unlimited, on=manual())
    app = App(actors=[actor], workflows=[inner, outer])
    assert [(each.found, each.instead) for each in unlimited_answers(app)] == [OF_AGENT]


async def delivered_nothing(ctx, trigger):
    return ConvergeResult()


def test_the_agent_of_a_template_is_named_by_its_expectation():
    config = {"prompt": "What is it?", "agent": {"model": "test", "instructions": "Find out."}}
    actor = Actor("worker", spending=DAILY)
    actor.expect("thing", agentic_task(config, tools={}), on=manual())
    (found,) = unlimited_answers(App(actors=[actor], unpriced="zero"))
    assert (found.place, found.found) == ("worker.thing", "agent 'test'")
    assert found.instead == f"{LIMIT}: agent: model_settings: max_tokens"


SHORT = {"max_tokens": 100}
PRICE = Price(input_per_million=1, output_per_million=1)


def answers(messages, info):
    raise NotImplementedError


by_name = Agent("openai:nobody", name="named", defer_model_check=True, model_settings=SHORT)
by_test = Agent("test", name="tested", model_settings=SHORT)
own = FunctionModel(answers, model_name="mine", settings=SHORT)
by_function = Agent(own, name="made")
listed = Agent("openai:gpt-5", name="listed", defer_model_check=True, model_settings=SHORT)
later = Agent(name="later", model_settings=SHORT)
OTHER = "openai:other"


async def runs_by_name(ctx, trigger):
    await ctx.agent(by_name, "why?")


async def runs_by_test(ctx, trigger):
    await ctx.agent(by_test, "why?")


async def runs_by_function(ctx, trigger):
    await ctx.agent(by_function, "why?")


async def runs_listed(ctx, trigger):
    await ctx.agent(listed, "why?")


async def runs_other(ctx, trigger):
    await ctx.agent(listed, "why?", model="openai:other")
    await ctx.agent(by_name, "why?", model="openai:gpt-5")
    await ctx.agent(later, "why?", model=OTHER)


async def runs_what_is_known_later(ctx, trigger):
    given = {"model": "openai:gpt-5"}
    await ctx.agent(later, "why?")
    await ctx.agent(by_name, "why?", model=trigger.payload["model"])
    await ctx.agent(by_name, "why?", **given)


def of_agent(name, model):
    return (f"agent {name!r}", nobody_knows(model))


def unpriced_in(strategy, *, synthesizer=None, budget=None, spending=DAILY, **of_app):
    actor = Actor("worker", spending=spending)
    actor.expect("thing", strategy, on=manual(), budget=budget or Budget(), synthesizer=synthesizer)
    app = App(actors=[actor], gatherers={"facts": delivered}, **of_app)
    return [(each.found, each.instead) for each in unpriced_models(app)]


@pytest.mark.parametrize(
    ("strategy", "options", "found"),
    [
        (runs_by_name, {}, [of_agent("named", "openai:nobody")]),
        (runs_by_name, {"spending": ()}, []),
        (
            runs_by_name,
            {"spending": (), "budget": Budget(usd=1)},
            [of_agent("named", "openai:nobody")],
        ),
        (runs_by_name, {"unpriced": "zero"}, []),
        (runs_by_name, {"prices": {"openai-responses:nobody": PRICE}}, []),
        (runs_by_test, {}, [of_agent("tested", "test:test")]),
        (runs_by_test, {"prices": {"test": PRICE}}, []),
        (runs_by_function, {}, [of_agent("made", "function:mine")]),
        (runs_by_function, {"prices": {"function:mine": PRICE}}, []),
        (runs_listed, {}, []),
        (runs_other, {}, [of_agent("listed", "openai:other"), of_agent("later", "openai:other")]),
        (runs_what_is_known_later, {}, []),
        (
            synthesizes,
            {"synthesizer": brief},
            [("Model('openai:clever')", nobody_knows("openai:clever"))],
        ),
        (
            synthesizes,
            {"synthesizer": Model("openai:gpt-5", fallbacks=[own])},
            [("Model('openai:gpt-5')", nobody_knows("function:mine"))],
        ),
        (synthesizes, {"synthesizer": Model("openai:gpt-5")}, []),
        (synthesizes, {"synthesizer": delivered}, []),
        (
            Synthesizes(),
            {"synthesizer": Model(own)},
            [("Model('function:mine')", nobody_knows("function:mine"))],
        ),
        (
            TEMPLATE,
            {"synthesizer": brief},
            [("Model('openai:clever')", nobody_knows("openai:clever"))],
        ),
        (runs_listed, {"synthesizer": brief}, []),
    ],
)
def test_models_without_a_price_are_listed_where_dollars_are_limited(strategy, options, found):
    assert unpriced_in(strategy, **options) == found


def test_each_has_its_line_and_that_of_a_template_its_expectation():
    config = {
        "prompt": "What is it?",
        "agent": {"model": "test", "instructions": "Find out.", "model_settings": SHORT},
    }
    actor = Actor("worker", spending=DAILY)
    actor.expect("thing", agentic_task(config, tools={}), on=manual())
    actor.expect("code", runs_by_test, on=manual())
    line = inspect.getsourcelines(runs_by_test)[1] + 1
    found = [(each.place, each.found) for each in unpriced_models(App(actors=[actor]))]
    assert found == [
        ("worker.thing", "agent 'test'"),
        (f"test_names.py:{line}", "agent 'tested'"),
    ]


def test_what_is_listed_of_answers_is_the_same_whether_their_price_is_known_or_not():
    assert unlimited_in(runs_unlimited, spending=DAILY, prices={"test": PRICE}) == [OF_AGENT]


def test_an_agent_that_only_a_call_can_know_is_not_looked_for_elsewhere():
    def made(fitting):
        async def check(ctx, trigger):
            await ctx.agent(fitting, "why?")

        return check

    assert found_in(made(nameless)) == []


async def runs_two(ctx, trigger):
    await ctx.agent(fitting, "why?")
    await ctx.agent(other_fitting, "why?")
    await ctx.agent(fitting, "why?")


def test_two_agents_of_one_name_are_told():
    worker = Actor("worker", tools=[largest])
    worker.expect("twice", runs_two, on=manual())
    worker.expect("once", runs_fitting, on=manual())
    found = equal_agents(App(actors=[worker]))
    assert [(each.found, place.name) for each, place in found.items()] == [
        ("agent 'fitting'", "twice")
    ]

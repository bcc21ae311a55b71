"""An agent that is defined in a file runs on every node that has its parts, without a restart."""

from __future__ import annotations

import pytest

from engine.agents.model import Model
from engine.app.app import App
from engine.app.function_tool import tool
from engine.definitions.agent import agent_of, to_actor
from engine.definitions.text import read
from engine.errors import BadDefinition
from streams.json import unraw
from streams.model.events import EndStatus, EpisodeConverged, StepKind, StepRecorded
from streams.model.money import Price, Spending
from tests.engine.defining import WORKER, apply, happen, nodes_of, revision_of, runs, says
from tests.engine.stage import doomed, lived, running

DEFINED = """
id: worker
expectations:
  thing:
    on: {event: thing.happened}
    budget: {turns: 50, tokens: 0, usd: USD}
    strategy:
      template: agentic_task
      config:
        agent:
          model: MODEL
          name: triage
          instructions: Find out what is wrong.
          model_settings: {max_tokens: 1000}
        prompt: "What is wrong? {payload}"
        tools: [TOOL]
        classes: [CLASS]
"""


PRICE = Price(input_per_million=1, output_per_million=2)


async def facts(trigger, ctx):
    return {}


@tool
async def look(host: str) -> str:
    """Look at a host."""
    return f"{host} is full"


def defined(model="test", tool="look", class_="disk_full", usd="0"):
    text = DEFINED.replace("USD", usd)
    text = text.replace("MODEL", model).replace("TOOL", tool).replace("CLASS", class_)
    return read(text, "yaml")


def app_with_tools() -> App:
    return App(tools=[look])


def classes(life):
    assert life.end.status is EndStatus.DONE, life.end
    return unraw(life.of(EpisodeConverged)[0].classification)["primary"]


async def test_every_node_runs_it_and_each_change_of_it(ports):
    async with running(app_with_tools(), ports, "n1"):
        async with doomed(app_with_tools(), ports, "n2"):
            assert await apply(ports, defined()) == 1
            await says(ports, runs(1), "n1")
            await says(ports, runs(1), "n2")
            first = await lived(ports, await happen(ports, "x1"))
            assert await apply(ports, defined(class_="disk_slow")) == 2
            await says(ports, runs(2), "n1")
            await says(ports, runs(2), "n2")
        second = await lived(ports, await happen(ports, "x2"))
    assert (classes(first), classes(second)) == ("disk_full", "disk_slow")
    assert (revision_of(first), revision_of(second)) == (1, 2)
    assert nodes_of(second)[-1] == "n1"
    names = [(each.kind, each.tool_name) for each in first.of(StepRecorded)]
    assert names == [
        (StepKind.MODEL_REQUEST, "triage"),
        (StepKind.TOOL_CALL, "look.call"),
        (StepKind.MODEL_REQUEST, "triage"),
        (StepKind.AGENT, "triage"),
    ]


async def test_a_node_that_lacks_a_tool_leaves_it_to_one_that_has_it(ports):
    async with running(App(), ports, "n1"), running(app_with_tools(), ports, "n2"):
        await apply(ports, defined())
        await says(ports, runs(1), "n2")
        lacking = await says(ports, lambda info: info.problems, "n1")
        life = await lived(ports, await happen(ports))
    assert classes(life) == "disk_full"
    assert nodes_of(life) == ["n2"]
    assert lacking.problems[WORKER] == (
        "expectations.thing.strategy.config.tools.0: no tool is called 'look'; there are none;"
        " App(tools=…)"
    )


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"model": "openia:gpt-5"}, "agent.model: openia:gpt-5: no provider is called 'openia'"),
        ({"model": "anthropic:claude-sonnet-5"}, "Set the `ANTHROPIC_API_KEY` environment variab"),
        (
            {"model": "openai:gtp-5.6", "usd": "0.50"},
            "agent.model: nobody knows the price of 'openai:gtp-5.6', and a limit in dollars",
        ),
        ({"tool": "lok"}, "tools.0: no tool is called 'lok'; did you mean look?"),
    ],
)
async def test_a_node_says_in_one_line_why_it_cannot_run_it(ports, monkeypatch, said, problem):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with running(app_with_tools(), ports):
        await apply(ports, defined(**said))
        info = await says(ports, lambda info: info.problems)
    assert info.problems[WORKER].startswith("expectations.thing.strategy.config.")
    assert problem in info.problems[WORKER]
    assert "\n" not in info.problems[WORKER]


@pytest.mark.parametrize(
    ("app", "spending", "refused"),
    [
        (App(), [], False),
        (App(), [{"usd": 5, "per": "day"}], True),
        (App(spending=[Spending(usd=5, per="day")]), [], True),
        (App(spending=[Spending(usd=5, per="day")], unpriced="zero"), [], False),
        (App(spending=[Spending(usd=5, per="day")], prices={"openai:own": PRICE}), [], False),
    ],
)
def test_the_price_of_a_model_must_be_known_where_dollars_are_limited(
    monkeypatch, app, spending, refused
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    definition = defined(model="openai:own")
    del definition["expectations"]["thing"]["strategy"]["config"]["tools"]
    read_ = agent_of({**definition, "spending": spending})
    to_actor(read_, app, here=False)
    if not refused:
        to_actor(read_, app)
        return
    with pytest.raises(BadDefinition, match="nobody knows the price of 'openai:own'"):
        to_actor(read_, app)


@pytest.mark.parametrize("key", ["test", "test:test"])
async def test_the_price_by_which_a_definition_is_taken_is_found_when_it_runs(ports, key):
    async with running(App(tools=[look], prices={key: PRICE}), ports):
        await apply(ports, defined(usd="5"))
        await says(ports, runs(1))
        life = await lived(ports, await happen(ports))
    assert classes(life) == "disk_full"
    assert life.end.usd_used > 0


def test_answers_must_be_limited_where_dollars_are(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
    definition = defined(model="openai:own", tool="look", usd="1")
    config = definition["expectations"]["thing"]["strategy"]["config"]
    app = App(tools=[look], prices={"openai:own": PRICE})
    to_actor(agent_of(definition), app)
    del config["agent"]["model_settings"]
    with pytest.raises(
        BadDefinition, match=r"agent\.model_settings\.max_tokens: write it: a limit"
    ):
        to_actor(agent_of(definition), app)


def asking_the_app(usd):
    definition = defined(usd=usd)
    definition["expectations"]["thing"]["strategy"] = {
        "template": "observe_synthesize_converge",
        "config": {"gatherer": "facts", "system_prompt": "What is it?"},
    }
    return definition


@pytest.mark.parametrize(
    ("settings", "usd", "refused"),
    [({}, "1", True), ({}, "0", False), ({"max_tokens": 100}, "1", False)],
)
def test_answers_to_a_template_that_asks_the_model_of_the_app_must_be_limited_too(
    settings, usd, refused
):
    definition = asking_the_app(usd)
    app = App(
        synthesizer=Model("openai:own", settings=settings),
        gatherers={"facts": facts},
        prices={"openai:own": PRICE},
    )
    if not refused:
        to_actor(agent_of(definition), app)
        return
    with pytest.raises(BadDefinition) as refusal:
        to_actor(agent_of(definition), app)
    assert str(refusal.value) == (
        "expectations.thing.strategy: Model('openai:own') of the app: a limit in dollars applies,"
        " so its answers need one, too: Model(…, settings={'max_tokens': 4_000})"
    )


@pytest.mark.parametrize(
    ("options", "usd", "refused"),
    [
        ({}, "1", "openai:own"),
        ({"prices": {"openai-chat:own": PRICE}}, "1", "openai:next"),
        ({"prices": {"openai:own": PRICE, "openai:next": PRICE}}, "1", ""),
        ({"unpriced": "zero"}, "1", ""),
        ({}, "0", ""),
    ],
)
def test_so_must_the_prices_of_all_that_it_may_ask_be_known(options, usd, refused):
    model = Model("openai:own", fallbacks=["openai:next"], settings={"max_tokens": 100})
    app = App(synthesizer=model, gatherers={"facts": facts}, **options)
    if not refused:
        to_actor(agent_of(asking_the_app(usd)), app)
        return
    with pytest.raises(BadDefinition) as refusal:
        to_actor(agent_of(asking_the_app(usd)), app)
    assert str(refusal.value) == (
        "expectations.thing.strategy: Model('openai:own') of the app: nobody knows the price of"
        f" {refused!r}, and a limit in dollars applies; App(prices={{{refused!r}: Price(…)}}), or"
        ' App(unpriced="zero")'
    )


def test_a_definition_can_be_read_without_the_library(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pydantic_ai", None)
    assert agent_of(defined()).id == "worker"

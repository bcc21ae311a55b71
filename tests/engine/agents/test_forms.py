"""Answers and outputs of each form are kept, and a cut-off agent's reservation is not asked for."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel, field_validator
from pydantic_ai import Agent, TextOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel

from engine.agents.toolset import toolset
from engine.app.strategy import ConvergeResult
from engine.errors import CallFailed
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told
from tests.engine.agents.test_failures import asking
from tests.engine.agents.test_money import SHORT, played
from tests.engine.agents.test_money import app_of as priced_app_of
from tests.engine.functions.stage import app_of, middle, play, resume


async def test_an_answer_of_thoughts_without_text_is_kept():
    def model(messages, info):
        return ModelResponse([ThinkingPart("", signature="abc"), TextPart("fine")])

    life = await play(asking(Agent(FunctionModel(model), name="helper")), budget=MANY)
    assert classified(life) == {"said": "fine"}


async def test_an_answer_with_an_empty_text_is_kept():
    def model(messages, info):
        if len(messages) > 1:
            return ModelResponse([TextPart("fine")])
        return ModelResponse([TextPart(""), ToolCallPart("look", {}, "c")])

    async def look() -> str:
        return ""

    agent = Agent(FunctionModel(model), name="helper")
    agent.tool_plain(look)
    life = await play(asking(agent), budget=MANY)
    assert classified(life) == {"said": "fine"}


async def test_a_reservation_of_an_agent_that_was_cut_off_is_asked_for_by_nobody():
    async def slow(messages, info):
        await asyncio.Event().wait()

    inner = Agent(FunctionModel(slow, model_name="mine"), name="inner", model_settings=SHORT)

    async def ask(ctx) -> str:
        try:
            async with asyncio.timeout(0.3):
                return (await ctx.agent(inner, "go")).output
        except TimeoutError:
            return "too late"

    agent = agent_of(
        Script([("ask", {})], last_told), toolsets=[toolset(ask)], model_settings=SHORT
    )

    async def check(ctx, trigger):
        said = (await ctx.agent(agent, "go")).output
        await ctx.observe(1)
        return ConvergeResult(classification={"said": said})

    app = priced_app_of(check, usd="10")
    undisturbed = await played(app)
    assert classified(undisturbed) == {"said": "too late"}
    events = middle(undisturbed)
    for until in range(len(events)):
        life = await resume(app, events[:until])
        assert not life.parked, (until, life.parked)
        assert classified(life) == {"said": "too late"}, until


@pytest.mark.parametrize("kind", [int, bool, None, "list", "union", "optional"])
async def test_outputs_of_each_type(kind):
    class A(BaseModel):
        x: int

    class B(BaseModel):
        x: int
        y: int = 2

    types = {
        int: (int, {"response": 3}, 3),
        bool: (bool, {"response": False}, False),
        None: (dict[str, int], {"response": {"a": 1}}, {"a": 1}),
        "list": (list[A], {"response": [{"x": 1}]}, [A(x=1)]),
        "union": ([A, B], {"x": 1}, B(x=1)),
        "optional": (A | None, None, None),
    }
    output_type, args, expected = types[kind]
    name = "final_result_B" if kind == "union" else "final_result"

    def answers(messages, info):
        names = [each.name for each in info.output_tools]
        if args is None:
            which = next(each for each in names if "None" in each)
            return ModelResponse([ToolCallPart(which, {"response": None}, "c")])
        return ModelResponse([ToolCallPart(name, args, "c")])

    agent = Agent(FunctionModel(answers), name="helper", output_type=output_type)
    seen = []

    async def ask(ctx, trigger):
        result = await ctx.agent(agent, "go")
        seen.append(result.output)
        await ctx.observe(1)
        return ConvergeResult(classification={"said": 1})

    life = await play(ask, budget=MANY)
    classified(life)
    again = await resume(app_of(ask, budget=MANY), middle(life)[:-2])
    classified(again)
    assert seen == [expected] * 2


async def test_an_agent_may_have_a_model_that_falls_back_to_another():
    def away(messages, info):
        raise ModelHTTPError(503, "first")

    models = FallbackModel(FunctionModel(away), FunctionModel(Script("fine")))
    agent = Agent(models, name="helper")

    async def ask(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    assert classified(await play(ask, budget=MANY)) == {"said": "fine"}


def words(text: str) -> list[str]:
    return text.split()


@pytest.mark.parametrize("output_type", [TextOutput(words), [TextOutput(words), int]])
async def test_an_output_may_be_made_of_the_text_by_a_function(output_type):
    agent = agent_of(Script("all is well"), output_type=output_type)

    async def ask(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    life = await play(ask, budget=MANY)
    assert classified(life) == {"said": ["all", "is", "well"]}
    again = await resume(app_of(ask, budget=MANY), middle(life)[:-1])
    assert classified(again) == {"said": ["all", "is", "well"]}


async def test_an_output_that_cannot_be_read_from_its_json_fails_its_agent_and_not_a_replay():
    class Meant(BaseModel):
        word: str

        @field_validator("word")
        @classmethod
        def _never_twice(cls, word: str) -> str:
            if word.endswith("!"):
                raise ValueError("it is said already")
            return f"{word}!"

    agent = agent_of(Script([("final_result", {"word": "so"})]), output_type=Meant)

    async def ask(ctx, trigger):
        try:
            await ctx.agent(agent, "go")
        except CallFailed as failed:
            await ctx.observe(1)
            return ConvergeResult(classification={"class": failed.error_class, "is": str(failed)})

    life = await play(ask, budget=MANY)
    told = "the output of the agent, read from its JSON: word: it is said already"
    assert classified(life) == {"class": "unencodable", "is": f"unencodable: {told}"}
    again = await resume(app_of(ask, budget=MANY), middle(life)[:-2])
    assert classified(again) == classified(life)

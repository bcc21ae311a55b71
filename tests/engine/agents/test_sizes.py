"""Large, empty and missing values of agents; and what their end must not lose."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from engine.agents.toolset import toolset
from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from streams.model.events import StepRecorded
from tests.engine.agents.stage import MANY, Script, agent_of, classified, last_told, told
from tests.engine.agents.test_failures import asking
from tests.engine.functions.stage import app_of, middle, play, resume


async def test_a_large_prompt_and_large_arguments_end():
    calls = []

    async def look(x: str) -> str:
        calls.append(1)
        return "high"

    agent = agent_of(Script([("look", {"x": "y" * 1_100_000})], last_told), look)
    life = await play(asking(agent), budget=MANY)
    assert classified(life) == {"said": "high"}
    assert calls == [1]


async def test_a_side_effect_is_made_once_though_the_end_of_its_agent_is_too_large():
    calls = []

    @tool(side_effect=True)
    async def pay() -> str:
        calls.append(1)
        return "high"

    agent = agent_of(Script([("pay", {})], lambda m: "x" * 1_100_000), toolsets=[toolset(pay)])

    async def ask(ctx, trigger):
        return ConvergeResult(classification={"said": len((await ctx.agent(agent, "go")).output)})

    life = await play(ask, tools=[pay], budget=MANY)
    assert classified(life) == {"said": 1_100_000}
    assert calls == [1]


async def test_an_error_of_a_tool_of_steps_that_is_long():
    async def raises(ctx) -> str:
        raise ValueError("y" * 3_000_000)

    agent = agent_of(Script([("raises", {})], last_told), toolsets=[toolset(raises)])
    life = await play(asking(agent), budget=MANY)
    assert classified(life)["said"].startswith("failed: crash")


async def test_a_detail_of_a_failed_tool_that_the_library_raises_is_kept():
    """`UnexpectedModelBehavior` of too many retries, with a long message."""

    async def look() -> str:
        raise UnexpectedModelBehavior("z" * 3_000_000)

    agent = agent_of(Script([("look", {})], last_told), look)
    life = await play(asking(agent), budget=MANY)
    assert classified(life)["said"].startswith("failed: invalid_answer")


async def test_an_own_tool_that_returns_nothing_or_empty_is_kept():
    async def none() -> None:
        return None

    async def empty() -> str:
        return ""

    async def kinds() -> dict:
        return {"kind": "response", "parts": [], "usage": {}}

    calls = [("none", {}), ("empty", {}), ("kinds", {})]
    agent = agent_of(Script(calls, lambda m: "|".join(told(m))), none, empty, kinds)
    life = await play(asking(agent), budget=MANY)
    plain = (await agent.run("go")).output
    assert classified(life) == {"said": plain}


async def test_a_side_effect_that_was_recorded_parks_a_function_without_its_agent():
    done = []

    @tool(side_effect=True, idempotent=True)
    async def restart(service: str) -> str:
        done.append(service)
        return f"{service} is up"

    agent = agent_of(
        Script([("restart", {"service": "web"})], last_told), toolsets=[toolset(restart)]
    )

    async def old(ctx, trigger):
        return ConvergeResult(classification={"said": (await ctx.agent(agent, "go")).output})

    async def new(ctx, trigger):
        await ctx.call(restart, service="web")
        return ConvergeResult(classification={"said": "new"})

    events = middle(await play(old, tools=[restart], budget=MANY))
    at = next(n for n, e in enumerate(events) if isinstance(e, StepRecorded) and "t1" in e.path)
    again = await resume(app_of(new, tools=[restart], budget=MANY), events[: at + 1])
    assert again.parked
    assert done == ["web"]


async def test_args_that_are_none_are_kept():
    async def look() -> str:
        return "high"

    def model(messages, info):
        if len(messages) > 1:
            return ModelResponse([TextPart("fine")])
        return ModelResponse([ToolCallPart("look", None, "c"), ToolCallPart("look", "", "d")])

    agent = Agent(FunctionModel(model), name="helper")
    agent.tool_plain(look)
    life = await play(asking(agent), budget=MANY)
    assert classified(life) == {"said": "fine"}

"""Builders for agents: models that answer by a script, and what they were asked."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from engine.agents.toolset import toolset
from streams.json import unraw
from streams.model.events import EndStatus, EpisodeConverged
from streams.model.triggers import Budget

MANY = Budget(turns=1_000, tokens=0)


class Script:
    """Answers the n-th request of a run with the n-th turn: a text, calls of tools, or an error.

    A call is `("name", {"argument": …})`. Its answers are the same in each run, as those of a model
    that is asked again would not be.
    """

    def __init__(self, *turns):
        self.turns = turns
        self.asked = []
        """The messages of each request."""

    def __call__(self, messages, info):
        number = sum(isinstance(each, ModelResponse) for each in messages)
        self.asked.append(messages)
        turn = self.turns[number]
        if callable(turn):
            turn = turn(messages)
        if isinstance(turn, Exception):
            raise turn
        if isinstance(turn, str):
            return ModelResponse([TextPart(turn)])
        calls = [(*each, f"call-{n}")[:3] for n, each in enumerate(turn)]
        return ModelResponse([ToolCallPart(name, args, id_) for name, args, id_ in calls])


def agent_of(script, *tools, name="helper", **options) -> Agent:
    """Return an agent with tools of its own, plain functions, whose model answers by `script`."""
    agent = Agent(FunctionModel(script, model_name="mine"), name=name, **options)
    for each in tools:
        agent.tool_plain(each)
    return agent


def told(messages):
    """Return what the tools have told the model so far, in order."""
    parts = [part for each in messages for part in each.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def last_told(messages) -> str:
    """Return the last thing that was said to the model."""
    return str(messages[-1].parts[-1].content)


def classified(life):
    assert life.end.status is EndStatus.DONE, life.end.error_detail
    return unraw(life.of(EpisodeConverged)[0].classification)


def waiting_tools():
    """Return a script and a toolset of three tools, which wait for different things at once."""

    async def asks(ctx) -> str:
        return (await ctx.approval({"q": 1})).by

    async def sleeps(ctx) -> str:
        await ctx.sleep(0.01)
        return "slept"

    async def waits(ctx) -> str:
        return await ctx.wait("letter:9")

    calls = [("asks", {}), ("sleeps", {}), ("waits", {})]
    return Script(calls, lambda messages: ",".join(told(messages))), toolset(asks, sleeps, waits)

"""An app that nodes of these tests run: an agent whose model takes its time, until money ends."""

from __future__ import annotations

import asyncio
from typing import Final

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from vigil import (
    Actor,
    App,
    Budget,
    ConvergeResult,
    FunctionContext,
    Price,
    Spending,
    Trigger,
    event,
)

MODEL: Final = "slow"
DAY_USD: Final = "0.60"
"""Of the actor; each request costs 0.02, and could cost 0.10."""

THINKS_S: Final = 0.05


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer after a while, with ten thousand tokens of input and as many of output."""
    await asyncio.sleep(THINKS_S)
    usage = RequestUsage(input_tokens=10_000, output_tokens=10_000)
    return ModelResponse(parts=[TextPart("all is well")], usage=usage, model_name=MODEL)


thinker = Agent(
    FunctionModel(answer, model_name=MODEL),
    name="thinker",
    model_settings={"max_tokens": 100_000},
)
worker = Actor("worker", spending=[Spending(usd=DAY_USD)], max_concurrent_episodes=4)


@worker.expectation(on=event("question.asked"), budget=Budget(turns=10, tokens=0, usd="0.25"))
async def answered(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Ask twice."""
    for part in ("first", "second"):
        await ctx.agent(thinker, f"{part} of {trigger.payload['n']}?")
    return ConvergeResult(summary="asked twice")


PRICE: Final = Price(input_per_million=1, output_per_million=1)

app = App(
    actors=[worker],
    spending=[Spending(usd="1000", per="month")],
    prices={MODEL: PRICE, f"function:{MODEL}": PRICE},
)

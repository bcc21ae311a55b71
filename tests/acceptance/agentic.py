"""An app whose agent investigates: eight calls, three of them at once; one runs an agent, one asks.

Its model is a server of the test's, and its tools write what they do into a file.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from vigil import (
    Actor,
    App,
    Budget,
    CallContext,
    ConvergeResult,
    FunctionContext,
    Price,
    Spending,
    Trigger,
    event,
    tool,
)
from vigil.agents import toolset

MODEL = "test-model"
PRICE = Price(input_per_million=100, output_per_million=1_000)
PER_DAY_USD = "1"

BUDGET = Budget(turns=100, tokens=0, wall_s=0)


def model() -> OpenAIChatModel:
    url = f"{os.environ.get('MODELS_URL', 'http://127.0.0.1:1')}/v1"
    return OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=url, api_key="test"))


def note(ctx: CallContext, what: str) -> str:
    """Write down what is done, with the key that tells a repeated call."""
    with Path(os.environ["LEDGER"]).open("a", encoding="utf-8") as file:
        file.write(f"{ctx.idempotency_key} {what}\n")
    return what


@tool(side_effect=True, idempotent=True)
async def measure(ctx: CallContext, what: str) -> str:
    """Measure something."""
    return note(ctx, f"{what} is high")


@tool(side_effect=True, idempotent=True)
async def restart(ctx: CallContext, service: str) -> str:
    """Restart a service."""
    return note(ctx, f"{service} is up")


expert = Agent(model(), name="expert", toolsets=[toolset(measure)])


async def ask_expert(ctx: FunctionContext, question: str) -> str:
    """Ask an expert."""
    return (await ctx.agent(expert, question)).output


tools = toolset(measure, ask_expert, restart, requires_approval=[restart])
triage = Agent(model(), name="triage", toolsets=[tools])

frugal = Agent(
    model(), name="frugal", toolsets=[toolset(measure)], model_settings={"max_tokens": 20}
)

monitor = Actor("monitor", tools=[measure, restart])


@monitor.expectation(on=event("alarm"), budget=BUDGET)
async def healthy(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Find out what is broken, and mend it."""
    result = await ctx.agent(triage, "what broke?")
    return ConvergeResult(summary=result.output)


saver = Actor("saver", tools=[measure], spending=[Spending(usd=PER_DAY_USD, per="day")])


@saver.expectation(on=event("question"), budget=BUDGET)
async def answered(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Answer a question, for little money."""
    result = await ctx.agent(frugal, trigger.payload["text"])
    return ConvergeResult(summary=result.output)


app = App(actors=[monitor, saver], prices={f"openai:{MODEL}": PRICE})

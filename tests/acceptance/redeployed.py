"""An app whose episodes sleep while it is deployed with another name for a tool."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from vigil import Actor, App, CallContext, FunctionContext, Trigger, event, tool

SLEEP_S: Final = 12.0
"""Long enough for a hundred episodes to begin and for their node to be replaced. A sleep of a day
is one over five seconds as any other: no node has it.
"""

CALLED: Final = "VIGIL_TEST_CALLED"
"""The setting with the name of the tool."""

LEDGER: Final = "VIGIL_TEST_LEDGER"
"""The setting with the file that has a line for each call."""


def _note(ctx: CallContext) -> str:
    with Path(os.environ[LEDGER]).open("a") as file:
        file.write(f"{ctx.idempotency_key}\n")
    return ctx.idempotency_key


@tool(side_effect=True)
async def charge(*, ctx: CallContext) -> str:
    """Do what must not be done twice."""
    return _note(ctx)


@tool(side_effect=True)
async def bill(*, ctx: CallContext) -> str:
    """Do the same under another name."""
    return _note(ctx)


async def with_charge(ctx: FunctionContext, trigger: Trigger) -> None:
    """Charge, sleep, and charge again."""
    await ctx.call(charge)
    await ctx.sleep(SLEEP_S)
    await ctx.call(charge)


async def with_bill(ctx: FunctionContext, trigger: Trigger) -> None:
    """Do the same with the tool of the other name."""
    await ctx.call(bill)
    await ctx.sleep(SLEEP_S)
    await ctx.call(bill)


clerk = Actor("clerk", max_concurrent_episodes=64)
of_now = with_bill if os.environ.get(CALLED) == "bill" else with_charge
clerk.expect("paid", of_now, on=event("order.placed"), subject_key="order")

app = App(actors=[clerk], tools=[bill if of_now is with_bill else charge])

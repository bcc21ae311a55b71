"""An app with episodes that kill the process that runs them, and innocent ones beside them."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

from vigil import Actor, App, Retries, event, tool

CALL_S: Final = 1.0
"""How long the call of an innocent episode takes, which a crash interrupts."""


@tool(retries=Retries(attempts_max=2))
def look(name: str) -> str:
    """Look at something for a while; without side effects, so it is repeated after a crash."""
    time.sleep(CALL_S)
    return name


@tool
def kill_process() -> None:
    """End the process at once, as a bug of a library in C does."""
    os._exit(1)


innocent = Actor("innocent", tools=[look], max_concurrent_episodes=16)
poison = Actor("poison", tools=[kill_process])


@innocent.expectation(on=event("innocent.called"))
async def all_is_well(ctx, trigger):
    """Look three times."""
    for place in range(3):
        await ctx.call(look, name=f"{place}")


@poison.expectation(on=event("poison.called"))
async def nobody_dies(ctx, trigger):
    """Kill the process."""
    await ctx.call(kill_process)


@poison.expectation(on=event("poison.blocks"))
async def nobody_waits(ctx, trigger):
    """Block the event loop for longer than a lease lasts."""
    threading.Event().wait(600)


app = App(actors=[innocent, poison])

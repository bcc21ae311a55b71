"""The actor whose code is not the same on all nodes, as in the middle of a deploy.

One node has the old code for ever, one the new, and one has either in turn. So an episode that was
begun by one of them differs when the other replays it, is parked, and must go on all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.app.function_tool import ToolGroup
from tests.simulation.calling import HELD_S, LEFT_S, Notes
from tests.simulation.life import Life
from tests.simulation.outside import Outside
from tests.simulation.strategies import watch_for
from vigil import Actor, CallContext, ConvergeResult, FunctionContext, Tool, Trigger, tool

ACTOR: Final = "deployed"

OLD: Final = "n1"
NEW: Final = "n2"
"""The nodes that always have the old or the new code."""

SEND: Final = "old.send"
"""The tool that only the old code has."""

LOOKS: Final = 3

PARKS_MAX: Final = 6
"""Most times that an episode is parked: each code tries it once after each step that it records."""


def is_old(life: Life) -> bool:
    """Return whether a process has the old code."""
    if life.name in (OLD, NEW):
        return life.name == OLD
    return life.number % 2 == 0


def tools_in(outside: Outside, *, old: bool) -> Mapping[str, Tool]:
    """Return `SEND`, which the new code lacks."""

    @tool(side_effect=True, idempotent=True)
    async def send(n: int, *, ctx: CallContext) -> dict[str, int]:
        """Pay in the old way."""
        del n
        return {"value": await outside.call("pay", ctx)}

    return {"old": ToolGroup({"send": send})} if old else {}


async def looks_up(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Look, sleep and pay, in the old way."""
    notes = Notes(ctx)
    await notes.call("1", "look.up")
    await ctx.sleep(LEFT_S)
    await notes.call("3", "pay.out")
    return notes.told(str(trigger.payload["key"]))


async def looks_after(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Do the same in the new way: another call is the first."""
    notes = Notes(ctx)
    await notes.call("1", "look.after")
    await ctx.sleep(LEFT_S)
    await notes.call("3", "pay.out")
    return notes.told(str(trigger.payload["key"]))


async def lacks(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Pay with a tool that the new code lacks, beside calls that both can make."""
    notes = Notes(ctx)

    async def looking() -> None:
        for n in range(LOOKS):
            await notes.call(f"1.2.{2 * n + 1}", "look.up")
            await ctx.sleep(HELD_S)

    await ctx.gather(notes.call("1.1.1", SEND, n=1), looking())
    return notes.told(str(trigger.payload["key"]))


EXPECTATIONS: Final = ("renamed", "lacks")
"""Each is fired by an event that is called like it."""


def actors(*, old: bool) -> Iterator[Actor]:
    """Yield the actor, as the old or the new code has it."""
    deployed = Actor(ACTOR, max_concurrent_episodes=2)
    watch_for(deployed, "renamed", looks_up if old else looks_after)  # type: ignore[arg-type]
    watch_for(deployed, "lacks", lacks)  # type: ignore[arg-type]
    yield deployed


ENDS: Final = {
    "renamed": {("done", "")},
    "lacks": {("done", ""), ("failed", "no_tool_for_capability")},
}
"""Expectation → how its episodes may end."""

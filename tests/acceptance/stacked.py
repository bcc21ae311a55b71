"""An app of several stacks: it looks at what is ordered until it is let go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from vigil import (
    Action,
    Actor,
    App,
    CallContext,
    Context,
    ConvergeResult,
    EpisodeView,
    JsonObject,
    Strategy,
    Trigger,
    converge,
    event,
    observe,
    raise_finding,
    tool_call,
)

LOOK_S: Final = 0.05
"""Between two looks whether it may go on, in seconds."""

LOOKS_MAX: Final = 2_000
"""Longer than any test waits."""


class Watch(Strategy[JsonObject]):
    """Observe, wait until the file `until` is there, and say so."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> JsonObject:
        """Take the order from the event."""
        return dict(trigger.payload)

    def next_step(self, state: JsonObject, ctx: Context) -> Action:
        """Two steps, then converge."""
        match ctx.turn:
            case 1:
                return observe({"order": state["order"]})
            case 2:
                return tool_call("gate", "wait", {"until": state["until"]})
            case _:
                return converge()

    def converge(self, state: JsonObject, ctx: Context) -> ConvergeResult:
        """Raise a finding that names the order."""
        order = str(state["order"])
        found = raise_finding(
            f"order:{order}", class_="seen", severity="low", subject=("order", order)
        )
        return ConvergeResult(summary=order, findings=[found])


async def wait(args: JsonObject, ctx: CallContext) -> JsonObject:
    """Return once somebody has made the file, or nobody has for long."""
    until = Path(str(args["until"]))
    for _ in range(LOOKS_MAX):
        if until.exists():  # noqa: ASYNC240 - a look takes no time
            break
        await asyncio.sleep(LOOK_S)
    return {"waited": True}


watcher = Actor("watcher", max_concurrent_episodes=64)
watcher.expect("seen", Watch, on=event("order.placed"), subject_key="order")

clerk = Actor("clerk", stacks=["orders"])
clerk.expect("filed", Watch, on=event("order.placed"), subject_key="order")

packer = Actor("packer", stacks=["shipping"])
packer.expect(
    "packed",
    Watch,
    on=event(stream="ORDERS", subject="orders.event.order.>", start="all"),
    subject_key="order",
)

app = App(actors=[watcher, clerk, packer], tools={"gate": {"wait": wait}})

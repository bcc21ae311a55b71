"""An app of one actor whose episodes take turns: 20 at a time, one at a time of each customer."""

from __future__ import annotations

import asyncio

import msgspec

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
    tool_call,
)

AT_ONCE = 20
"""Most episodes that all nodes together run at a time."""


class Order(msgspec.Struct):
    """What the episode is about."""

    order: str


class Fulfil(Strategy[Order]):
    """Ship the order, converge."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Order:
        """Take the order from the event."""
        return Order(str(trigger.payload["order"]))

    def next_step(self, state: Order, ctx: Context) -> Action:
        """One step, then converge."""
        return tool_call("orders", "ship", {"order": state.order}) if ctx.turn == 1 else converge()

    def converge(self, state: Order, ctx: Context) -> ConvergeResult:
        """Say what it was about."""
        return ConvergeResult(summary=state.order)


async def ship(args: JsonObject, ctx: CallContext) -> JsonObject:
    """Take a moment, so that others could overtake if they might."""
    await asyncio.sleep(0.005)
    return {"shipped": args["order"]}


shipping = Actor("shipping", max_concurrent_episodes=AT_ONCE, max_concurrent_cluster=AT_ONCE)
shipping.expect("fulfil", Fulfil, on=event("order.paid"), concurrency_key="customer")

app = App(actors=[shipping], tools={"orders": {"ship": ship}})

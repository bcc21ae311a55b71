"""An app that nodes of these tests run: looks at an order in three steps, and may find it late."""

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
    clear_finding,
    converge,
    event,
    observe,
    raise_finding,
    tool_call,
)


class Order(msgspec.Struct):
    """What the episode is about."""

    order: str
    late_days: int


class CheckOrder(Strategy[Order]):
    """Observe, look the order up, converge."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Order:
        """Take the order from the event."""
        return Order(str(trigger.payload["order"]), int(trigger.payload.get("late_days", 0)))

    def next_step(self, state: Order, ctx: Context) -> Action:
        """Two steps, then converge."""
        match ctx.turn:
            case 1:
                return observe({"order": state.order})
            case 2:
                return tool_call("orders", "look_up", {"order": state.order})
            case _:
                return converge()

    def converge(self, state: Order, ctx: Context) -> ConvergeResult:
        """Raise a finding for a late order; clear it for one that is not."""
        key = f"order:late:{state.order}"
        if not state.late_days:
            return ConvergeResult(summary=state.order, findings=[clear_finding(key)])
        late = raise_finding(
            key,
            class_="late",
            severity="critical" if state.late_days > 7 else "low",
            subject=("order", state.order),
            evidence={"late_days": state.late_days},
        )
        return ConvergeResult(
            classification={"primary": "late"}, summary=state.order, confidence=0.9, findings=[late]
        )


class Nonsense(CheckOrder):
    """Returns something that is no action."""

    def next_step(self, state: Order, ctx: Context) -> Action:
        """Break the contract."""
        return "nonsense"  # type: ignore[return-value]


class Unencodable(CheckOrder):
    """Keeps a state that JSON cannot say."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Order:
        """Return a state with a complex number in it."""
        return Order(1j, 0)  # type: ignore[arg-type]


class UnknownSeverity(CheckOrder):
    """Raises a finding of a severity that does not exist."""

    def converge(self, state: Order, ctx: Context) -> ConvergeResult:
        """Be too alarmed."""
        return ConvergeResult(findings=[raise_finding("k", class_="c", severity="apocalyptic")])


async def look_up(args: JsonObject, ctx: CallContext) -> JsonObject:
    """Take a moment, as a system of record would."""
    await asyncio.sleep(0.02)
    return {"order": args["order"], "known": True}


orders = Actor("orders", max_concurrent_episodes=64)
orders.expect("on_time", CheckOrder, on=event("order.placed"), subject_key="order")

picky = Actor("picky")
picky.expect("nonsense", Nonsense, on=event("odd.nonsense"))
picky.expect("unencodable", Unencodable, on=event("odd.unencodable"))
picky.expect("severity", UnknownSeverity, on=event("odd.severity"))
picky.expect("filtered", CheckOrder, on=event("odd.filtered", filter={"region": ["eu", "us"]}))

app = App(actors=[orders, picky], tools={"orders": {"look_up": look_up}})

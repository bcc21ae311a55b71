"""An app with something to lose: it changes the outside, once with an agreed key, once without."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tests.chaos import ledger
from vigil import (
    Action,
    Actor,
    App,
    Budget,
    CallContext,
    Context,
    ConvergeResult,
    EpisodeView,
    FindingIntent,
    FunctionContext,
    JsonObject,
    StepTaken,
    Strategy,
    Tool,
    Trigger,
    checkpoint,
    converge,
    event,
    observe,
    raise_finding,
    tool_call,
)

LEDGER: Final = "CHAOS_LEDGER"
"""Variable that holds the ledger's port."""

CRASHES_MAX: Final = 1_000
"""So many that no episode ends for that reason: the faults are not its fault."""

LOOK_UP_S: Final = 0.03
SLEEP_S: Final = 0.2
SLEEP_AWAY_S: Final = 6.0
"""A sleep on the node, and one for which the episode leaves it."""

APPROVER: Final = "ann"

UNLIMITED: Final = Budget(turns=0, tokens=0, wall_s=0)


class Order(msgspec.Struct, frozen=True):
    """What the episode is about, and what the outside has said so far."""

    order: str
    heard: tuple[str, ...] = ()


class Settle(Strategy[Order]):
    """Five steps, the third of which charges the customer, under a key that the ledger honours."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Order:
        """Take the order from the event."""
        return Order(str(trigger.payload["order"]))

    def next_step(self, state: Order, ctx: Context) -> Action:
        """Ask for the step that comes after what was heard."""
        steps = (
            observe({"order": state.order}),
            tool_call("orders", "look_up", {"order": state.order}),
            tool_call("charges", "charge", {"order": state.order}),
            checkpoint("charged"),
            tool_call("orders", "close", {"order": state.order}),
        )
        return steps[len(state.heard)] if len(state.heard) < len(steps) else converge()

    def handle_result(self, state: Order, step: StepTaken, result: Any) -> Order:
        """Remember what came back."""
        return Order(state.order, (*state.heard, str(result)))

    def converge(self, state: Order, ctx: Context) -> ConvergeResult:
        """Leave a finding, which several orders share."""
        shelf = f"shelf:{len(state.order)}:{state.order[-1:]}"
        found = raise_finding(
            shelf, class_="settled", severity="low", evidence={"order": state.order}
        )
        return ConvergeResult(
            classification={"primary": "settled"}, summary=state.order, findings=[found]
        )


class Notify(Settle):
    """Three steps, the second of which sends a letter, which nobody can take back or tell apart."""

    def next_step(self, state: Order, ctx: Context) -> Action:
        """Ask for the step that comes after what was heard."""
        steps = (
            tool_call("orders", "look_up", {"order": state.order}),
            tool_call("letters", "send", {"order": state.order}),
            observe({"sent": state.order}),
        )
        return steps[len(state.heard)] if len(state.heard) < len(steps) else converge()

    def converge(self, state: Order, ctx: Context) -> ConvergeResult:
        """Leave nothing."""
        return ConvergeResult(summary=state.order)


async def journey(ctx: FunctionContext, trigger: Trigger) -> FindingIntent:
    """Charge the customer in three branches: at once, after sleeps, and once people agree."""
    order = str(trigger.payload["order"])

    async def at_once() -> int:
        await ctx.call("orders.look_up", order=order)
        await ctx.sleep(SLEEP_S)
        return await charged(1)

    async def later() -> int:
        await ctx.sleep(SLEEP_AWAY_S)
        return await charged(2)

    async def agreed() -> int:
        answer = await ctx.approval({"ship": order}, approvers=[APPROVER])
        assert answer, "nobody denies it"
        return await charged(3)

    async def charged(part: int) -> int:
        receipt: int = (await ctx.call("charges.charge", order=order, part=part))["receipt"]
        return receipt

    receipts = await ctx.gather(at_once(), later(), agreed())
    await ctx.checkpoint(receipts)
    await ctx.call("orders.close", order=order)
    return raise_finding(f"journey:{order}", class_="settled", evidence={"receipts": receipts})


class Outside(Tool):
    """Something outside that changes with every call, or with every key."""

    side_effect = True

    def __init__(self, *, idempotent: bool) -> None:
        self.idempotent = idempotent

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Call the ledger and return its receipt."""
        asked = ledger.Call(
            key=ctx.idempotency_key,
            honoured=self.idempotent,
            node=os.environ.get("VIGIL_NODE", ""),
            begun_at=datetime.now(UTC),
        )
        return {"receipt": (await ledger.call(int(os.environ[LEDGER]), asked)).receipt}


async def look_up(args: JsonObject, ctx: CallContext) -> JsonObject:
    """Take a moment, as a system of record would."""
    await asyncio.sleep(LOOK_UP_S)
    return {"order": args["order"], "known": True}


orders = Actor("orders", max_concurrent_episodes=32)
for _name, _strategy in (("settle", Settle), ("notify", Notify)):
    orders.expect(
        _name,
        _strategy,
        on=event(f"order.{_name}"),
        subject_key="order",
        budget=UNLIMITED,
        attempts_max=CRASHES_MAX,
    )
journeys = Actor("journeys", max_concurrent_episodes=32)
journeys.expect(
    "journey",
    journey,
    on=event("order.journey"),
    subject_key="order",
    budget=UNLIMITED,
    attempts_max=CRASHES_MAX,
)

app = App(
    actors=[orders, journeys],
    tools={
        "orders": look_up,
        "charges": Outside(idempotent=True),
        "letters": Outside(idempotent=False),
    },
)

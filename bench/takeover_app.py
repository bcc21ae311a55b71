"""The app of the takeover measurement: one long episode of short steps, each a barrier."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from vigil import (
    Action,
    Actor,
    App,
    Budget,
    CallContext,
    Context,
    ConvergeResult,
    EpisodeView,
    JsonObject,
    StepTaken,
    Strategy,
    Trigger,
    converge,
    event,
    tool_call,
)

STEP_S: Final = 0.02
CRASHES_MAX: Final = 1_000


class Count(msgspec.Struct, frozen=True):
    """How far it got, and how far it goes."""

    to: int
    done: int = 0


class Counting(Strategy[Count]):
    """Counts, one slow step at a time."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Count:
        """Take the goal from the event."""
        return Count(int(trigger.payload["to"]))

    def next_step(self, state: Count, ctx: Context) -> Action:
        """Go on until the goal."""
        return (
            tool_call("clock", "tick", {"n": state.done}) if state.done < state.to else converge()
        )

    def handle_result(self, state: Count, step: StepTaken, result: object) -> Count:
        """Count."""
        return Count(state.to, state.done + 1)

    def converge(self, state: Count, ctx: Context) -> ConvergeResult:
        """Say how far it got."""
        return ConvergeResult(summary=str(state.done))


async def tick(args: JsonObject, ctx: CallContext) -> JsonObject:
    """Take a moment."""
    await asyncio.sleep(STEP_S)
    return args


counter = Actor("counter", tools={"clock": tick})
counter.expect(
    "count",
    Counting,
    on=event("takeover.begun"),
    budget=Budget(turns=0, tokens=0, wall_s=0),
    durability="strict",
    attempts_max=CRASHES_MAX,
)
app = App(actors=[counter])

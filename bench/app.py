"""The app under measurement: one actor per case, with strategies that do nothing else."""

from __future__ import annotations

import time
from typing import Final, Literal

import msgspec

from engine.app.actor import StrategyLike
from engine.app.tools import ToolLike
from vigil import (
    Action,
    Actor,
    App,
    Budget,
    CallContext,
    Context,
    ConvergeResult,
    EpisodeView,
    FunctionContext,
    JsonObject,
    StepTaken,
    Strategy,
    Tool,
    Trigger,
    converge,
    event,
    raise_finding,
    tool_call,
)

STEPS: Final = 5
FINDINGS: Final = 10
CONCURRENT: Final = 8_192
"""Episodes of one actor that a node may run at once: more than are in flight, as one that has ended
holds its slot until its claim is given up."""

CONCURRENT_IN_LANE: Final = 512
"""And in the whole cluster, of an actor that has such a limit."""


class Key(msgspec.Struct):
    """What the load waits for."""

    key: str


class ConvergeOnly(Strategy[Key]):
    """No steps."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Key:
        """Keep the key."""
        return Key(trigger.payload["key"])

    def next_step(self, state: Key, ctx: Context) -> Action:
        """Converge at once."""
        return converge()

    def converge(self, state: Key, ctx: Context) -> ConvergeResult:
        """Say the key, so that the load knows whose end this is."""
        return ConvergeResult(summary=state.key)


class Steps(ConvergeOnly):
    """Trivial tool calls, each recorded."""

    def next_step(self, state: Key, ctx: Context) -> Action:
        """Call the tool until there were enough."""
        return tool_call("echo", "say", {"turn": ctx.turn}) if ctx.turn <= STEPS else converge()


class Step(ConvergeOnly):
    """One of them."""

    def next_step(self, state: Key, ctx: Context) -> Action:
        """Call the tool once."""
        return tool_call("echo", "say", {"turn": ctx.turn}) if ctx.turn == 1 else converge()


class StepsSideEffect(Steps):
    """The same, but one of the calls changes the outside: it is announced before it happens."""

    def next_step(self, state: Key, ctx: Context) -> Action:
        """Call the other tool in the middle."""
        if ctx.turn == STEPS // 2 + 1:
            return tool_call("mail", "send", {"turn": ctx.turn})
        return super().next_step(state, ctx)


class Findings(ConvergeOnly):
    """No steps, and many findings, each on a key that no other episode raises."""

    def converge(self, state: Key, ctx: Context) -> ConvergeResult:
        """Raise them."""
        raised = [
            raise_finding(f"{state.key}:{number}", class_="measured", summary="as it should be")
            for number in range(FINDINGS)
        ]
        return ConvergeResult(summary=state.key, findings=raised)


class Noticed(ConvergeOnly):
    """One step that looks at the clock: its end says when that was."""

    def next_step(self, state: Key, ctx: Context) -> Action:
        """Look at the clock."""
        return tool_call("clock", "look", {}) if ctx.turn == 1 else converge()

    def handle_result(self, state: Key, step: StepTaken, result: object) -> Key:
        """Keep the moment behind the key."""
        return Key(f"{state.key} {result}")


class Mail(Tool):
    """Something that counts as an effect."""

    side_effect = True

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Return what came."""
        return args


async def five_steps(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Take the steps of `Steps`, as a function."""
    for turn in range(1, STEPS + 1):
        await ctx.call("echo.say", turn=turn)
    return ConvergeResult(summary=trigger.payload["key"])


async def echo(args: JsonObject, ctx: CallContext) -> JsonObject:
    """Return what came."""
    return args


async def clock(args: JsonObject, ctx: CallContext) -> int:
    """Return now, on the clock that all processes of a machine share."""
    return time.monotonic_ns()


def _actor(
    name: str,
    strategy: StrategyLike,
    *,
    durability: Literal["pipelined", "strict"] = "pipelined",
    cluster: int | None = None,
    only: JsonObject | None = None,
    is_alone: bool = False,
    **tools: ToolLike,
) -> Actor:
    actor = Actor(
        name, max_concurrent_episodes=CONCURRENT, max_concurrent_cluster=cluster, tools=tools
    )
    actor.expect(
        "measure",
        strategy,
        on=event(f"bench.{name}", filter=only),
        budget=Budget(),
        durability=durability,
        # Each key is a subject of its own: none waits for another one, but each holds its own.
        subject_key="key" if is_alone else "",
        overlap="skip" if is_alone else "allow",
    )
    return actor


app = App(
    actors=[
        _actor("converge_only", ConvergeOnly),
        _actor("refused", ConvergeOnly, only={"key": ""}),
        _actor("step_strict", Step, durability="strict", echo=echo),
        _actor("steps_strict", Steps, durability="strict", echo=echo),
        _actor("steps_pipelined", Steps, echo=echo),
        _actor("steps_function", five_steps, durability="strict", echo=echo),
        _actor("steps_alone", Steps, durability="strict", is_alone=True, echo=echo),
        _actor("steps_side_effect", StepsSideEffect, echo=echo, mail=Mail()),
        _actor("findings", Findings),
        _actor("trigger", Noticed, clock=clock),
        _actor("converge_in_lane", ConvergeOnly, cluster=CONCURRENT_IN_LANE),
        _actor("steps_in_lane", Steps, cluster=CONCURRENT_IN_LANE, echo=echo),
    ]
)

no_actors = App()

"""The app under measurement: one actor per case, with strategies that do nothing else."""

from __future__ import annotations

import msgspec

from engine import (
    Action,
    Actor,
    App,
    Budget,
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

STEPS = 5


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


async def echo(args: JsonObject, ctx: CallContext) -> JsonObject:
    """Return what came."""
    return args


def _actor(name: str, strategy: type[ConvergeOnly], *, durability: str) -> Actor:
    actor = Actor(name, max_concurrent_episodes=256, tools={"echo": echo})
    actor.expect(
        "measure", strategy, on=event(f"bench.{name}"), budget=Budget(), durability=durability
    )
    return actor


app = App(
    actors=[
        _actor("converge_only", ConvergeOnly, durability="pipelined"),
        _actor("steps_strict", Steps, durability="strict"),
        _actor("steps_pipelined", Steps, durability="pipelined"),
    ]
)

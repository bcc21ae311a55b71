"""Apps of stacks that have grown: what is measured, and what they have much of."""

from __future__ import annotations

from typing import Final

from bench.app import CONCURRENT, ConvergeOnly, Steps, echo
from vigil import Actor, App, Budget, ConvergeResult, FunctionContext, Trigger, event

ACTORS: Final = 100
A_DAY_S: Final = 86_400


async def asks(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Wait for an approval that nobody gives."""
    await ctx.approval({"key": trigger.payload["key"]}, shared=False)
    return ConvergeResult(summary=trigger.payload["key"])


def _measured() -> list[Actor]:
    converge_only = Actor("converge_only", max_concurrent_episodes=CONCURRENT)
    converge_only.expect("measure", ConvergeOnly, on=event("bench.converge_only"), budget=Budget())
    steps_strict = Actor("steps_strict", max_concurrent_episodes=CONCURRENT, tools={"echo": echo})
    steps_strict.expect(
        "measure", Steps, on=event("bench.steps_strict"), budget=Budget(), durability="strict"
    )
    return [converge_only, steps_strict]


def _filled() -> list[Actor]:
    cooled = Actor("cooled", max_concurrent_episodes=CONCURRENT)
    cooled.expect(
        "measure",
        ConvergeOnly,
        on=event("bench.cooled"),
        subject_key="key",
        cooldown_s=A_DAY_S,
        budget=Budget(),
    )
    asking = Actor("asking", max_concurrent_episodes=CONCURRENT)
    asking.expect("measure", asks, on=event("bench.asking"), budget=Budget())
    return [cooled, asking]


def _idle(number: int) -> Actor:
    actor = Actor(f"idle_{number}")
    actor.expect("rest", ConvergeOnly, on=event(f"bench.never.{number}"), budget=Budget())
    return actor


parts: Final = {"rests": ConvergeOnly}
"""What definitions name."""

app = App(actors=[*_measured(), *_filled()], strategies=parts)

many_actors = App(actors=[*_measured(), *_filled(), *map(_idle, range(ACTORS))], strategies=parts)

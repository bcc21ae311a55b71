"""How the simulated actors think: every way of going on and of ending.

Tools answer with chance numbers, and each strategy adds up what it gets. So a replay that
folds anything but the recorded results, or folds one twice, ends in another sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from vigil import (
    Action,
    Actor,
    Budget,
    Context,
    ConvergeResult,
    EpisodeView,
    Failure,
    FindingIntent,
    JsonObject,
    StepTaken,
    Strategy,
    Trigger,
    clear_finding,
    converge,
    done,
    event,
    raise_finding,
    retry,
    synthesize,
    tool_call,
    update_finding,
)

TRIES_MAX: Final = 4
"""Calls of the flaky tool before its strategy lets it be."""

NO_LIMIT: Final = Budget(turns=40, tokens=0, wall_s=0)


class Sum(msgspec.Struct):
    """A strategy's state."""

    kind: str
    key: str
    total: int = 0
    tries: int = 0
    done: list[str] = []


Planned: TypeAlias = Action | Callable[[Sum], Action]
"""A step of a plan, or what makes one of the state."""


class Plan(Strategy[Sum]):
    """Takes the steps of a list, adds up what they bring back, and converges."""

    def __init__(self, *steps: Planned) -> None:
        self._steps = steps

    def init(self, episode: EpisodeView, trigger: Trigger) -> Sum:
        return Sum(kind=episode.expectation_id, key=str(trigger.payload.get("key", "none")))

    def next_step(self, state: Sum, ctx: Context) -> Action:
        taken = len(state.done)
        if taken == len(self._steps):
            return converge()
        step = self._steps[taken]
        return step(state) if callable(step) else step

    def handle_result(self, state: Sum, step: StepTaken, result: object) -> Sum:
        value = result.get("value", 0) if isinstance(result, dict) else 0
        return Sum(
            kind=state.kind,
            key=state.key,
            total=state.total + value,
            tries=state.tries,
            done=[*state.done, step.kind],
        )

    def converge(self, state: Sum, ctx: Context) -> ConvergeResult:
        return ConvergeResult(
            classification={"total": state.total},
            summary=state.kind,
            findings=[raise_finding(f"sum:{state.key}", class_="sum", evidence=state.total)],
        )


class Settle(Plan):
    """Converges at once, on what the event says about findings that others fight over."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> JsonObject:  # type: ignore[override]
        return {"intents": trigger.payload["intents"]}

    def converge(self, state: JsonObject, ctx: Context) -> ConvergeResult:  # type: ignore[override]
        return ConvergeResult(findings=[_intent(verb, key) for verb, key in state["intents"]])

    def next_step(self, state: JsonObject, ctx: Context) -> Action:  # type: ignore[override]
        return converge()


def _intent(verb: str, key: str) -> FindingIntent:
    match verb:
        case "raise":
            return raise_finding(key, class_="sim", severity="low")
        case "update":
            return update_finding(key, confidence=0.5)
        case _:
            return clear_finding(key, reason="sim")


class Flaky(Plan):
    """Tries a tool that fails again and again, and lets it be after a few times."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        if state.done or state.tries >= TRIES_MAX:
            return converge()
        return tool_call("flaky", "poke", {"try": state.tries})

    def handle_result(self, state: Sum, step: StepTaken, result: object) -> Sum:
        if isinstance(result, Failure):
            tried = msgspec.structs.replace(state, tries=state.tries + 1)
            return retry(tried)  # type: ignore[return-value]
        return super().handle_result(state, step, result)


class Broken(Plan):
    """Raises after its first step."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        if state.done:
            raise RuntimeError("broken on purpose")
        return super().next_step(state, ctx)


class Quiet(Plan):
    """Has nothing to say."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        return done()


class Glance(Plan):
    """Takes its steps for every other event, and has nothing to say."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> Sum:
        state = super().init(episode, trigger)
        is_quick = trigger.payload["number"] % 2
        return replace(state, done=["nothing"] * len(self._steps)) if is_quick else state

    def next_step(self, state: Sum, ctx: Context) -> Action:
        action = super().next_step(state, ctx)
        return done() if len(state.done) == len(self._steps) else action


class Circling(Plan):
    """Does the same for ever, and learns nothing from it."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        return tool_call("dull", "again", {})


class Endless(Plan):
    """Never has enough, and never does the same twice."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        return synthesize({"turn": ctx.turn})


class Slow(Plan):
    """Waits for a tool that takes longer than its budget."""

    def next_step(self, state: Sum, ctx: Context) -> Action:
        return tool_call("slow", "wait", {"turn": ctx.turn})


def watch_for(actor: Actor, name: str, strategy: Plan, **settings: Any) -> None:
    """Have `actor` expect `name`, by default on the event that is called like it."""
    wanted = {"on": event(f"sim.{name}"), "budget": NO_LIMIT, "attempts_max": 100, **settings}
    actor.expect(name, strategy, **wanted)

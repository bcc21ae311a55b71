"""The workflows of their theme, and the actors whose expectations they run.

Steps add up numbers that nobody could have guessed, and hand them on, so an instance that takes the
result of another attempt, or of none, ends in another sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from msgspec.structs import replace

from engine.app.strategy import Handled
from streams.model.triggers import Trigger
from tests.simulation.asking import BOTH
from tests.simulation.strategies import NO_LIMIT, Plan, Sum, watch_for
from vigil import Action, Actor, Failure, StepTaken, Workflow, abort, event, retrying, tool_call
from vigil import workflow as as_a_step

STEPPER: Final = "stepper"
CLUSTER_MAX: Final[Mapping[str, int]] = {"steps_turn": 1}
"""Actor that takes turns → how many of its episodes run at a time in the whole cluster."""

WIDTH: Final = 3
REUSE_S: Final = 90.0
STEP_TIMEOUT_S: Final = 25.0
WITHIN: Final = replace(NO_LIMIT, usd=Decimal("0.40"))
TWO_AT_ONCE: Final = Decimal("1.00")
APPROVAL_EXPIRES_S: Final = 12.0

_LOOK: Final = tool_call("look", "up", {})
_PAY: Final = tool_call("pay", "out", {"n": 1})


class Shaky(Plan):
    """Fails every other time, by a number that it is given."""

    def handle_result(self, state: Sum, step: StepTaken, result: object) -> Handled[Sum]:  # type: ignore[override]
        if isinstance(result, Failure):
            return abort("shaken", result.detail)
        return super().handle_result(state, step, result)


class Slowly(Plan):
    """Takes its time."""

    def __init__(self, *before: Action) -> None:
        super().__init__(*before, tool_call("slow", "wait", {}))


def steppers() -> Iterator[Actor]:
    """Yield the actor of the steps, and one whose episodes take turns."""
    stepper = Actor(STEPPER, max_concurrent_episodes=3)
    plans = {
        "grow": Plan(_LOOK),
        "shake": Shaky(tool_call("flaky", "poke", {"try": 1})),
        "spend": Plan(_LOOK, _PAY),
        "take_back": Plan(_PAY),
        "doze": Slowly(_LOOK),
    }
    for name, plan in plans.items():
        watch_for(stepper, name, plan, on=as_a_step(), budget=WITHIN)
    yield stepper
    turn = Actor("steps_turn", max_concurrent_cluster=CLUSTER_MAX["steps_turn"])
    watch_for(turn, "in_turn", Plan(_LOOK), on=as_a_step())
    yield turn


def workflows() -> Sequence[Workflow]:
    """Return the workflows of the theme."""
    return [_diamond(), _fan(), _saga(), _outer()]


def _about(trigger: Trigger, prior: Mapping[str, Any]) -> dict[str, Any]:
    return {"key": trigger.payload.get("key", "none"), "prior": dict(prior)}


def _items(trigger: Trigger, prior: Mapping[str, Any]) -> list[Any]:
    return [{"key": trigger.payload.get("key", "none"), "item": n} for n in range(WIDTH)]


def _diamond() -> Workflow:
    """One step, two beside one another, one behind both; a subject has one instance at a time."""
    made = Workflow("diamond", on=event("sim.flow"), subject_key="key", overlap="skip")
    made.step("top", STEPPER, "grow", input=_about)
    made.step("left", STEPPER, "doze", depends_on=["top"], input=_about)
    made.step("right", "steps_turn", "in_turn", depends_on=["top"], input=_about)
    made.step("end", STEPPER, "grow", depends_on=["left", "right"], input=_about)
    return made


def _fan() -> Workflow:
    """Items that may fail, and do without; and one whose result is used again.

    There are dollars for two steps at a time. While an instance of its subject goes on, one waits.
    """
    made = Workflow(
        "fan",
        on=event("sim.fan"),
        subject_key="key",
        overlap="buffer_one",
        budget_usd=TWO_AT_ONCE,
    )
    again = retrying(2, backoff_s=2.0, then="continue")
    made.step("each", STEPPER, "shake", for_each=_items, on_failure=again)
    made.step("known", STEPPER, "grow", for_each=_items, reuse_s=REUSE_S)
    made.step("end", STEPPER, "grow", depends_on=["each", "known"], input=_about)
    return made


def _saga() -> Workflow:
    """What was done is undone if a later step fails, takes too long, or is not approved.

    The newest instance of a subject replaces those before it.
    """
    made = Workflow("saga", on=event("sim.saga"), subject_key="key", overlap="cancel_other")
    undo = (STEPPER, "take_back")
    made.step("spend", STEPPER, "spend", input=_about, compensate=undo)
    made.step("more", STEPPER, "spend", for_each=_items, compensate=undo, depends_on=["spend"])
    made.step(
        "doubt",
        STEPPER,
        "shake",
        depends_on=["spend"],
        input=_about,
        on_failure="pause",
        timeout_s=STEP_TIMEOUT_S,
    )
    made.step(
        "last",
        STEPPER,
        "grow",
        depends_on=["more", "doubt"],
        input=_about,
        requires_approval=True,
        approval_expires_s=APPROVAL_EXPIRES_S,
    )
    return made


def _outer() -> Workflow:
    """Runs another workflow as a step, after one that people approve.

    There are dollars for two steps at a time, those of the other workflow among them.
    """
    made = Workflow("outer", on=event("sim.outer"), budget_usd=TWO_AT_ONCE)
    made.step("ask", STEPPER, "grow", input=_about, requires_approval=True, **BOTH)
    made.sub("inner", "saga", depends_on=["ask"], input=_about, on_failure="continue")
    made.step("end", STEPPER, "grow", depends_on=["inner"], input=_about)
    return made


_DONE: Final = ("done", "")
_CANCELED: Final = ("canceled", "canceled")

ENDS: Final = {
    **{name: {_DONE, _CANCELED} for name in ("grow", "spend", "doze", "in_turn")},
    "take_back": {_DONE},
    "shake": {_DONE, _CANCELED, ("failed", "shaken")},
}
"""Expectation → how its episodes may end."""

ENDS_OF_INSTANCES: Final[Mapping[str, set[str]]] = {
    "diamond": {"done", "canceled"},
    "fan": {"done", "canceled"},
    "saga": {"done", "failed", "canceled"},
    "outer": {"done", "failed", "canceled"},
}
"""Workflow → how its instances may end."""

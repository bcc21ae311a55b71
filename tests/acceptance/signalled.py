"""An app whose episodes wait three times for one reference: functions, classes and workflows."""

from __future__ import annotations

from typing import Final

from vigil import (
    Action,
    Actor,
    App,
    Context,
    ConvergeResult,
    EpisodeView,
    FunctionContext,
    JsonObject,
    StepTaken,
    Strategy,
    Trigger,
    Workflow,
    converge,
    event,
    wait,
    workflow,
)

WAITS: Final = 3
"""Times that each episode waits."""


async def wait_in_a_row(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Wait again and again, and tell what came."""
    ref = str(trigger.payload["ref"])
    got = [await ctx.wait(ref) for _ in range(WAITS)]
    return ConvergeResult(classification={"ref": ref, "got": got})


class WaitInARow(Strategy[JsonObject]):
    """Does the same as `wait_in_a_row`."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> JsonObject:
        """Have nothing yet."""
        return {"ref": trigger.payload["ref"], "got": []}

    def next_step(self, state: JsonObject, ctx: Context) -> Action:
        """Wait until all are there."""
        return converge() if len(state["got"]) == WAITS else wait(state["ref"])

    def handle_result(self, state: JsonObject, step: StepTaken, result: object) -> JsonObject:
        """Take what came."""
        return {**state, "got": [*state["got"], result]}

    def converge(self, state: JsonObject, ctx: Context) -> ConvergeResult:
        """Tell what came."""
        return ConvergeResult(classification=state)


def _ref(trigger: Trigger, prior: JsonObject) -> JsonObject:
    return {"ref": trigger.payload["ref"]}


clerk = Actor("clerk", max_concurrent_episodes=50)
clerk.expect("function", wait_in_a_row, on=event("function.began"))
clerk.expect("class", WaitInARow, on=event("class.began"))
clerk.expect("step", wait_in_a_row, on=workflow())

steps = Workflow("steps", on=event("steps.began"), subject_key="ref")
steps.step("only", "clerk", "step", input=_ref)

app = App(actors=[clerk], workflows=[steps])

"""An app of one workflow of 50 steps: one, 48 that depend on it, and one that depends on those."""

from __future__ import annotations

from vigil import (
    Action,
    Actor,
    App,
    Context,
    ConvergeResult,
    EpisodeView,
    JsonObject,
    Strategy,
    Trigger,
    Workflow,
    converge,
    event,
    observe,
    workflow,
)

WIDTH = 48
"""Steps in the middle."""


class Count(Strategy[JsonObject]):
    """Take one step, and bring a number."""

    def init(self, episode: EpisodeView, trigger: Trigger) -> JsonObject:
        """Take the numbers of the steps before."""
        return dict(trigger.payload)

    def next_step(self, state: JsonObject, ctx: Context) -> Action:
        """One step, then converge."""
        return observe(state) if ctx.turn == 1 else converge()

    def converge(self, state: JsonObject, ctx: Context) -> ConvergeResult:
        """Add them up, and one."""
        return ConvergeResult(result=1 + sum(state["numbers"]))


def _numbers(trigger: Trigger, prior: JsonObject) -> JsonObject:
    """Return the results of the steps that come right before, which depend on no other."""
    middle = [prior[name] for name in prior if name != "first"]
    return {"numbers": middle or list(prior.values())}


counter = Actor("counter", max_concurrent_episodes=50)
counter.expect("count", Count, on=workflow())

fifty = Workflow("fifty", on=event("batch.ready"), subject_key="batch")
fifty.step("first", "counter", "count", input=_numbers)
_middle = [f"m{number}" for number in range(WIDTH)]
for _name in _middle:
    fifty.step(_name, "counter", "count", depends_on=["first"], input=_numbers)
fifty.step("last", "counter", "count", depends_on=_middle, input=_numbers)

app = App(actors=[counter], workflows=[fifty])

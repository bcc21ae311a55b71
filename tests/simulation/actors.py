"""What the nodes run.

Every world has the actors here; those of its themes (`wakeful.py`) come on top.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tests.simulation import calling, defining, deploying, flowing, wakeful
from tests.simulation.outside import TOOL_S_MAX, Outside
from tests.simulation.receivers import routes
from tests.simulation.strategies import (
    Broken,
    Circling,
    Endless,
    Flaky,
    Plan,
    Quiet,
    Settle,
    Slow,
    watch_for,
)
from tests.simulation.themes import Programme, Theme
from vigil import (
    Actor,
    App,
    Budget,
    CallContext,
    JsonObject,
    Synthesis,
    Tool,
    ToolFailed,
    checkpoint,
    event,
    observe,
    synthesize,
    tool_call,
)

SECRET: Final = "hunter2"
"""Handed to tools and synthesizers; must be nowhere on the log."""

SHOP_S_MAX: Final = 3.0


_LOOK = tool_call("look", "up", {"what": "sum", "token": SECRET, "_password": SECRET})
FIVE: Final = (
    observe({"value": 1}),
    _LOOK,
    synthesize({"ask": 1}, transient={"password": SECRET}),
    checkpoint("half way"),
    tool_call("look", "deeper", {}),
)
ACTS: Final = (_LOOK, tool_call("pay", "out", {"n": 1}), checkpoint("paid"), _LOOK)
MAILS: Final = (_LOOK, tool_call("mail", "send", {}), tool_call("look", "after", {}))


class SimTool(Tool):
    """A tool that does nothing but leave a mark in the ledger."""

    def __init__(
        self,
        name: str,
        outside: Outside,
        *,
        effect: bool = False,
        idempotent: bool = False,
        takes_s: float = TOOL_S_MAX,
    ) -> None:
        self._name, self._outside, self._takes_s = name, outside, takes_s
        self.side_effect, self.idempotent = effect, idempotent

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        value = await self._outside.call(self._name, ctx, takes_s=self._takes_s)
        if self._name == "flaky" and value % 2:
            raise ToolFailed("tool_unavailable", "odd")
        return {"value": 1 if self._name == "dull" else value, "secret": SECRET}

    def redact(self, args: JsonObject) -> object:
        return {**args, "token": "***"}

    def redact_result(self, result: object) -> object:
        return "***"


class Shop(SimTool):
    """A tool that fails for a while."""

    def __init__(self, name: str, outside: Outside, programme: Programme) -> None:
        super().__init__(name, outside, takes_s=SHOP_S_MAX)
        self._programme = programme

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        result = await super().call(action, args, ctx)
        if self._programme.is_shut(asyncio.get_running_loop().time()):
            raise ToolFailed("tool_unavailable", "shut")
        return result


def simulated_app(outside: Outside, programme: Programme) -> App:
    """Return the app as one process runs it."""

    async def ask(prompt: object, transient: JsonObject, ctx: CallContext) -> Synthesis:
        value = await outside.call("model", ctx)
        return Synthesis(content={"value": value}, input_tokens=30, output_tokens=12, model="sim")

    watch = Actor("watch", max_concurrent_episodes=3)
    watch_for(watch, "settle", Settle())
    watch_for(watch, "five", Plan(*FIVE))
    watch_for(watch, "strict", Plan(*FIVE), durability="strict")
    watch_for(watch, "act", Plan(*ACTS))
    watch_for(watch, "mail", Plan(*MAILS))
    watch_for(watch, "anew", Plan(*ACTS), recovery="restart")
    watch_for(watch, "orphan", Plan(*FIVE), recovery="fail")
    watch_for(watch, "frail", Plan(*FIVE), attempts_max=1)

    duty = Actor("duty", max_concurrent_episodes=2)
    watch_for(duty, "flaky", Flaky())
    watch_for(duty, "broken", Broken(*FIVE))
    watch_for(duty, "quiet", Quiet(), on=event("sim.settle"))
    watch_for(duty, "circling", Circling())
    watch_for(duty, "turns", Endless(), budget=Budget(turns=3))
    watch_for(duty, "tokens", Endless(), budget=Budget(tokens=80))
    watch_for(duty, "wall", Slow(), budget=Budget(turns=0, tokens=0, wall_s=3))
    raised = event("finding.raised", filter={"finding_key": ["k1", "k2"]})
    watch_for(duty, "echo", Plan(), on=raised)

    tools = {
        "look": SimTool("look", outside),
        "dull": SimTool("dull", outside),
        "flaky": SimTool("flaky", outside),
        "slow": SimTool("slow", outside, takes_s=8.0),
        "pay": SimTool("pay", outside, effect=True, idempotent=True),
        "mail": SimTool("mail", outside, effect=True),
        "shop": Shop("shop", outside, programme),
    }
    themed = [actor for theme in programme.in_order for actor in wakeful.ACTORS[theme]()]
    if Theme.FUNCTIONS in programme.themes:
        old = deploying.is_old(outside.wire.life)
        tools |= {**calling.tools_in(outside), **deploying.tools_in(outside, old=old)}
        themed += deploying.actors(old=old)
    has_flows = Theme.WORKFLOWS in programme.themes
    return App(
        actors=[watch, duty, *themed],
        tools=tools,
        synthesizer=ask,
        outputs=routes(outside),
        workflows=flowing.workflows() if has_flows else (),
        templates={defining.TEMPLATE: defining.stamped},
    )


DONE: Final = ("done", "")
ENDS: Final = {
    "settle": {DONE},
    "five": {DONE},
    "strict": {DONE},
    "act": {DONE},
    "mail": {DONE, ("failed", "outcome_unknown")},
    "anew": {DONE},
    "orphan": {DONE, ("failed", "orphaned")},
    "frail": {DONE, ("failed", "attempts_exhausted")},
    "flaky": {DONE},
    "broken": {("failed", "crash")},
    "quiet": {DONE},
    "circling": {("failed", "loop_detected")},
    "turns": {("failed", "budget_exceeded")},
    "tokens": {("failed", "budget_exceeded")},
    "wall": {("failed", "budget_exceeded")},
    "echo": {DONE},
    defining.EXPECTATION: {DONE},
    **wakeful.ENDS,
}
"""Expectation → how its episodes may end, whatever goes wrong around them."""

"""What the nodes run: every way of going on and of ending, and a ledger of what left them.

Tools answer with chance numbers, and each strategy adds up what it gets. So a replay that
folds anything but the recorded results, or folds one twice, ends in another sum.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

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
    Failure,
    FindingIntent,
    JsonObject,
    StepTaken,
    Strategy,
    Synthesis,
    Tool,
    ToolFailed,
    Trigger,
    checkpoint,
    clear_finding,
    converge,
    done,
    event,
    observe,
    raise_finding,
    retry,
    synthesize,
    tool_call,
    update_finding,
)
from tests.simulation.faults import Fault
from tests.simulation.wire import Wire

SECRET: Final = "hunter2"
"""Handed to tools and synthesizers; must be nowhere on the log."""

TRIES_MAX: Final = 4
"""Calls of the flaky tool before its strategy lets it be."""

TOOL_S_MAX: Final = 1.0


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call that left a process."""

    episode_id: str
    step_no: int
    tool: str
    key: str
    node: str
    life: int
    head: int
    """The journal's newest sequence when it happened."""


@dataclass
class Ledger:
    """Every call that left any process, in order."""

    calls: list[Call] = field(default_factory=list)


class Sum(msgspec.Struct):
    """A strategy's state."""

    kind: str
    key: str
    total: int = 0
    tries: int = 0
    done: list[str] = []


class Plan(Strategy[Sum]):
    """Takes the steps of a list, adds up what they bring back, and converges."""

    def __init__(self, *steps: Action) -> None:
        self._steps = steps

    def init(self, episode: EpisodeView, trigger: Trigger) -> Sum:
        return Sum(kind=episode.expectation_id, key=str(trigger.payload.get("key", "none")))

    def next_step(self, state: Sum, ctx: Context) -> Action:
        taken = len(state.done)
        return self._steps[taken] if taken < len(self._steps) else converge()

    def handle_result(self, state: Sum, step: StepTaken, result: object) -> Sum:
        value = result["value"] if isinstance(result, dict) else 0
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

NO_LIMIT: Final = Budget(turns=40, tokens=0, wall_s=0)


@dataclass
class Outside:
    """What one process can reach beyond the log."""

    wire: Wire
    ledger: Ledger

    async def call(self, tool: str, ctx: CallContext, *, takes_s: float = TOOL_S_MAX) -> int:
        """Let something happen outside, and return a number that nobody could have guessed."""
        life, servers = self.wire.life, self.wire.servers
        await life.passage()
        await self.wire.strike(tool, Fault.FROZEN, Fault.DEAD)
        self.ledger.calls.append(
            Call(
                episode_id=ctx.episode_id,
                step_no=ctx.step_no,
                tool=tool,
                key=ctx.idempotency_key,
                node=life.name,
                life=life.number,
                head=servers.newest(),
            )
        )
        servers.note(life.name, f"call {tool}", f"{ctx.episode_id} step {ctx.step_no}")
        await self.wire.strike(tool, Fault.DEAD_AFTER)
        await asyncio.sleep(servers.weather.between(0, takes_s))
        await self.wire.strike(tool, Fault.FROZEN_AFTER)
        return servers.weather.rng.randrange(1, 1_000_000)


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


def simulated_app(outside: Outside) -> App:
    """Return the app as one process runs it."""

    async def ask(prompt: object, transient: JsonObject, ctx: CallContext) -> Synthesis:
        value = await outside.call("model", ctx)
        return Synthesis(content={"value": value}, input_tokens=30, output_tokens=12, model="sim")

    def watch_for(actor: Actor, name: str, strategy: Plan, **settings: Any) -> None:
        wanted = {"on": event(f"sim.{name}"), "budget": NO_LIMIT, "attempts_max": 100, **settings}
        actor.expect(name, strategy, **wanted)

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
    }
    return App(actors=[watch, duty], tools=tools, synthesizer=ask)


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
}
"""Expectation → how its episodes may end, whatever goes wrong around them."""

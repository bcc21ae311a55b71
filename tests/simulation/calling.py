"""The actors that think in functions: branches, sleeps, people, retries, checkpoints, children.

Each function notes at which path it heard what. So a replay that feeds a branch with what is
another's, or with anything but the record, ends with other notes than the journal has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from engine.app.function_tool import ToolGroup
from tests.simulation.outside import Outside
from tests.simulation.strategies import watch_for
from vigil import (
    Actor,
    CallContext,
    CallFailed,
    ConvergeResult,
    EpisodeResult,
    FunctionContext,
    Retries,
    Tool,
    ToolFailed,
    Trigger,
    clear_finding,
    manual,
    raise_finding,
    tool,
    update_finding,
)

ACTOR: Final = "caller"
HELPER: Final = "helper"
"""Who runs the children of its episodes."""

ACTORS: Final = {ACTOR, HELPER}

POKE: Final = "poke.call"
"""The tool that fails as often as not."""

HELD_S: Final = 2.0
LEFT_S: Final = 8.0
"""A sleep on the node, and one that leaves it."""

PAGES: Final = 4
PARTS: Final = 3
"""Children at a time; one more follows."""

Heard = dict[str, int]
"""Path → the number that the call there returned."""


def tools_in(outside: Outside) -> dict[str, Tool]:
    """Return the tools that only functions call."""

    @tool(side_effect=True, idempotent=True, retries=Retries(attempts_max=4, first_s=2.0))
    async def poke(n: int, *, ctx: CallContext) -> dict[str, int]:
        """Fail as often as not, after it has happened."""
        del n
        value = await outside.call("poke", ctx)
        if value % 2:
            raise ToolFailed("tool_unavailable", "odd")
        return {"value": value}

    return {"poke": ToolGroup({"call": poke})}


class Notes:
    """What a function has heard, and where."""

    def __init__(self, ctx: FunctionContext, heard: Heard | None = None) -> None:
        self.ctx, self.heard = ctx, dict(heard or {})

    async def call(self, path: str, name: str, **args: object) -> None:
        """Call a tool, which must be the call at `path`."""
        self.note(path, await self.ctx.call(name, **args))

    def note(self, path: str, result: Any) -> None:
        """Note a result, if it has a number."""
        if isinstance(result, dict):
            self.heard[path] = result["value"]

    def told(self, key: str) -> ConvergeResult:
        """Return the notes."""
        total = sum(self.heard.values())
        finding = raise_finding(f"heard:{key}", class_="sum", evidence=total)
        said = {"total": total, "heard": self.heard}
        return ConvergeResult(classification=said, findings=[finding], result=total)


async def branching(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Pay in three branches: after a sleep, before one, and if people want it."""
    notes, key = Notes(ctx), str(trigger.payload["key"])

    async def late() -> None:
        await notes.call("1.1.1", "look.up", n=1)
        await ctx.sleep(HELD_S)
        await notes.call("1.1.3", "pay.out", n=1)

    async def early() -> None:
        await notes.call("1.2.1", "pay.out", n=2)
        await ctx.sleep(LEFT_S)
        await notes.call("1.2.3", "look.up", n=2)
        await ctx.report(raise_finding(f"seen:{key}", class_="early"))

    async def asked() -> None:
        if await ctx.approval({"pay": key}, expires_s=15, on_expiry="approve"):
            await notes.call("1.3.2", "pay.out", n=3)

    await ctx.gather(late(), early(), asked())
    await notes.call("2", "look.after")
    await ctx.report(update_finding(f"seen:{key}", severity="high"), clear_finding("nothing"))
    return notes.told(key)


async def letters(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Send two letters that cannot be sent again, at the same time."""
    notes = Notes(ctx)
    ctx.now()
    await ctx.gather(
        notes.call("2.1.1", "mail.send", n=1),
        notes.call("2.2.1", "mail.send", n=2),
        ctx.sleep(HELD_S),
    )
    await notes.call("3", "look.after")
    return notes.told(str(trigger.payload["key"]))


async def pages(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Pay for one page after the other, each time from a checkpoint."""
    page, heard = ctx.resumed or (0, {})
    notes = Notes(ctx, heard)
    while page < PAGES:
        await notes.call(f"{3 * page + 1}", "pay.out", page=page)
        await ctx.gather(
            notes.call(f"{3 * page + 2}.1.1", "look.up", page=page), ctx.sleep(HELD_S / 2)
        )
        page += 1
        await ctx.checkpoint((page, notes.heard))
    return notes.told(str(trigger.payload["key"]))


async def persists(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Try in two branches what fails as often as not, while a third waits for word."""
    notes, key = Notes(ctx), str(trigger.payload["key"])

    async def tried(path: str, n: int) -> None:
        try:
            await notes.call(path, POKE, n=n)
        except CallFailed:
            await notes.call(path[:-1] + "2", "look.after")

    async def told() -> None:
        notes.note("1.3.1", await ctx.wait(f"paid:{key}", expires_s=12, on_expiry="continue"))

    await ctx.gather(tried("1.1.1", 1), tried("1.2.1", 2), told())
    return notes.told(key)


async def divides(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Have others do three parts at a time beside a sleep, and one that people may keep from it."""
    notes, key = Notes(ctx), str(trigger.payload["key"])

    async def part(path: str, name: str, n: int) -> None:
        payload = {"key": f"{key}.{n}"}
        notes.note(path, as_noted(await ctx.episode(HELPER, name, payload, on_failure="return")))

    await ctx.gather(*(part(f"1.{n}.1", "part", n) for n in range(1, PARTS + 1)), ctx.sleep(LEFT_S))
    await part("2", "asking", PARTS + 1)
    ends = await ctx.gather(*(ctx.episode(HELPER, "part", {"key": key}) for _ in range(PARTS)))
    for n, end in enumerate(ends, start=1):
        notes.note(f"3.{n}.1", as_noted(end))
    return notes.told(key)


def as_noted(end: EpisodeResult) -> dict[str, Any] | None:
    """Return what a child has brought, in the form of a tool's result; None: it brought nothing."""
    return None if end.value is None else {"value": end.value}


async def part(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Pay once, and return what has come of it."""
    notes = Notes(ctx)
    await notes.call("1", "look.up")
    await ctx.sleep(HELD_S)
    await notes.call("3", "pay.out")
    return notes.told(str(trigger.payload["key"]))


async def asking(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Pay if people want it."""
    notes, key = Notes(ctx), str(trigger.payload["key"])
    if await ctx.approval({"part": key}, expires_s=15, on_expiry="approve"):
        await notes.call("2", "pay.out")
    return notes.told(key)


FUNCTIONS: Final = (branching, letters, pages, persists, divides)
"""Each is fired by an event that is called like it."""


def callers() -> Iterator[Actor]:
    """Yield the actors."""
    caller = Actor(ACTOR, max_concurrent_episodes=2)
    for function in FUNCTIONS:
        watch_for(caller, function.__name__, function)  # type: ignore[arg-type]
    yield caller
    helper = Actor(HELPER, max_concurrent_episodes=2)
    watch_for(helper, "part", part, on=manual())  # type: ignore[arg-type]
    watch_for(helper, "asking", asking, on=manual())  # type: ignore[arg-type]
    yield helper


_DONE: Final = ("done", "")
_CANCELED: Final = ("canceled", "canceled")

ENDS: Final = {
    "branching": {_DONE, _CANCELED},
    "letters": {_DONE, ("failed", "outcome_unknown")},
    "pages": {_DONE},
    "persists": {_DONE, _CANCELED},
    "divides": {_DONE},
    "part": {_DONE},
    "asking": {_DONE, _CANCELED},
}
"""Expectation → how its episodes may end."""

PAID: Final = {
    "branching": (2, 3),
    "letters": (0, 0),
    "pages": (PAGES, PAGES),
    "persists": (0, 0),
    "divides": (0, 0),
    "part": (1, 1),
    "asking": (0, 1),
}
"""Expectation → how often one that is done has paid, at least and at most."""

"""Calls that a type checker finds nothing wrong with, each with the type of its result."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict, assert_type

from msgspec import Struct

from vigil import (
    Actor,
    ApprovalAnswer,
    CallContext,
    ConvergeResult,
    EpisodeResult,
    FunctionContext,
    Trigger,
    manual,
    tool,
)


class Page(Struct):
    url: str
    seen_at: datetime


class Measured(TypedDict):
    took_ms: float


@tool
async def fetch(url: str, tries: int = 3) -> Page:
    return Page(url, datetime.fromtimestamp(tries).astimezone())


@tool
def measure(service: str) -> Measured:
    return {"took_ms": float(len(service))}


@tool(side_effect=True, idempotent=True)
async def restart(ctx: CallContext, service: str, *, force: bool = False) -> str:
    return f"{service} {force} {ctx.idempotency_key}"


@tool(side_effect=True)
def page(ctx: CallContext, who: str) -> None:
    del ctx, who


@tool
async def book(room: str, nights: int = 1, *, ctx: CallContext) -> int:
    return len(room) + nights + ctx.step_no


@tool(side_effect=True)
def cancel(*, ctx: CallContext) -> bool:
    return ctx.step_no > 1


@tool(timeout_s=5)
async def anything(value: Any, more: dict[str, Any]) -> list[str]:
    return [f"{value}", *more]


@tool
def show(value: object) -> str:
    return f"{value}"


rooms = Actor("rooms", tools=[fetch, measure, restart, page, book, cancel, anything, show])


@rooms.expectation(on=manual())
async def all_is_typed(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    assert_type(await ctx.call(fetch, url="a"), Page)
    assert_type(await ctx.call(fetch, url="a", tries=1), Page)
    assert_type(await ctx.call(measure, service="web"), Measured)
    assert_type(await ctx.call(restart, service="web", force=True), str)
    assert_type(await ctx.call(page, who="ann"), None)
    assert_type(await ctx.call(anything, value=[1], more={}), list[str])
    assert_type(await ctx.call(show, value=1), str)
    # With `ctx` after `*` the result alone is typed.
    assert_type(await ctx.call(book, room="7", nights=2), int)
    assert_type(await ctx.call(cancel), bool)
    # Nothing is known of a tool that only has a name.
    assert_type(await ctx.call("disk.largest", path="/"), Any)
    found = await ctx.gather(
        ctx.call(fetch, url="a"), ctx.call(measure, service="web"), ctx.sleep(1), one(ctx)
    )
    assert_type(found, tuple[Page, Measured, None, float])
    every = await ctx.gather(*(ctx.call(fetch, url=url) for url in ("a", "b")))
    assert_type(every, tuple[Page, ...])
    many = await ctx.gather(
        *(one(ctx), one(ctx), one(ctx), one(ctx), one(ctx), one(ctx), one(ctx), one(ctx)),
        *(one(ctx), one(ctx), one(ctx), one(ctx), one(ctx), one(ctx), one(ctx), ctx.sleep(1)),
    )
    assert_type(many[14], float)
    assert_type(many[15], None)
    assert_type(await ctx.approval({"restart": "web"}), ApprovalAnswer)
    assert_type(await ctx.wait("payment:42"), Any)
    assert_type(await ctx.observe({"up": True}), Any)
    assert_type(await ctx.synthesize("why?"), Any)
    assert_type(await ctx.sleep(1), None)
    assert_type(await ctx.checkpoint({"page": 2}), None)
    assert_type(ctx.resumed, Any)
    assert_type((await ctx.output("mail", {"to": "ann"})).status, str)
    assert_type(ctx.now(), datetime)
    return ConvergeResult(summary=f"{trigger.payload}")


async def children(ctx: FunctionContext) -> None:
    end = await ctx.episode("host", "measure", {"host": "web-1"}, on_failure="return", key="one")
    assert_type(end, EpisodeResult)
    assert_type(end.value, Any)
    every_end = await ctx.gather(*(ctx.episode("host", "measure") for _ in range(3)))
    assert_type(every_end, tuple[EpisodeResult, ...])


async def one(ctx: FunctionContext) -> float:
    return (await ctx.call(measure, service="web"))["took_ms"]


async def directly(ctx: CallContext) -> None:
    """Tests, and other tools, call the function itself."""
    assert_type(await fetch("a", tries=1), Page)
    assert_type(measure("web"), Measured)
    assert_type(await restart(ctx, "web"), str)
    assert_type(await book("7", ctx=ctx), int)

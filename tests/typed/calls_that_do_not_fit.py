"""Calls with a mistake each: a type checker must report the lines that say so, and no others."""

from __future__ import annotations

from vigil import CallContext, FunctionContext, clear_finding, tool
from vigil.tools import http_request


@tool
async def fetch(url: str, tries: int = 3) -> dict[str, int]:
    return {url: tries}


@tool
def measure(service: str) -> float:
    return float(len(service))


@tool(side_effect=True)
async def restart(ctx: CallContext, service: str) -> str:
    return f"{service} {ctx.idempotency_key}"


@tool
async def book(room: str, *, ctx: CallContext) -> int:
    return len(room) + ctx.step_no


web = http_request(hosts=["example.com"])


async def arguments(ctx: FunctionContext) -> None:
    await ctx.call(fetch, url=1)  # wrong: type
    await ctx.call(fetch, ulr="a")  # wrong: name
    await ctx.call(fetch)  # wrong: missing
    await ctx.call(fetch, url="a", hurry=True)  # wrong: superfluous
    await ctx.call(fetch, "a")  # wrong: position
    await ctx.call(measure, service=None)  # wrong: type
    await ctx.call(measure, "web")  # wrong: position
    await ctx.call(restart, service=1)  # wrong: type
    await ctx.call(restart, service="web", ctx=None)  # wrong: the engine passes it
    await ctx.call(restart)  # wrong: missing
    await ctx.call("disk.largest", "/")  # wrong: position
    await ctx.call(arguments, url="a")  # wrong: no tool
    await ctx.sleep("5")  # wrong: type
    await ctx.approval({"restart": "web"}, approver="ann")  # wrong: name


async def results(ctx: FunctionContext) -> tuple[object, ...]:
    text: str = await ctx.call(fetch, url="a")  # wrong: type of the result
    size: str = await ctx.call(book, room="7")  # wrong: type of the result
    (await ctx.call(measure, service="web")).upper()  # wrong: type of the result
    both: tuple[object, object] = await ctx.gather(ctx.call(fetch, url="a"))  # wrong: one result
    first, _ = await ctx.gather(ctx.call(fetch, url="a"), ctx.sleep(1))
    first.upper()  # wrong: type of the result
    return text, size, both


async def awaiting(ctx: FunctionContext) -> None:
    ctx.call(fetch, url="a")  # wrong: not awaited
    ctx.call(measure, service="web")  # wrong: not awaited
    ctx.call("disk.largest", path="/")  # wrong: not awaited
    ctx.call(web, url="https://example.com")  # wrong: not awaited
    ctx.gather(ctx.sleep(1), ctx.sleep(2))  # wrong: not awaited
    ctx.approval({"restart": "web"})  # wrong: not awaited
    ctx.wait("payment:42")  # wrong: not awaited
    ctx.observe(1)  # wrong: not awaited
    ctx.synthesize("why?")  # wrong: not awaited
    ctx.output("mail", {})  # wrong: not awaited
    ctx.report(clear_finding("a:b:c"))  # wrong: not awaited
    ctx.sleep(1)  # wrong: not awaited
    ctx.episode("host", "measure")  # wrong: not awaited
    await ctx.episode("host", "measure", on_failure="ignore")  # wrong: one of two words
    ctx.checkpoint(1)  # wrong: not awaited
    ctx.findings.get("a:b:c")  # wrong: not awaited
    ctx.call(fetch, url="a").values()  # wrong: not awaited
    fetch("a")  # wrong: not awaited

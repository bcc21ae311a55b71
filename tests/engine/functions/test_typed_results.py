"""A call of a function with `@tool` returns what the function says; how arguments are given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest

from engine.app.function_tool import tool
from engine.app.strategy import ConvergeResult
from engine.app.tools import CallContext
from engine.errors import CallFailed
from streams.model.events import EndStatus, StepRecorded
from tests.engine.functions.stage import app_of, middle, play, resume


class Page(msgspec.Struct):
    url: str
    seen_at: datetime
    sizes: dict[str, tuple[str, int]]


@dataclass
class Bill:
    total: Decimal


@tool
async def fetch(url: str) -> Page:
    return Page(url, datetime(2026, 1, 2, tzinfo=UTC), {"all": ("kB", 7)})


@tool
def bill(total: str) -> Bill | None:
    return Bill(Decimal(total)) if total else None


async def test_a_result_has_the_type_that_the_function_says_live_and_in_every_replay():
    heard = []

    async def check(ctx, trigger):
        page, paid, free = await ctx.gather(
            ctx.call(fetch, url="a"), ctx.call(bill, total="1.50"), ctx.call(bill, total="")
        )
        heard.append((page, paid, free))
        await ctx.observe("all is here")
        return ConvergeResult(summary=f"{page.sizes['all'][0]} {paid.total + 1}")

    life = await play(check, tools=[fetch, bill])
    assert life.episode.converged.summary == "kB 2.50"
    assert heard[0] == (
        Page("a", datetime(2026, 1, 2, tzinfo=UTC), {"all": ("kB", 7)}), Bill(Decimal("1.50")), None
    )  # fmt: skip

    past = middle(life)
    for end in range(len(past)):
        again = await resume(app_of(check, tools=[fetch, bill]), past[:end])
        assert again.end.status is EndStatus.DONE, again.end.error_detail
        assert heard[-1] == heard[0]


async def test_a_result_that_is_not_what_the_function_says_fails_the_call_and_names_the_place():
    @tool
    async def measure() -> dict[str, float]:
        return {"took_ms": "fast"}

    async def check(ctx, trigger):
        with pytest.raises(CallFailed) as failed:
            await ctx.call(measure)
        return ConvergeResult(summary=str(failed.value))

    life = await play(check, tools=[measure])

    assert life.episode.converged.summary == (
        "invalid_return: the result of measure() does not fit its type:"
        " Expected `float`, got `str` - at `$[...]`"
    )


async def test_a_tool_that_is_called_by_its_name_returns_what_json_has():
    async def check(ctx, trigger):
        return ConvergeResult(summary=f"{await ctx.call('bill', total='1.50')}")

    life = await play(check, tools=[bill])

    assert life.episode.converged.summary == "{'total': '1.50'}"


async def test_an_argument_by_its_position_is_refused_with_the_line_to_write():
    async def check(ctx, trigger):
        return await ctx.call(fetch, "secret")

    life = await play(check, tools=[fetch])

    assert life.end.error_class == "invalid_action"
    said = "fetch(…) takes its arguments by name: await ctx.call(fetch, url=…)"
    assert life.end.error_detail.startswith(said)
    assert "secret" not in life.end.error_detail
    assert life.of(StepRecorded) == []


async def test_so_is_one_of_a_tool_that_only_has_a_name():
    async def check(ctx, trigger):
        return await ctx.call("disk.largest", "/")

    life = await play(check)

    said = "disk.largest: arguments are given by name: await ctx.call('disk.largest', name=…)"
    assert life.end.error_detail.startswith(said)


async def test_a_tool_may_take_its_context_first():
    @tool
    async def begin(ctx: CallContext, name: str) -> str:
        return f"{name} of {ctx.expectation_id}"

    async def check(ctx, trigger):
        return ConvergeResult(summary=await ctx.call(begin, name="it"))

    life = await play(check, tools=[begin])

    assert life.episode.converged.summary == "it of thing"

"""What `vigil check` finds in the source of a function, and what it leaves alone."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
import uuid
from datetime import UTC, date, datetime
from random import choice
from time import sleep as nap

import pytest

from engine.app.function_tool import tool
from engine.app.strategy import Function
from engine.functions.source import ENVIRONMENT, IN_ORDER, ONLY_EXCEPTIONS, unreplayable_in


async def clocks(ctx, trigger):
    time.time()
    datetime.now(UTC)
    date.today()  # noqa: DTZ011 - as users write


async def chance(ctx, trigger):
    random.random()
    choice([1])
    uuid.uuid4()


async def sleeps(ctx, trigger):
    await asyncio.sleep(1)
    nap(1)  # noqa: ASYNC251 - as users write


async def tasks(ctx, trigger):
    await asyncio.gather(ctx.call("a"), asyncio.create_task(ctx.call("b")))
    await asyncio.to_thread(print)


async def shares(ctx, trigger):
    asyncio.Semaphore(2)
    asyncio.Event()
    async with asyncio.timeout(1):
        await ctx.call("a")


async def blocking(ctx, trigger):
    subprocess.run(["true"])  # noqa: ASYNC221, S607, PLW1510 - as users write
    open("x")  # noqa: ASYNC230, SIM115 - as users write


async def forgetful(ctx, trigger):
    ctx.call("a")
    found = ctx.call("b")
    await ctx.gather(found, ctx.call("c"))


async def truthful(ctx, trigger):
    if ctx.approval({"x": 1}) or not ctx.wait("paid"):
        await ctx.call("pay")


async def named(ctx, trigger):
    approved = ctx.approval({"x": 1})
    if approved:
        await ctx.call("pay")


async def unused(ctx, trigger):
    seen = ctx.call("look")  # noqa: F841 - as users write
    ctx.findings.get("k")
    ctx.findings.active(class_="c")


async def too_soon(ctx, trigger):
    approved = ctx.approval({"x": 1})
    while not approved:
        await approved


@tool
async def pay(amount: int) -> int:
    return amount


async def direct(ctx, trigger):
    await pay(3)
    await ctx.call(pay, amount=3)


async def of_one_process(ctx, trigger):
    if "HOME" in os.environ:
        hash(trigger.subject)
    os.getpid()


async def unordered(ctx, trigger):
    for name in {"a", trigger.subject}:
        await ctx.call(name)
    left = set(trigger.payload)
    await ctx.gather(*(ctx.call(name) for name in left))
    for name in sorted(left):
        await ctx.call(name)


async def swallows(ctx, trigger):
    try:
        await ctx.call("a")
    except BaseException:  # noqa: BLE001 - as users write
        await ctx.call("b")
    try:
        await ctx.call("c")
    except (KeyError, asyncio.CancelledError):
        await ctx.call("d")
    try:
        await ctx.call("e")
    except (asyncio.CancelledError, ValueError):
        ctx.log("e")
        raise
    try:
        int(trigger.subject)
    except:  # noqa: E722 - as users write
        await ctx.call("f")


def _stamp():
    return _deeper()


def _deeper():
    return time.time()


async def indirect(ctx, trigger):
    return _stamp()


SHARED = "values that branches return: what one waits for in another, a replay waits for in vain"


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (clocks, {"time.time()": "ctx.now()", "datetime.datetime.now()": "ctx.now()",
                  "datetime.date.today()": "ctx.now()"}),
        (chance, {"random.random()": "ctx.random()", "random.Random.choice()": "ctx.random()",
                  "uuid.uuid4()": "ctx.uuid()"}),
        (sleeps, {"asyncio.sleep()": "await ctx.sleep(…)", "time.sleep()": "await ctx.sleep(…)"}),
        (shares, {"asyncio.Semaphore()": SHARED, "asyncio.Event()": SHARED,
                  "asyncio.timeout()": "@tool(timeout_s=…), or Budget(wall_s=…)"}),
        (tasks, {"asyncio.gather()": "await ctx.gather(…)",
                 "asyncio.create_task()": "await ctx.gather(…)",
                 "asyncio.to_thread()":
                     "await ctx.call(…) of a tool: one that is not async runs in a thread"}),
        (blocking, {"subprocess.run()": "await ctx.call(…) of a tool",
                    "io.open()": "await ctx.call(…) of a tool"}),
        (forgetful, {"ctx.call(…) without `await`": "await ctx.call(…)"}),
        (truthful, {"ctx.approval(…) without `await`": "await ctx.approval(…)",
                    "ctx.wait(…) without `await`": "await ctx.wait(…)"}),
        (named, {"ctx.approval(…) without `await`": "await ctx.approval(…)"}),
        (unused, {"ctx.call(…) without `await`": "await ctx.call(…)",
                  "ctx.findings.get(…) without `await`": "await ctx.findings.get(…)",
                  "ctx.findings.active(…) without `await`": "await ctx.findings.active(…)"}),
        (too_soon, {"ctx.approval(…) without `await`": "await ctx.approval(…)"}),
        (of_one_process, {"os.environ": ENVIRONMENT,
                          "builtins.hash()":
                              "hashlib: hash() of a text is another one in each process",
                          "os.getpid()": "await ctx.call(…) of a tool"}),
        (unordered, {"for … in {'a', trigger.subject}": IN_ORDER, "for … in left": IN_ORDER}),
        (swallows, {"except BaseException": ONLY_EXCEPTIONS,
                    "except (KeyError, asyncio.CancelledError)": ONLY_EXCEPTIONS}),
        (direct, {"pay(…) called directly": "await ctx.call(pay, …)"}),
        (indirect, {"time.time()": "ctx.now()"}),
    ],
)  # fmt: skip
def test_what_a_replay_would_do_otherwise_is_found_with_what_to_write(function, found):
    assert {each.found: each.instead for each in unreplayable_in(Function(function))} == found


def test_what_is_found_has_its_line():
    (found,) = unreplayable_in(Function(indirect))
    line = _deeper.__code__.co_firstlineno + 1
    assert found.place == f"test_source.py:{line}"


async def sound(ctx, trigger):
    seen = await ctx.gather(ctx.call("a"), ctx.call("b"))
    time, random = ctx.now(), ctx.random()
    if (answer := await ctx.approval({"x": 1})) and not await ctx.findings.get("k"):
        later = ctx.call("c", by=answer.by)
        seen = [*seen, await later] if answer else await ctx.call("d")
    await ctx.sleep(random)
    return sorted(len(str(each)) for each in [*seen, time, datetime.fromisoformat("2030-01-01")])


def test_what_can_be_replayed_is_left_alone():
    assert unreplayable_in(Function(sound)) == []

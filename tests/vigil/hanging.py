"""An app whose code does not end: a function, a tool and a thread that catch or ignore whatever."""

from __future__ import annotations

import asyncio
import threading

from vigil import Actor, App, Budget, event, tool


async def swallow() -> None:
    while True:
        try:
            await asyncio.sleep(0.01)
        except BaseException:  # noqa: BLE001, S112 - as users do
            continue


@tool
async def swallows() -> None:
    """Catch whatever is to end it."""
    await swallow()


@tool
async def leaves_a_task_behind() -> None:
    """Start a task that catches whatever is to end it."""
    BEHIND.append(asyncio.create_task(swallow()))


@tool
async def leaves_a_thread_behind() -> None:
    """Start a thread that ends never, and that Python waits for."""
    threading.Thread(target=threading.Event().wait, name="uploader").start()


BEHIND: list[asyncio.Task[None]] = []

actor = Actor("hangs", tools=[swallows, leaves_a_task_behind, leaves_a_thread_behind])

SOON = Budget(wall_s=0.2)


@actor.expectation(on=event("function.hangs"), budget=SOON)
async def function_hangs(ctx, trigger):
    """Catch whatever is to end it."""
    await swallow()


@actor.expectation(on=event("tool.hangs"), budget=SOON)
async def tool_hangs(ctx, trigger):
    """Call a tool that catches whatever is to end it."""
    await ctx.call(swallows)


@actor.expectation(on=event("task.stays"))
async def task_stays(ctx, trigger):
    """Call a tool that leaves a task behind."""
    await ctx.call(leaves_a_task_behind)


@actor.expectation(on=event("thread.stays"))
async def thread_stays(ctx, trigger):
    """Call a tool that leaves a thread behind."""
    await ctx.call(leaves_a_thread_behind)


@actor.expectation(on=event("loop.blocked"))
async def loop_is_blocked(ctx, trigger):
    """Block the event loop for ever."""
    while True:
        pass


@actor.expectation(on=event("all.well"))
async def all_is_well(ctx, trigger):
    """End at once."""


app = App(actors=[actor])

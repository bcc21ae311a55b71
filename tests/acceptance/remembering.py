"""An app that nodes of these tests run: one expectation for each thing that gates remember."""

from __future__ import annotations

from typing import Final

from engine.app.triggers import event
from vigil import Actor, App, Breaker, ConvergeResult, FunctionContext, Trigger

LONG_S: Final = 3_600
"""Longer than any test."""

THRESHOLD: Final = 3

watch = Actor("watch", max_concurrent_episodes=32)


@watch.expectation(on=event("order.placed"), subject_key="order")
async def orders(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Find nothing."""
    return ConvergeResult()


@watch.expectation(on=event("disk.measured"), subject_key="disk", cooldown_s=LONG_S)
async def disks(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Find nothing, and rest."""
    return ConvergeResult()


@watch.expectation(on=event("host.seen"), subject_key="host", overlap="skip")
async def hosts(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Hold the host for long."""
    await ctx.sleep(LONG_S)
    return ConvergeResult()


@watch.expectation(
    on=event("api.called"), breaker=Breaker(threshold=THRESHOLD, half_open_after_s=LONG_S)
)
async def calls(ctx: FunctionContext, trigger: Trigger) -> ConvergeResult:
    """Fail."""
    raise RuntimeError("away")


app = App(actors=[watch])

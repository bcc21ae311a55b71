"""Code of users in a scope: it ends by itself, is canceled and cleans up, or is left."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest
import structlog

from engine.errors import EpisodeFailed
from engine.usercode import cancel_scope
from engine.usercode.cancel_scope import Canceled, CancelScope
from tests.engine.stage import CLOCK

ROUNDS_MAX = 50_000
"""How often code goes on that does not end: for ever, were it not for this."""


@pytest.fixture
def scope(monkeypatch):
    monkeypatch.setattr(cancel_scope, "CLEANUP_S", 0.05)
    return CancelScope(CLOCK)


def soon(scope: CancelScope) -> None:
    asyncio.get_running_loop().call_later(0.01, scope.cancel)


async def test_it_returns_what_the_code_does(scope):
    async def work():
        return 7

    assert await scope.run(work(), name="work") == 7


async def test_it_raises_what_the_code_does(scope):
    async def work():
        raise KeyError("boom")

    with pytest.raises(KeyError):
        await scope.run(work(), name="work")


async def test_code_that_is_canceled_may_clean_up(scope):
    cleaned = []

    async def work():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    soon(scope)
    with pytest.raises(Canceled):
        await scope.run(work(), name="work")
    assert cleaned == ["up"]


async def test_code_that_catches_its_end_and_returns_is_canceled_all_the_same(scope):
    async def work():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 7

    soon(scope)
    with pytest.raises(Canceled):
        await scope.run(work(), name="work")


async def test_code_that_catches_whatever_ends_it_is_left_and_named(scope, monkeypatch):
    # Python tells of a coroutine that does not end when it is deleted.
    monkeypatch.setattr(sys, "unraisablehook", lambda told: None)
    rounds = 0

    async def stays():
        nonlocal rounds
        while rounds < ROUNDS_MAX:
            try:
                await asyncio.sleep(0)
            except BaseException:  # noqa: BLE001, S112 - as users do
                continue
            rounds += 1

    soon(scope)
    with structlog.testing.capture_logs() as logs, pytest.raises(Canceled):
        await scope.run(stays(), name="episode e1")
    for _ in range(3):
        await asyncio.sleep(0)
    so_far = rounds
    await asyncio.sleep(0.01)

    assert rounds == so_far < ROUNDS_MAX
    (line,) = [each for each in logs if "is left where it is" in each["event"]]
    assert line["task"] == "episode e1"
    assert line["at"].startswith("test_cancel_scope.py:")
    assert line["at"].endswith("in stays")
    gc.collect()


async def test_whoever_waits_and_is_canceled_takes_the_code_along(scope):
    begun, cleaned = asyncio.Event(), []

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    waits = asyncio.create_task(scope.run(work(), name="work"))
    await begun.wait()
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert (cleaned, scope.is_canceled) == (["up"], True)


async def test_what_is_canceled_before_it_begins_does_not_begin(scope):
    begun = []

    async def work():
        begun.append("it")

    scope.cancel()
    with pytest.raises(Canceled):
        await scope.run(work(), name="work")
    assert begun == []


async def test_code_that_cancels_itself_is_a_crash_and_nobody_else_is_canceled(scope):
    async def work():
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    with pytest.raises(EpisodeFailed) as failed:
        await scope.run(work(), name="work")
    assert failed.value.error_class == "crash"
    assert not scope.is_canceled

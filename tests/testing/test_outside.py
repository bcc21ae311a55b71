"""What strategies may not open themselves in a test, and which time they are told."""

from __future__ import annotations

import importlib
import linecache
import socket
import sqlite3
import time
import traceback
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.engine.stage import HAPPENED, Scripted
from tests.testing.apps import LOOKS, app_with
from vigil import Actor, App, event, tool
from vigil.testing import OutsideCall, run
from vigil.testing.virtual_time import DAY_ONE

SEEN: list[object] = []


async def happens(vigil):
    await vigil.publish(HAPPENED)
    await vigil.run_until_idle()


def acting(function, **given):
    actor = Actor("worker", tools=[writes, tells_the_time])
    actor.expect("thing", function, on=event(HAPPENED))
    return run(App(actors=[actor]), allow=["*"], **given)


@tool
def writes(path: str) -> None:
    Path(path).write_text("done")


@tool
async def tells_the_time() -> float:
    return time.time()


class Peeking(Scripted):
    """Reads a file in one of its callbacks."""

    def __init__(self, callback: str) -> None:
        super().__init__(LOOKS)
        self.callback = callback

    def peek(self, callback: str) -> None:
        if callback == self.callback:
            Path(__file__).read_text()

    def init(self, episode, trigger):
        self.peek("init")
        return super().init(episode, trigger)

    def next_step(self, state, ctx):
        self.peek("next_step")
        return super().next_step(state, ctx)

    def handle_result(self, state, step, result):
        self.peek("handle_result")
        return super().handle_result(state, step, result)

    def converge(self, state, ctx):
        self.peek("converge")
        return super().converge(state, ctx)


@pytest.mark.parametrize("callback", ["next_step", "handle_result"])
async def test_a_class_opens_nothing_where_it_decides(callback):
    async with run(app_with(Peeking(callback)), tools={"disk.*": 1}) as vigil:
        with pytest.raises(OutsideCall, match=r"test_outside\.py:\d+, in peek: opens the file /"):
            await happens(vigil)


@pytest.mark.parametrize("callback", ["init", "converge"])
async def test_it_may_look_at_the_outside_where_it_begins_and_concludes(callback, tmp_path):
    async with run(app_with(Peeking(callback)), tools={"disk.*": 1}) as vigil:
        await happens(vigil)
        assert vigil.episode().status == "done"


async def test_a_tool_opens_what_it_wants(tmp_path):
    path = tmp_path / "ledger"

    async def check(ctx, trigger):
        await ctx.call(writes, path=str(path))

    async with acting(check) as vigil:
        await happens(vigil)
    assert path.read_text() == "done"


async def test_a_test_may_allow_what_a_strategy_opens(tmp_path):
    path = tmp_path / "ledger"

    async def check(ctx, trigger):
        path.write_text("done")
        sqlite3.connect(":memory:").close()

    async with acting(check, allow_io=[f"file {tmp_path}/*"]) as vigil:
        await happens(vigil)
    assert path.read_text() == "done"


async def test_what_a_function_swallows_fails_the_test_all_the_same():
    async def check(ctx, trigger):
        try:
            socket.create_connection(("127.0.0.1", 9))
        except Exception as error:  # noqa: BLE001 - as users write
            SEEN.append(error)

    async with acting(check) as vigil:
        with pytest.raises(OutsideCall, match=r"opens the socket 127\.0\.0\.1 itself"):
            await happens(vigil)
    assert isinstance(SEEN[-1], OutsideCall)


async def test_imports_tracebacks_and_the_data_of_packages_are_no_side_effects(
    tmp_path, monkeypatch
):
    (tmp_path / "imported_late.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)

    async def check(ctx, trigger):
        module = importlib.import_module("imported_late")
        ZoneInfo.no_cache("Europe/Paris")
        linecache.clearcache()
        try:
            int("a")
        except ValueError:
            await ctx.observe([module.value, traceback.format_exc()])

    async with acting(check) as vigil:
        await happens(vigil)
        assert vigil.episode().status == "done", vigil.story()


async def test_the_clocks_of_a_strategy_are_virtual_and_those_of_a_tool_are_real():
    async def check(ctx, trigger):
        began = time.time(), time.monotonic(), time.perf_counter_ns()
        await ctx.sleep(4)
        ended = time.time(), time.monotonic(), time.perf_counter_ns()
        SEEN[:] = [began, ended, await ctx.call(tells_the_time)]

    real_s = time.time()
    async with acting(check) as vigil:
        await happens(vigil)
        assert abs(time.time() - real_s) < 60, "a test has the real one"
    began, ended, in_a_tool = SEEN
    assert began[0] - DAY_ONE.timestamp() == pytest.approx(0, abs=1)
    took = [after - before for before, after in zip(began, ended, strict=True)]
    assert took == pytest.approx([4, 4, 4e9], rel=0.01)
    assert abs(in_a_tool - real_s) < 60


async def test_clocks_are_as_before_when_the_app_has_ended():
    before = time.time, time.monotonic_ns
    async with acting(idle) as vigil:
        assert time.time is not before[0]
        await vigil.advance(seconds=1)
    assert (time.time, time.monotonic_ns) == before


async def idle(ctx, trigger):
    pass


async def test_the_time_passes_for_strategies_as_for_the_app():
    async def check(ctx, trigger):
        await ctx.sleep(3600)
        SEEN[:] = [time.time(), ctx.now()]

    async with acting(check) as vigil:
        await happens(vigil)
        await vigil.advance(hours=2)
    told, now = SEEN
    assert abs(now.timestamp() - told) < 1
    assert now - DAY_ONE >= timedelta(hours=1)

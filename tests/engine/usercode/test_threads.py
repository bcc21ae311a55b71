"""Threads for functions that block: how many there are, and who waits for whom."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from engine.usercode.threads import Threads
from tests.engine.stage import eventually


async def run(threads: Threads, function):
    with await threads.take() as thread:
        return await thread.run(function)


async def test_a_function_runs_in_another_thread_with_the_callers_context():
    name = contextvars.ContextVar("name", default="nobody")
    name.set("ann")

    found = await run(Threads(), lambda: (name.get(), threading.current_thread()))

    assert found[0] == "ann"
    assert found[1] is not threading.main_thread()


async def test_what_it_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        await run(Threads(), lambda: 1 / 0)


class Panic(BaseException):
    """As a library in Rust raises it."""


@pytest.mark.parametrize("error", [Panic, asyncio.CancelledError, SystemExit, GeneratorExit])
async def test_a_thread_comes_back_whatever_its_function_raises(error):
    threads = Threads(most=1)

    def fail():
        raise error

    for _ in range(3):
        with pytest.raises(error):
            await run(threads, fail)

    assert await run(threads, lambda: "next") == "next"


async def test_no_more_run_at_a_time_than_there_may_be():
    threads, let_go = Threads(most=1), threading.Event()
    first = asyncio.create_task(run(threads, lambda: let_go.wait(30)))
    begun: list[bool] = []
    second = asyncio.create_task(run(threads, lambda: begun.append(let_go.is_set())))
    await asyncio.sleep(0)

    let_go.set()
    await asyncio.gather(first, second)

    assert begun == [True]


async def test_one_that_was_left_counts_until_it_ends():
    threads, let_go = Threads(most=1), threading.Event()
    left = asyncio.create_task(run(threads, lambda: let_go.wait(30)))
    await eventually(threads._free.locked)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    assert threads._free.locked()

    let_go.set()

    assert await run(threads, lambda: "next") == "next"


async def test_a_thread_that_never_began_is_free_again():
    threads = Threads(most=1)
    with await threads.take():
        pass

    assert await run(threads, lambda: "next") == "next"

"""What blocks the event loop of a node is named while it does."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path

from structlog.testing import capture_logs

from streams.clock import SystemClock
from vigil.serving.loop_watch import BLOCKED, LOOKS, STOOD_STILL, place_of, watched_loop

BLOCKED_S = 0.05


def reported(lines):
    return [line["at"] for line in lines if line["event"] == BLOCKED]


def waits_without_await(lines):
    """Block, as a synchronous client does, until that was told."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + 10
    while not reported(lines) and clock.monotonic_s() < until_s:
        threading.Event().wait(BLOCKED_S)


async def test_the_line_that_blocks_the_loop_is_named_once():
    with capture_logs() as lines:
        async with watched_loop(blocked_s=BLOCKED_S):
            await asyncio.sleep(0)
            waits_without_await(lines)
            threading.Event().wait(4 * BLOCKED_S)
    (place,) = reported(lines)
    assert place.startswith("test_loop_watch.py:")
    assert place.endswith(", in waits_without_await")


def test_a_loop_that_waits_for_nothing_is_not_to_blame_if_the_process_stood_still():
    waiting = threading.Event()

    def idle():
        asyncio.run(forever(waiting))

    thread = threading.Thread(target=idle, daemon=True)
    thread.start()
    waiting.wait(10)
    places = [place_of(sys._current_frames().get(thread.ident)) for _ in range(100)]
    assert "" in places, "it has come to rest"


async def forever(waiting):
    asyncio.get_running_loop().call_later(0.01, waiting.set)
    await asyncio.sleep(1)


async def test_a_loop_that_is_blocked_for_short_times_only_is_not_reported():
    clock, blocked_s = SystemClock(), 0.5
    with capture_logs() as lines:
        async with watched_loop(blocked_s=blocked_s):
            until_s = clock.monotonic_s() + 3 * blocked_s / LOOKS
            while clock.monotonic_s() < until_s:  # The watch looks meanwhile.
                threading.Event().wait(blocked_s / 50)
                await asyncio.sleep(0)
    assert reported(lines) == []


async def test_a_loop_that_stands_still_for_long_ends_its_node():
    ended = threading.Event()
    with capture_logs() as lines:
        async with watched_loop(blocked_s=BLOCKED_S, ends_after_s=4 * BLOCKED_S, end=ended.set):
            await asyncio.sleep(0)
            assert ended.wait(10)
    (line,) = [each for each in lines if each["event"] == STOOD_STILL]
    assert line["at"].endswith("in test_a_loop_that_stands_still_for_long_ends_its_node")


async def test_a_loop_that_runs_now_and_then_does_not_end_its_node():
    ended, clock = threading.Event(), SystemClock()
    async with watched_loop(blocked_s=BLOCKED_S, ends_after_s=8 * BLOCKED_S, end=ended.set):
        until_s = clock.monotonic_s() + 20 * BLOCKED_S
        while clock.monotonic_s() < until_s:
            threading.Event().wait(BLOCKED_S)
            await asyncio.sleep(BLOCKED_S)  # The task that notes the time gets its turn.
    assert not ended.is_set()


async def test_signals_wake_the_thread_of_the_loop_and_not_the_one_that_watches_it():
    before = set(threading.enumerate())  # The watch of another test may be about to end.
    async with watched_loop():
        (watching,) = set(threading.enumerate()) - before
        async with asyncio.timeout(10):
            while signal.SIGTERM not in blocked_by(watching):  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.01)
        assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def blocked_by(thread):
    """Return the signals that a thread leaves to others, as the kernel says."""
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
    return {number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1}

"""A test that was over time fails, also if what it tests has caught what its timeout raised.

The engine expects any exception of code of users, and the alarm of `pytest-timeout` is raised
within whatever runs: so a loop that never ended was once taken for the crash of a strategy. So the
alarm is raised again and again.

Time is counted in looks, not read off a clock: a machine that stood still as a whole, or a process
that was stopped, wakes up to one look, however long that took.
"""

from __future__ import annotations

import math
import signal
import time
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Final, Protocol

import pytest
from pytest_timeout import timeout_sigalrm

LOOK_S: Final = 5.0
"""Longest time between two looks, in seconds."""

LOOKS_MIN: Final = 12
"""Looks within the shortest timeout."""

AGAIN: Final = 0.25
"""After which part of the timeout the alarm is raised again."""

STACK_MAX: Final = 30
"""Frames that are shown of where it was raised."""


class Settings(Protocol):
    """What `pytest-timeout` knows of a test."""

    timeout: float
    method: str


class Watch:
    """Counts the looks while a test runs, and raises the alarm when there were too many."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self._item, self._settings = item, settings
        self._every_s = min(LOOK_S, settings.timeout / LOOKS_MIN)
        self._left = self._looks = math.ceil(settings.timeout / self._every_s)
        self.is_over, self._raised_in = False, ""
        self._since_s, self._worked_since_s = time.monotonic(), time.process_time()

    def begin(self) -> None:
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, self._every_s, self._every_s)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        self._left -= 1
        if self._left <= 0:
            self._left, self.is_over = round(self._looks * AGAIN), True
            self._raised_in = "".join(traceback.format_stack(frame, limit=STACK_MAX))
            timeout_sigalrm(self._item, self._settings)

    def __str__(self) -> str:
        took_s = time.monotonic() - self._since_s
        worked_s = time.process_time() - self._worked_since_s
        return (
            f"over time: {took_s:.1f} s, of which the processor worked {worked_s:.1f} s, and"
            f" something caught the alarm, the last time in\n{self._raised_in}"
        )


WATCH: Final = pytest.StashKey[Watch]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    """Watch a test; None: others do, as it is to be ended from a thread."""
    if settings.method != "signal":
        return None
    watch = item.stash[WATCH] = Watch(item, settings)
    item.cancel_timeout = watch.end
    watch.begin()
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn what passed after the alarm into a failure."""
    report = yield
    watch = item.stash.get(WATCH, None)
    if report.passed and watch is not None and watch.is_over:
        report.outcome = "failed"
        report.longrepr = f"{call.when}: {watch}"
    return report

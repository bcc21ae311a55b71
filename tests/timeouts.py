"""A test that was over time fails, also if what it tests has caught what its timeout raised.

The engine expects any exception of code of users, and the alarm of `pytest-timeout` is raised
within whatever runs: so a loop that never ended was once taken for the crash of a strategy.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, Final

import pytest

ALARM_AT_S: Final = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Note when the alarm goes off; None: others set it."""
    item.stash[ALARM_AT_S] = time.monotonic() + settings.timeout


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn what passed after the alarm into a failure."""
    report = yield
    over_s = time.monotonic() - item.stash.get(ALARM_AT_S, time.monotonic())
    if report.passed and over_s > 0:
        report.outcome = "failed"
        report.longrepr = (
            f"{call.when}: over time by {over_s:.1f} s, and something caught the alarm"
        )
    return report

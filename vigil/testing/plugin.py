"""A plugin of pytest for tests of apps; it is there as soon as Vigil is installed.

A test that fails inside `vigil.testing.run` shows what the app did until then. A test with the mark
`vigil` may be `async def` without any other plugin:

    pytestmark = pytest.mark.vigil                      all tests of a file
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Generator

import pytest

MARK = "vigil"
_RUNNING = "vigil.testing.running"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", f"{MARK}: an async test that asyncio runs as it is")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that has the mark; leave others to whoever runs them."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function) or not pyfuncitem.get_closest_marker(MARK):
        return None
    wanted = inspect.signature(function).parameters
    given = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    asyncio.run(function(**given))
    return True


def pytest_runtest_setup() -> None:
    """Forget what earlier tests ran."""
    # Whoever imports nothing of it pays nothing for the plugin.
    if running := sys.modules.get(_RUNNING):
        running.recent.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the apps of a failed test did."""
    report = yield
    running = sys.modules.get(_RUNNING)
    if running is not None and call.when == "call" and report.failed:
        stories = [
            (f"vigil.testing.run {number}", each.story())
            for number, each in enumerate(running.recent, 1)
        ]
        report.sections += stories
    return report

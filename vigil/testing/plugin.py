"""A plugin of pytest for tests of apps; it is there as soon as Vigil is installed.

A test that fails inside `vigil.testing.run` shows what the app did until then. A test with the mark
`vigil` may be `async def` without any other plugin:

    pytestmark = pytest.mark.vigil                      all tests of a file

The extra `embedded` has fixtures for tests with real servers: the URL `vigil_nats`, the DSN
`vigil_postgres`, and `vigil_stack`, a new stack for each test. A server starts when a test first
requests its fixture, and runs until the end of the test run.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streams.subjects import Stack

MARK = "vigil"
_numbers = count(1)
_KIT = "vigil.testing."
_RUNNING = f"{_KIT}running"
LACKS_MARK = (
    "an async test without the mark: write `pytestmark = pytest.mark.vigil` at the top of the file"
)


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


@pytest.fixture(scope="session")
def vigil_nats() -> Iterator[str]:
    """Return the URL of a real nats-server, fast and not durable, for the whole run."""
    # Tests without these fixtures import nothing for them.
    from streams.embedded import EmbeddedNats

    with _folder() as folder, EmbeddedNats(Path(folder), sync='"2m"') as server:
        yield server.url
        server.kill()  # Its data is not needed any more.


@pytest.fixture(scope="session")
def vigil_postgres() -> Iterator[str]:
    """Return the DSN of a real Postgres for the whole run."""
    from projections.embedded import EmbeddedPostgres

    with _folder() as folder, EmbeddedPostgres(Path(folder)) as server:
        yield server.dsn


@pytest.fixture
def vigil_stack() -> Stack:
    """Return a new stack for each test, on the shared servers."""
    from streams.subjects import Stack

    return Stack(f"test{next(_numbers)}")


def _lacks_mark(item: pytest.Item) -> bool:
    """Return whether this is an async test of a file that uses the test kit, without its mark."""
    function = getattr(item, "obj", None)
    if not inspect.iscoroutinefunction(function) or item.get_closest_marker(MARK):
        return False
    # A function that was made at run time may have no module.
    names = getattr(inspect.getmodule(function), "__dict__", {})
    used = (getattr(each, "__module__", None) for each in names.values())
    return any(str(name).startswith(_KIT) for name in used)


def _has_run(item: pytest.Item, call: pytest.CallInfo[None]) -> bool:
    """Return whether some plugin has run it: it passed, or its failure came from its file."""
    # guard: passed-test-has-run
    return call.excinfo is None or any(
        Path(entry.path) == item.path for entry in call.excinfo.traceback
    )


def _folder() -> TemporaryDirectory[str]:
    # Not `tmp_path`, which only the user of the run may read: Postgres may run as another user.
    return TemporaryDirectory(prefix="vigil-", ignore_cleanup_errors=True)


def pytest_runtest_setup() -> None:
    """Forget what earlier tests ran."""
    # Whoever imports nothing of it pays nothing for the plugin.
    if running := sys.modules.get(_RUNNING):
        running.recent.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the apps of a failed test did, or that it has no mark."""
    report = yield
    running = sys.modules.get(_RUNNING)
    if running is not None and call.when == "call" and report.failed:
        if _lacks_mark(item) and not _has_run(item, call):  # guard: forgotten-mark-told
            report.sections.append((MARK, f"{item.name}: {LACKS_MARK}"))
        stories = [
            (f"vigil.testing.run {number}", each.story())
            for number, each in enumerate(running.recent, 1)
        ]
        report.sections += stories
    return report

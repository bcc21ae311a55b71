"""One server for each module, one stack for each test, and no task left behind."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final

import pytest
import structlog

from engine.people import passwords
from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from streams.subjects import Stack
from tests import timeouts
from tests.databases import Database, database_in, hasten, open_directory

LONG: Final = {
    *("acceptance", "bench", "cluster", "docs", "repartition"),
    *("simulation", "vigil", "walk"),
}
"""Folders whose files take longest."""

SURVIVAL: Final = "simulation/test_survival.py"
SIMULATOR: Final = "simulation/test_simulator.py"

SETTLE_TURNS: Final = 20
"""Turns of the loop that a cancelled task may take to end."""

FOLDER: Final = pytest.StashKey[str]()

_numbers = count(1)

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start. A
# handler that does nothing goes on ignoring it here, and is not handed down.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda _number, _frame: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests run in another order than that in which they are written."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="shuffle files, and their tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep files in a folder of this run's own. Those that pytest makes lie in one that every run
    closes to others anew, and Postgres may be another user: its folders would be out of reach."""
    config.pluginmanager.register(timeouts)
    if not hasattr(config, "workerinput") and config.option.basetemp is None:
        config.option.basetemp = config.stash[FOLDER] = mkdtemp(prefix="vigil-tests-")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Leave the files of a run that failed."""
    folder = session.config.stash.get(FOLDER, None)
    if folder is not None and exitstatus == pytest.ExitCode.OK:
        rmtree(folder, ignore_errors=True)


def pytest_collection(session: pytest.Session) -> None:
    """Have each of several processes begin with files of its own: what one has compiled, the others
    need not. Without that, all compile everything at the same time, which takes half a minute."""
    # Hundreds of thousands of objects come to stay: to look for garbage among them again and again
    # took 4 of the 10 s that a process collects tests.
    gc.disable()
    if (worker := getattr(session.config, "workerinput", None)) is None:
        return
    places = [Path(each.partition("::")[0]) for each in session.config.args]
    files = [file for place in places for file in (sorted(place.rglob("test_*.py")) or [place])]
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        name = ".".join(file.absolute().relative_to(session.config.rootpath).with_suffix("").parts)
        with suppress(Exception):  # What goes wrong is told when the file is collected.
            import_module(name)


def pytest_collection_finish() -> None:
    """Look for garbage from here on, among what tests make and not among the tests."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that no process is left alone with one of them."""
    if (seed := config.option.shuffle) is not None:
        rng = Random(seed)
        places = {path: rng.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (places[item.path], rng.random()))
    items.sort(key=lambda item: not LONG & set(item.path.parts))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Have one process run the tests of a file, which share a server. Worlds are shared by two
    files of the simulation, and those that nobody shares are any process's."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only where there are several

    class ByWhatIsShared(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if not file.endswith(SURVIVAL):
                return file
            return nodeid if "[worlds" in nodeid else file.replace(SURVIVAL, SIMULATOR)

    return ByWhatIsShared(config, log) if config.getvalue("dist") == "loadfile" else None


# The default draws every variable of every frame, which takes minutes for a crash of a whole world.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.fixture(autouse=True)
def log_lines_as_before() -> Iterator[None]:
    """Put back how log lines are shown, whatever a test made of that."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedNats]:
    """A running nats-server that the tests of a module share. It is fast, not durable: it syncs
    every two minutes.

    Not one for the whole run: a new stack takes 10 ms on an empty server, and 130 ms on one that
    holds a thousand stacks (measured with 2.15).
    """
    with EmbeddedNats(tmp_path_factory.mktemp("nats"), sync='"2m"') as server:
        yield server
        server.kill()  # Nobody will read what it holds: an orderly stop takes seconds.


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A running Postgres that all tests of a process share. It is fast, not durable, and looks
    after none of its many tables. The fixtures `postgres` of folders are databases in it."""
    with open_directory() as directory, EmbeddedPostgres(directory) as server:
        asyncio.run(hasten(server))
        yield server


@pytest.fixture
def database(postgres_server: EmbeddedPostgres) -> Database:
    """An empty database that no other test uses."""
    return database_in(postgres_server)


@pytest.fixture
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash passwords in next to no time, for tests of what follows from the right one and from a
    wrong one. A hash as people have it takes a quarter of a second on each of four processors."""
    monkeypatch.setattr(passwords, "TIME_COST", 1)
    monkeypatch.setattr(passwords, "MEMORY_KIB", 8 * passwords.PARALLELISM)


@pytest.fixture
def stack() -> Stack:
    """A stack that no other test uses, so that tests can share a server."""
    return Stack(f"test{next(_numbers)}")


@pytest.fixture(autouse=True)
def no_task_is_left(request: pytest.FixtureRequest) -> None:
    """Fail a test that leaves a task running. One that is no coroutine needs no loop for that: to
    make one for each of ten thousand tests took a fifth of what they take."""
    if request.node.get_closest_marker("asyncio") is not None:
        request.getfixturevalue("tasks_as_before")


@pytest.fixture
async def tasks_as_before() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    for _ in range(SETTLE_TURNS):
        left = asyncio.all_tasks() - before - {asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    assert not left, f"left running: {[task.get_name() for task in left]}"

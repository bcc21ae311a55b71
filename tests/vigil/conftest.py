"""The `vigil` command as a program of its own, in a folder of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.subjects import Stack
from tests.databases import Database, database_in
from tests.vigil.defining import write_files
from tests.vigil.program import Vigil


@pytest.fixture(scope="session")
def postgres(postgres_server: EmbeddedPostgres) -> Database:
    """A database that every test here shares; stacks keep their rows apart."""
    return database_in(postgres_server)


@pytest.fixture
def vigil(tmp_path: Path) -> Vigil:
    """The command, warm, in an empty folder, with no server to talk to."""
    return Vigil(tmp_path)


@pytest.fixture
def connected(tmp_path: Path, nats: EmbeddedNats, postgres: Database, stack: Stack) -> Vigil:
    """The command, warm, with servers to talk to, and a stack of its own."""
    return Vigil(
        tmp_path,
        VIGIL_NATS_URL=nats.url,
        VIGIL_POSTGRES_DSN=postgres.dsn,
        VIGIL_STACK=f"console-{stack.name}",
    )


@pytest.fixture
def standing(connected: Vigil) -> Vigil:
    """The command with servers to talk to, and a stack that is there already."""

    async def make() -> None:
        name, url = connected.environ["VIGIL_STACK"], connected.environ["VIGIL_NATS_URL"]
        async with connect(url, stack=Stack(name)):
            return

    asyncio.run(make())  # No command: that takes four times as long.
    return connected


@pytest.fixture
def write_app(tmp_path: Path) -> Callable[[], None]:
    """Writes an app into the folder, as `watch:app`."""

    def write() -> None:
        (tmp_path / "watch.py").write_text(APP)

    return write


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with definitions of an actor, one of a workflow, and an app."""
    write_files(tmp_path)
    return tmp_path


APP = '''
"""One actor that raises a finding about what it is told."""

from vigil import Actor, App, ConvergeResult, Strategy, converge, event, observe, raise_finding


class Look(Strategy):
    def init(self, episode, trigger):
        return {"host": trigger.payload["host"], "seen": False}

    def next_step(self, state, ctx):
        return converge() if state["seen"] else observe({"seen": True})

    def handle_result(self, state, step, result):
        return {**state, "seen": True}

    def converge(self, state, ctx):
        return ConvergeResult(
            classification={"primary": "seen"},
            confidence=1.0,
            summary=f"{state['host']} was seen",
            findings=[
                raise_finding(f"host:{state['host']}", class_="seen", severity="high",
                              subject=("host", state["host"]), summary="it is there")
            ],
        )


watcher = Actor("watcher", domain="hosts")
watcher.expect("look", Look, on=event("host.seen"), subject_key="host")
app = App(actors=[watcher])
not_an_app = 7
'''

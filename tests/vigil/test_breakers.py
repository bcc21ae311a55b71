"""`vigil actors reset`: closing a circuit breaker from the command line."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from engine.episodes.breakers.breaker import BreakerState
from streams.jetstream import connect
from streams.keys import breaker_key
from streams.subjects import Stack
from tests.vigil.test_modes import running_node, see, wait_episodes


@pytest.fixture
def write_breakable(write_app, tmp_path):
    """Writes the app with these options for its one expectation, which fails about `a`."""

    def write(options: str) -> None:
        write_app()
        app = tmp_path / "watch.py"
        text = app.read_text().replace("from vigil import", "from vigil import Breaker,")
        text = text.replace('subject_key="host")', f'subject_key="host", {options})')
        fails = """return 1 / 0 if state["host"] == "a" else ConvergeResult("""
        app.write_text(text.replace("return ConvergeResult(", fails))

    return write


async def stored(vigil) -> bytes | None:
    stack = Stack(vigil.environ["VIGIL_STACK"])
    async with connect(vigil.environ["VIGIL_NATS_URL"], stack=stack) as ports:
        entry = await ports.gates.get(breaker_key("watcher", "look"))
    return entry and entry.value


def breaker_of(vigil) -> str:
    (look,) = vigil.ask("actors", "show", "watcher")["expectations"]
    return look["breaker"]


def test_a_breaker_that_is_reset_lets_events_through_again(connected, write_breakable):
    write_breakable("breaker=Breaker(threshold=1, half_open_after_s=3600)")
    with running_node(connected):
        see(connected, "a")
        wait_episodes(connected, failed=1)
        assert breaker_of(connected) == "open"

        why = ("--by", "ann", "--reason", "repaired")
        done = connected.run("actors", "reset", "watcher", "look", *why)
        assert done.stdout.startswith("watcher, look: closed; it was open since "), done.stderr
        (episode,) = connected.ask("episodes", "list")
        assert f"; failed: {episode['episode_id']}" in done.stdout
        assert breaker_of(connected) == "closed"
        # A key that is deleted may be back after a crash of the server.
        kept = msgspec.json.decode(asyncio.run(stored(connected)), type=BreakerState)
        assert (kept.status, kept.failures, kept.opened_at) == ("closed", (), None)

        see(connected, "b")
        wait_episodes(connected, failed=1, done=1)
        again = connected.run("actors", "reset", "watcher", "look")
        assert again.stdout == "watcher, look: was closed already\n"
        rows = connected.wait_for("orders", "list", until=lambda rows: len(rows) == 2)
        first = rows[-1]
        assert (first["change"], first["person"], first["reason"]) == (
            "breaker_reset", "ann", "repaired",
        )  # fmt: skip


def test_what_has_no_breaker_that_the_cluster_shares_is_refused(connected, write_breakable):
    write_breakable('breaker=Breaker(scope="node")')
    with running_node(connected, "--no-project"):
        for words, says in (
            (("watcher", "look"), "each node has one of its own"),
            (("watcher", "other"), "no expectation 'other'; known: look"),
            (("nobody", "look"), "an actor 'nobody'"),
        ):
            done = connected.run("actors", "reset", *words)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert says in done.stderr


def test_an_expectation_without_a_breaker_has_none_to_reset(connected, write_app):
    write_app()
    with running_node(connected, "--no-project"):
        done = connected.run("actors", "reset", "watcher", "look")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "look of actor watcher has no circuit breaker" in done.stderr

"""Reconciling after a deploy, as an operator does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.vigil.program import Vigil
from tests.vigil.test_command_line import one_line

APP = '''
"""Asks before it looks, and looks by time."""

from vigil import Actor, App, ConvergeResult, Strategy, approval, converge, event, every


class Ask(Strategy):
    def init(self, episode, trigger):
        return {"asked": False}

    def next_step(self, state, ctx):
        return converge() if state["asked"] else approval({"look": 1}, summary="look?")

    def handle_result(self, state, step, result):
        return {"asked": True}

    def converge(self, state, ctx):
        return ConvergeResult(summary="looked")


worker = Actor("worker")
worker.expect("stay", Ask, on=event("thing.stays"))
'''

BEFORE = """
worker.expect("look", Ask, on=[event("thing.happened"), every("1d")], cooldown_s=3600)
app = App(actors=[worker])
"""

AFTER = """
worker.expect("check", Ask, on=every("2d"))
app = App(actors=[worker])
"""


@contextmanager
def serving(vigil: Vigil, rest: str) -> Iterator[None]:
    """A node is up meanwhile whose app ends so."""
    (vigil.folder / "watch.py").write_text(APP + rest)
    with vigil.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        vigil.wait_for("episodes", "list", until=lambda _: True)
        yield
        assert program.stop(signal.SIGTERM) == 0


@pytest.fixture
def deployed(connected: Vigil) -> Iterator[Vigil]:
    """A node of a newer version runs; the old one has left an episode, a timer and a cooldown."""
    with serving(connected, BEFORE):
        for name in ("thing.happened", "thing.stays"):
            connected.run("publish", name, "{}")
        connected.wait_for("episodes", "list", until=lambda rows: statuses(rows) == ["blocked"] * 2)
    with serving(connected, AFTER):
        yield connected


def statuses(rows: list[dict[str, str]]) -> list[str]:
    return [row["status"] for row in rows]


def test_what_a_deploy_left_is_shown_ended_once_and_then_there_is_nothing_to_do(deployed):
    planned = deployed.ask("reconcile", "--dry-run")
    (stays, looks) = sorted(
        deployed.ask("episodes", "list"), key=lambda row: row["expectation_id"], reverse=True
    )
    done = deployed.run("reconcile", "--by", "ada", "--reason", "no looks")
    id_ = looks["episode_id"]
    ended = deployed.wait_for(
        "episodes", "show", id_, until=lambda row: row["status"] == "canceled"
    )
    again = deployed.run("reconcile")
    stayed = deployed.ask("episodes", "show", stays["episode_id"])

    assert planned["dry_run"] is True
    assert [(each["action"], each["about"]) for each in planned["actions"]] == [
        ("disarm", "tick every 86400s"),
        ("cancel", f"episode {id_}"),
        ("forget", "cooldown.worker.look.="),
        ("unwatch", "stops watching thing.happened"),
    ]
    assert {each["outcome"] for each in planned["actions"]} == {"planned"}
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "disarm 1, arm 0, cancel 1, forget 1, unwatch 1",
    )
    assert (ended["status"], ended["error_class"]) == ("canceled", "canceled")
    assert ended["error_detail"] == "by ada: orphan_cleanup: no looks"
    assert (again.returncode, again.stdout) == (
        0,
        "nothing to do: all that stands is declared (worker)\n",
    )
    assert stayed["status"] == "blocked"


def test_without_a_node_there_is_nothing_to_compare_with(standing):
    done = standing.run("reconcile", "--actor", "worker")
    assert (done.returncode, done.stdout) == (
        0,
        "nothing to do: no node is up that says what is declared\n",
    )
    assert done.stderr == "vigil: worker: no node that is up has it; nothing of it is touched\n"


def test_what_cannot_be_asked_is_refused_in_one_line(standing):
    assert "reason" in one_line(standing.run("reconcile", "--reason", "x" * 4_000), code=2)
    assert "--by" in one_line(standing.run("reconcile", "--by", " "), code=2)
    assert "actor" in one_line(standing.run("reconcile", "--actor", "a b"), code=2)


def test_an_actor_that_nobody_knows_is_refused_while_a_node_is_up(connected):
    with serving(connected, AFTER):
        done = connected.run("reconcile", "--actor", "wurker")
    assert "nobody knows an actor 'wurker'; did you mean worker?" in one_line(done, code=1)

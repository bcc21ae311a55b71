"""A fork of an episode, from the command line."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.vigil.journal import Journal, approval
from tests.vigil.program import NOWHERE
from tests.vigil.test_command_line import one_line

APP = '''
"""One actor that says the same of each host."""

from vigil import Actor, App, ConvergeResult, Strategy, converge, event, observe


class Look(Strategy):
    def init(self, episode, trigger):
        return {"host": trigger.payload["host"], "seen": []}

    def next_step(self, state, ctx):
        return observe(f"look {len(state['seen'])}") if len(state["seen"]) < 2 else converge()

    def handle_result(self, state, step, result):
        return {**state, "seen": [*state["seen"], result]}

    def converge(self, state, ctx):
        return ConvergeResult(summary=f"{state['host']}: {', '.join(state['seen'])}")


watcher = Actor("watcher")
watcher.expect("look", Look, on=event("host.seen"), subject_key="host")
app = App(actors=[watcher])
'''


@pytest.fixture
def served(connected, tmp_path):
    """The command, while a node runs."""
    (tmp_path / "look.py").write_text(APP)
    with connected.running("node", "--app", "look:app") as node:
        node.wait_said("node up")
        connected.wait_for("episodes", "list", until=lambda rows: rows == [])
        yield connected


def ended(vigil, *words):
    done = vigil.run(*words, "--wait")
    assert done.returncode == 0, done.stderr
    id_, end = done.stdout.splitlines()
    return id_, end


def test_a_fork_goes_on_from_the_step_and_the_rows_show_where_it_comes_from(served):
    first, _ = ended(served, "fire", "watcher", "look", "--payload", '{"host": "a"}')

    words = ("--at", "1", "--payload", '{"host": "b"}', "--by", "ann", "--reason", "why not")
    fork, end = ended(served, "episodes", "fork", first, *words)

    assert end == "done: b: look 0, look 1"
    row = served.ask("episodes", "show", fork)
    assert (row["forked_from"], row["forked_at_step"]) == (first, 1)
    assert (row["forked_by"], row["forked_reason"]) == ("ann", "why not")
    assert row["subject_id"] == "b"
    (opened, *_) = served.ask("episodes", "log", fork)
    assert opened["says"].startswith(f"forked by ann at step 1 of {first}, opened by")
    second, _ = ended(served, "episodes", "fork", fork, "--at", "2", "--dry-run")
    forks = served.ask("sql", "select * from episode_forks order by generation")
    shown = [(each["episode_id"], each["origin"], each["generation"]) for each in forks]
    assert shown == [(fork, first, 1), (second, first, 2)]
    assert forks[1]["mode"] == "dry_run"


def test_a_fork_and_what_it_is_a_fork_of_are_compared(served):
    first, _ = ended(served, "fire", "watcher", "look", "--payload", '{"host": "a"}')
    fork, _ = ended(served, "episodes", "fork", first, "--at", "1", "--payload", '{"host": "b"}')

    found = served.ask("episodes", "diff", first, fork)
    shown = served.run("episodes", "diff", first, fork).stdout
    same = served.run("episodes", "diff", first, first)

    assert found["relation"] == "the second is a fork of the first, at step 1"
    assert (found["is_same"], found["left"]["calls"]) == (False, found["right"]["calls"])
    assert [(each["name"], each["right"]) for each in found["begins"]] == [
        ("payload", {"host": "b"})
    ]
    assert "payload  host=a" in shown
    assert [each["name"] for each in found["ends"]] == ["summary"]
    assert same.stdout == (
        "they are the same episode; nothing differs: steps, findings, outputs and ends are the "
        "same\n"
    )
    unknown = served.run("episodes", "diff", first, str(UUID(int=7)))
    assert "on the journal of stack" in one_line(unknown, code=1)


def test_a_fork_that_no_node_runs_says_so_and_waits(connected):
    journal = Journal(connected)
    id_ = journal.block(approval())
    done = connected.run("episodes", "fork", id_, "--at", "0", "--key", "k")
    assert done.returncode == 0, done.stderr
    assert "no node that is up has it; it waits" in done.stderr
    assert journal.has_command(done.stdout.strip()) is False, "the reactor of a node calls"


def test_a_step_that_was_not_taken_is_refused_in_one_line(connected):
    id_ = Journal(connected).block(approval())
    line = one_line(connected.run("episodes", "fork", id_, "--at", "3"), code=1)
    assert "it has recorded 0 steps, not 3" in line


def test_an_episode_that_nobody_knows_cannot_be_forked(standing):
    done = standing.run("episodes", "fork", str(UUID(int=7)), "--at", "0")
    assert f"no episode {UUID(int=7)} on the journal" in one_line(done, code=1)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("x", "--at", "1"), "'x' is no episode id"),
        ((str(UUID(int=7)), "--at", "1", "--payload", "[]"), "--payload: a list"),
    ],
)
def test_words_that_cannot_work_are_one_line(vigil, words, why):
    assert why in one_line(vigil.run("episodes", "fork", *words, **NOWHERE), code=2)

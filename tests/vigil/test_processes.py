"""`--processes N`: real nodes of one parent share the work, come back, and leave nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import contextmanager

import psutil
import pytest

from tests.vigil.program import ROOT
from tests.vigil.test_own_servers import assert_gone, family
from vigil.serving.processes import PROCESSES_MAX, counted, plans
from vigil.serving.stack_work import StackWork
from vigil.settings import read, read_each

EVENTS = 100
"""Published at a time."""

TIMES_MAX = 10
"""How often, until every node has had some; the first time is nearly always enough."""

NODES = 2
"""As many as it takes to be several."""


@contextmanager
def running_nodes(vigil, *arguments: str, count: int = NODES):
    command = ("node", "--app", "watch:app", "--processes", str(count), "--log", "json")
    with vigil.running(*command, "--node-name", "n", *arguments) as parent:
        for number in range(1, count + 1):
            parent.wait_said(f'"node": "n-{number}", "actors"')
        yield parent


def children(parent) -> dict[str, psutil.Process]:
    """Return the nodes of `parent` by name."""
    found = psutil.Process(parent.process.pid).children()
    return {each.cmdline()[each.cmdline().index("--node-name") + 1]: each for each in found}


def publish_and_wait(vigil, *, total: int) -> set[str]:
    """Publish events, and return who has run episodes once all `total` of them are done."""
    lines = "".join(json.dumps({"host": f"h{n}"}) + "\n" for n in range(total - EVENTS, total))
    vigil.run("publish", "host.seen", "--lines", stdin=lines.encode())
    done = ("episodes", "list", "--status", "done", "--limit", str(TIMES_MAX * EVENTS))
    rows = vigil.wait_for(*done, until=lambda rows: len(rows) == total)
    return {row["node"] for row in rows}


@pytest.mark.nightly
def test_nodes_share_the_work_and_one_of_them_projects(connected, write_app):
    write_app()
    with running_nodes(connected) as parent:
        nodes = set()
        for number in range(1, TIMES_MAX + 1):
            nodes = publish_and_wait(connected, total=number * EVENTS)
            if len(nodes) == NODES:
                break
        commands = {name: each.cmdline() for name, each in children(parent).items()}
        assert parent.stop(signal.SIGTERM) == 0
        assert parent.said.count('"clean": true') == NODES
    assert nodes == {"n-1", "n-2"}
    projecting = [name for name, words in commands.items() if "--no-project" not in words]
    assert projecting == ["n-1"]


def test_a_signal_stops_every_node_in_order_and_the_one_that_was_killed_is_back_by_then(
    connected, write_app
):
    write_app()
    with running_nodes(connected, "--no-project") as parent:
        killed = children(parent)["n-2"]
        killed.kill()
        parent.wait_said('"ended": "n-2", "code": 137')
        parent.wait_said('"node": "n-2", "actors"', times=2)
        assert children(parent)["n-2"].pid != killed.pid
        processes = family(parent)
        assert parent.stop(signal.SIGINT) == 0
        assert parent.said.count('"clean": true') == NODES
    assert_gone(processes)


def test_a_node_that_cannot_be_started_is_tried_again_while_the_others_run_on(
    connected, write_app, tmp_path
):
    write_app()
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    connected.command[0] = str(python)
    connected.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    with running_nodes(connected, "--no-project") as parent:
        python.unlink()
        children(parent)["n-2"].kill()
        parent.wait_said('"process": "n-2", "error"', times=2)
        assert set(re.findall(r'"ended": "(n-\d)"', parent.said)) == {"n-2"}
        python.symlink_to(sys.executable)
        parent.wait_said('"node": "n-2", "actors"', times=2)
        processes = family(parent)
        assert parent.stop(signal.SIGTERM) == 0
    assert_gone(processes)


def test_a_second_signal_ends_every_node_at_once_whatever_blocks_it(connected, write_app, tmp_path):
    write_app()
    line = "    def next_step(self, state, ctx):\n"
    block = '        import time\n        print("busy", flush=True)\n        time.sleep(300)\n'
    app = tmp_path / "watch.py"
    app.write_text(app.read_text().replace(line, line + block))
    with running_nodes(connected, "--no-project") as parent:
        processes = family(parent)
        connected.run("publish", "host.seen", '{"host": "a"}')
        parent.wait_said("busy")
        parent.process.send_signal(signal.SIGINT)

        # Of two that are sent at once, either may be heard first.
        assert parent.stop(signal.SIGTERM) in {128 + signal.SIGTERM, 128 + signal.SIGINT}
    assert_gone(processes)


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells children")
def test_no_node_outlives_its_parent(connected, write_app):
    write_app()
    with running_nodes(connected, "--no-project") as parent:
        processes = family(parent)
        parent.process.kill()
        assert_gone(processes)


def test_up_runs_several_nodes_on_its_own_servers(vigil, write_app):
    write_app()
    with vigil.running("up", "--app", "watch:app", "--processes", "2", "--node-name", "n") as up:
        up.wait_said("2 nodes, n-1 to n-2")
        up.wait_said("node up", times=2)
        vigil.run("publish", "host.seen", '{"host": "a"}')
        vigil.wait_for("findings", "list", until=lambda rows: len(rows) == 1)
        processes = family(up)
        assert up.stop(signal.SIGTERM) == 0
    assert_gone(processes)


@pytest.mark.parametrize("nonsense", ["0", "-1", "two", "1.5", "", str(PROCESSES_MAX + 1)])
def test_a_number_of_processes_that_makes_no_sense_is_refused_in_one_line(
    vigil, write_app, nonsense
):
    write_app()
    done = vigil.run("node", "--app", "watch:app", f"--processes={nonsense}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"--processes {nonsense!r}: use a whole number from 1 to 64" in done.stderr


def test_a_name_that_leaves_no_room_for_the_nodes_is_refused_in_one_line(connected, write_app):
    write_app()
    done = connected.run("node", "--app", "watch:app", "--processes", "10", "--node-name", "x" * 62)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_a_server_that_is_away_is_said_once_and_nothing_is_started(vigil, write_app):
    write_app()
    url = "nats://127.0.0.1:1"
    done = vigil.run("node", "--app", "watch:app", "--processes", "2", VIGIL_NATS_URL=url)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (1, 1, "")


def test_no_command_line_shows_a_password(tmp_path):
    secret = "postgresql://vigil:hunter2@db/vigil"
    config = read({"postgres_dsn": secret, "node": "n"}, folder=tmp_path)
    for plan in plans(config, app="watch:app", count=2, work=StackWork()):
        assert "hunter2" not in " ".join(plan.command)


def test_the_first_node_of_each_stack_takes_turns_at_projecting():
    configs = read_each({"node": "n"}, "orders,billing")
    planned = [plans(each, app="a:a", count=2, work=StackWork()) for each in configs]
    assert [["--no-project" in plan.command for plan in each] for each in planned] == [
        [False, True],
        [False, True],
    ]


def test_a_node_of_several_stacks_is_started_with_the_stack_that_it_is_of():
    configs = read_each({"env": "qa"}, "orders, billing")
    planned = [plans(each, app="a:a", count=1, work=StackWork())[0] for each in configs]
    said = [plan.command[plan.command.index("--stack") + 1] for plan in planned]
    assert said == ["orders", "billing"]
    assert [each.stack.name for each in configs] == ["orders-qa", "billing-qa"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--stacks", "a,a"), "name stacks with commas between, each once"),
        (("--stacks", ""), "name stacks with commas between, each once"),
        (("--stacks", "a,b.c"), "stack: 'b.c'"),
        (("--stacks", "a", "--stack", "b"), "--stack and --stacks: say one of them"),
        (("--stacks", "a,b", "--serve-stacks", "b"), "'b' is the stack that the node is of"),
        (("--stacks", "a,b", "--processes", "33"), "66 processes for 2 stacks; 64 are the most"),
        (("--stacks", "a", "--node-name", "x" * 63), "is not a name; use 1 to 64"),
    ],
)
def test_stacks_that_cannot_be_served_together_are_refused_in_one_line(
    vigil, write_app, words, problem
):
    write_app()
    done = vigil.run("node", "--app", "watch:app", *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert problem in done.stderr


def test_a_name_made_from_the_host_has_room_for_every_process(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "h" * 80)
    config = read({}, folder=tmp_path)
    planned = plans(config, app="watch:app", count=counted("64"), work=StackWork())
    assert max(len(plan.name) for plan in planned) <= 64

"""A node and its rows, through the command line alone."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import contextmanager

import nats
import pytest
from nats.errors import TimeoutError as NothingCame

LOG_UP = '"event": "node up"'


@contextmanager
def running_node(vigil, *arguments: str):
    with vigil.running("node", "--app", "watch:app", "--log", "json", *arguments) as node:
        node.wait_said(LOG_UP)
        yield node


@pytest.fixture
def seen(connected, write_app):
    """The command, after a node has seen two hosts."""
    write_app()
    with running_node(connected):
        said = connected.run("publish", "host.seen", '{"host": "a"}', "--id", "first").stdout
        assert "host.seen first: published, sequence " in said
        assert (
            "already"
            in connected.run("publish", "host.seen", '{"host": "a"}', "--id", "first").stdout
        )
        lines = connected.run("publish", "host.seen", "--lines", stdin=b'{"host": "b"}\n')
        assert lines.stdout == "published 1 events\n", lines.stderr
        connected.wait_for(
            "episodes", "list", "--status", "done", until=lambda rows: len(rows) == 2
        )
        yield connected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_node_in_order(connected, write_app, number):
    write_app()
    with running_node(connected, "--node-name", "n1") as node:
        assert node.stop(number) == 0
        assert node.said.startswith("node n1 · stack console-")
        assert '"clean": true' in node.said


def test_a_projector_runs_by_itself(connected):
    with connected.running("project") as projector:
        projector.wait_said("projector ")
        connected.wait_for("episodes", "list", until=lambda rows: rows == [])
        assert projector.stop(signal.SIGTERM) == 0


def test_a_node_without_projector_needs_no_postgres(connected, write_app):
    write_app()
    away = "postgresql://127.0.0.1:1/nothing"
    with running_node(connected, "--no-project", "--postgres-dsn", away) as node:
        assert node.stop(signal.SIGTERM) == 0


def test_a_node_whose_app_declares_no_actor_says_so(connected, tmp_path):
    (tmp_path / "bare.py").write_text("from vigil import App\napp = App()\n")
    with connected.running("node", "--app", "bare:app", "--no-project") as node:
        assert " · no actor yet\n" in node.wait_said("no actor yet\n")


def test_episodes_and_findings_are_shown_for_programs_and_for_people(seen):
    episodes = seen.ask("episodes", "list", "--actor", "watcher")
    assert {row["subject_id"] for row in episodes} == {"a", "b"}
    assert seen.ask("episodes", "list", "--limit", "1") == episodes[:1]

    episode_id = episodes[0]["episode_id"]
    shown = seen.ask("episodes", "show", episode_id)
    assert shown["summary"].endswith("was seen")
    assert [row["kind"] for row in seen.ask("episodes", "steps", episode_id)] == ["observation"]

    findings = seen.ask("findings", "list", "--severity", "high")
    assert {row["finding_key"] for row in findings} == {"host:a", "host:b"}
    assert seen.ask("findings", "list", "--severity", "low") == []
    assert seen.ask("findings", "show", "host:a")["history"][0]["kind"] == "finding_raised"

    for command in (("episodes", "list"), ("findings", "show", "host:a"), ("findings", "list")):
        done = seen.run(*command)
        assert done.returncode == 0
        assert "watcher" in done.stdout

    unknown = "00000000-0000-0000-0000-000000000000"
    for command in (("episodes", "show", unknown), ("episodes", "steps", unknown)):
        assert seen.run(*command).stderr.startswith(f"vigil: no episode {unknown}")
    missing = seen.run("findings", "show", "host:c")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


def test_sql_answers_and_changes_nothing(seen):
    stack = seen.environ["VIGIL_STACK"]
    rows = seen.ask("sql", "select stack, count(*) as n from episodes group by stack")
    assert {"stack": stack, "n": 2} in rows

    twice = "select count(*), count(stack) + 40 as count from (values ('a'), ('b')) as t (stack)"
    assert seen.ask("sql", twice) == [{"count": 2, "count_2": 42}]
    assert seen.run("sql", twice).stdout.split() == ["count", "count_2", "2", "42"]

    for refused in ("delete from episodes", "selec 1", "select 1; select 2", "select 1/0"):
        done = seen.run("sql", refused)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_doctor_finds_a_running_stack_in_order(seen):
    found = seen.ask("doctor")

    assert {check["status"] for check in found["checks"]} == {"ok"}
    assert found["versions"]["nats-py"]
    assert {"setting": "stack", "value": seen.environ["VIGIL_STACK"], "from": "environment"} in (
        found["settings"]
    )


def test_doctor_names_what_is_wrong_and_what_to_do(vigil):
    done = vigil.run("doctor", "--json", VIGIL_NATS_URL="nats://127.0.0.1:1")
    problems = [each for each in json.loads(done.stdout)["checks"] if each["status"] == "problem"]

    assert done.returncode == 1
    assert any("NATS" in problem["what"] for problem in problems)
    assert all(problem["remedy"] for problem in problems)


def test_a_bad_line_is_named_and_those_before_it_are_published(standing):
    done = standing.run("publish", "host.seen", "--lines", stdin=b'{"a": 1}\n\n{"a"\n{"a": 2}\n')

    assert done.returncode == 2
    assert "line 3" in done.stderr


def test_a_second_signal_ends_a_node_at_once_whatever_blocks_it(connected, write_app, tmp_path):
    write_app()
    line = "    def next_step(self, state, ctx):\n"
    block = '        import time\n        print("busy", flush=True)\n        time.sleep(300)\n'
    app = tmp_path / "watch.py"
    app.write_text(app.read_text().replace(line, line + block))
    with running_node(connected, "--no-project") as node:
        connected.run("publish", "host.seen", '{"host": "a"}')
        node.wait_said("busy")
        node.process.send_signal(signal.SIGINT)

        assert node.stop(signal.SIGTERM) == 128 + signal.SIGTERM


async def told_of_nodes(vigil) -> list[tuple[str, dict[str, object]]]:
    """Return what the server has of nodes, in order."""
    stack = vigil.environ["VIGIL_STACK"]
    client = await nats.connect(vigil.environ["VIGIL_NATS_URL"])
    try:
        found = await client.jetstream().pull_subscribe(f"{stack}.event.node.>")
        try:
            messages = await found.fetch(10, timeout=1)
        except NothingCame:
            messages = []
    finally:
        await client.close()
    prefix = f"{stack}.event."
    return [(each.subject.removeprefix(prefix), json.loads(each.data)) for each in messages]


def test_the_world_is_told_of_each_process_that_comes_and_goes_in_order(connected, write_app):
    write_app()
    with running_node(connected, "--node-name", "n1") as first:
        connected.wait_for("mode", until=lambda rows: rows)
        assert first.stop(signal.SIGTERM) == 0
    with running_node(connected, "--node-name", "n1") as second:
        connected.wait_for("mode", until=lambda rows: rows)
        second.stop(signal.SIGKILL)
    told = asyncio.run(told_of_nodes(connected))

    assert [name for name, _ in told] == ["node.started", "node.stopped", "node.started"]
    (_, came), (_, went), (_, again) = told
    assert (came["node"], came["actors"], came["mode"]) == ("n1", ["watcher"], "full")
    assert (went["since"], went["reason"], went["is_clean"]) == (came["since"], "signal", True)
    assert again["since"] > came["since"]

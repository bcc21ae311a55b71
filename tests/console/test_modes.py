"""`vigil mode` and `vigil actors`: what nodes do, said from the command line while they run."""

from __future__ import annotations

import signal
from contextlib import contextmanager

import pytest

LOG_UP = '"event": "node up"'
LOG_SWITCHED = '"event": "switched"'


@contextmanager
def running_node(vigil, *arguments: str, name: str = "n1"):
    command = ("node", "--app", "watch:app", "--log", "json", "--node-name", name, *arguments)
    with vigil.running(*command) as node:
        node.wait_said(LOG_UP)
        yield node


def is_there(seen) -> bool:
    return [each["state"] for each in seen["nodes"]] == ["up"]


def see(vigil, host: str) -> None:
    done = vigil.run("publish", "host.seen", f'{{"host": "{host}"}}')
    assert done.returncode == 0, done.stderr


def wait_episodes(vigil, **wanted: int) -> None:
    def counts(rows):
        return {status: [row["status"] for row in rows].count(status) for status in wanted}

    vigil.wait_for("episodes", "list", until=lambda rows: counts(rows) == wanted)


def test_a_node_that_only_triggers_leaves_its_episodes_to_others(connected, write_app):
    write_app()
    with running_node(connected, "--mode", "trigger_only"):
        (row,) = connected.wait_for("mode", until=is_there)["nodes"]
        assert (row["node"], row["mode"], row["said"]) == ("n1", "trigger_only", "its setting")
        assert (row["wakes"], row["runs"]) == (["watcher"], [])
        see(connected, "a")
        wait_episodes(connected, queued=1)
        with running_node(connected, "--no-project", name="n2"):
            wait_episodes(connected, done=1)
            (episode,) = connected.ask("episodes", "list")
            assert episode["node"] == "n2"


def test_what_is_said_of_a_node_holds_at_once_and_when_it_comes_back(connected, write_app):
    write_app()
    with running_node(connected, "--no-project") as node:
        said = connected.run("mode", "n1", "trigger_only", "--by", "ann")
        assert said.stdout == "n1: trigger_only\n", said.stderr
        node.wait_said(LOG_SWITCHED, times=2)
        assert node.stop(signal.SIGTERM) == 0
    (row,) = connected.ask("mode")["nodes"]
    assert (row["state"], row["mode"], row["by"]) == ("not up", "trigger_only", "ann")
    with running_node(connected, "--no-project"):
        (row,) = connected.wait_for("mode", until=is_there)["nodes"]
        assert (row["mode"], row["said"], row["runs"]) == ("trigger_only", "registry", [])
        assert connected.run("mode", "n1", "--reset").stdout == "n1: as it was started\n"
        connected.wait_for("mode", until=lambda seen: seen["nodes"][0]["runs"] == ["watcher"])


def test_a_mode_may_be_said_of_one_actor_and_of_a_node_that_is_not_up(connected):
    done = connected.run("mode", "later", "disabled", "--actor", "watcher")
    assert done.stdout == (
        "later, actor watcher: disabled; it is not up, and does so when it comes\n"
    )
    (row,) = connected.ask("mode", "later")["nodes"]
    assert (row["state"], row["actors"]) == ("not up", {"watcher": "disabled"})
    assert connected.run("mode", "later", "--reset", "--actor", "watcher").returncode == 0
    assert connected.ask("mode")["nodes"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("n1", "off"), "'off' is no mode; use full, trigger_only, disabled"),
        (("n1", "full", "--reset"), "either a mode or --reset"),
        (("--reset",), "say a node"),
        (("n1", "--actor", "a"), "--actor goes with"),
        (("not.a.name", "full"), "is not a name"),
    ],
)
def test_what_cannot_be_meant_is_refused(connected, words, says):
    done = connected.run("mode", *words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert says in done.stderr


def test_a_paused_actor_is_woken_when_it_is_resumed_and_drained_meanwhile(connected, write_app):
    write_app()
    with running_node(connected) as node:
        see(connected, "a")
        wait_episodes(connected, done=1)
        paused = connected.run("actors", "pause", "watcher", "--reason", "deploy", "--wait")
        assert paused.stdout.startswith("watcher: paused\n"), paused.stderr
        assert paused.stdout.endswith("watcher: drained\n")
        node.wait_said(LOG_SWITCHED, times=2)
        see(connected, "b")
        (actor,) = connected.wait_for("actors", "list", until=lambda rows: rows[0]["events"] == 1)
        assert (actor["actor_id"], actor["paused"], actor["domain"]) == (
            "watcher", "deploy", "hosts",
        )  # fmt: skip
        assert (actor["nodes"], actor["waking"], actor["running_on"]) == (["n1"], [], ["n1"])
        assert (actor["queued"], actor["running"], actor["commands"]) == (0, 0, 0)
        wait_episodes(connected, done=1)
        (line,) = connected.ask("mode")["paused"]
        assert (line["actor_id"], line["reason"]) == ("watcher", "deploy")
        assert connected.run("actors", "resume", "watcher").stdout == "watcher: resumed\n"
        assert connected.run("actors", "resume", "watcher").stdout == "watcher: was not paused\n"
        wait_episodes(connected, done=2)


def test_an_actor_shows_what_each_of_its_expectations_waits_for(connected, write_app, tmp_path):
    write_app()
    app = tmp_path / "watch.py"
    text = app.read_text().replace(
        'on=event("host.seen"), subject_key="host")',
        'on=[event("host.seen"), every("30d")], subject_key="host", cooldown_s=3600,'
        " breaker=Breaker())",
    )
    app.write_text(
        text.replace(
            "from engine import Actor,",
            "from engine.breaker import Breaker\nfrom engine.schedule import every\n"
            "from engine import Actor,",
        )
    )
    with running_node(connected):
        see(connected, "a")
        wait_episodes(connected, done=1)
        shown = connected.ask("actors", "show", "watcher")
        (look,) = shown["expectations"]
        assert look["triggers"] == ["event host.seen", "every 2592000s"]
        assert look["next_ticks"]["every 2592000s"] is not None
        assert (look["breaker"], look["cooling_down"], look["waiting_for_calm"]) == ("closed", 1, 0)
        assert look["options"]["cooldown_s"] == 3600
        for words in (("actors", "list"), ("actors", "show", "watcher"), ("mode",)):
            done = connected.run(*words)
            assert (done.returncode, "watcher" in done.stdout or "n1" in done.stdout) == (0, True)

        for words in (("show",), ("pause",), ("resume",)):
            unknown = connected.run("actors", *words, "nobody")
            assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
            assert "no node has an actor 'nobody'; known: watcher" in unknown.stderr


def test_without_postgres_actors_are_listed_without_their_episodes(connected, write_app):
    write_app()
    away = "postgresql://127.0.0.1:1/nothing"
    with running_node(connected, "--no-project"):
        done = connected.wait_for(
            "actors", "list", "--postgres-dsn", away, until=lambda rows: rows and rows[0]["nodes"]
        )
    assert (done[0]["queued"], done[0]["running"], done[0]["commands"]) == (None, None, 0)


def test_a_node_runs_what_was_opened_in_another_stack_and_wakes_nobody_there(connected, write_app):
    write_app()
    own = connected.environ["VIGIL_STACK"]
    other = f"{own[:28]}-qa"
    serving = ("--no-project", "--serve-stacks", other)
    with running_node(connected, "--mode", "trigger_only", "--stack", other, name="laptop"):
        connected.run("publish", "host.seen", '{"host": "a"}', "--stack", other)
        listing = ("episodes", "list", "--stack", other)
        connected.wait_for(*listing, until=lambda rows: len(rows) == 1)
        with running_node(connected, *serving, name="server") as server:
            assert f"also serves {other}" in server.said
            rows = connected.wait_for(*listing, "--status", "done", until=lambda rows: rows)
            seen = connected.ask("mode", "server", "--stack", other)
    assert rows[0]["node"] == "server"
    (guest,) = seen["nodes"]
    assert (guest["wakes"], guest["runs"]) == ([], ["watcher"])


def test_a_node_does_not_serve_its_own_stack_as_another(connected, write_app):
    write_app()
    own = connected.environ["VIGIL_STACK"]
    done = connected.run("node", "--app", "watch:app", "--serve-stacks", f"x,{own}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)

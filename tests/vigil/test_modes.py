"""`vigil mode` and `vigil actors`: what nodes do, said from the command line while they run."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import contextmanager

import pytest

from streams.jetstream import connect
from streams.subjects import Stack
from tests.vigil.test_command_line import one_line

LOG_UP = '"event": "node up"'
LOG_SWITCHED = '"event": "mode in force"'


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
        assert (row["node"], row["mode"], row["said"]) == ("n1", "trigger_only", "own setting")
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
        assert (row["mode"], row["said"], row["runs"]) == ("trigger_only", "order", [])
        assert connected.run("mode", "n1", "--reset").stdout == "n1: as it was started\n"
        connected.wait_for("mode", until=lambda seen: seen["nodes"][0]["runs"] == ["watcher"])


def test_a_mode_may_be_said_of_one_actor_and_of_a_node_that_is_not_up(standing):
    done = standing.run("mode", "later", "disabled", "--actor", "watcher")
    assert done.stdout == (
        "later, actor watcher: disabled; the node is not up, and takes this mode when it starts\n"
    )
    (row,) = standing.ask("mode", "later")["nodes"]
    assert (row["state"], row["actors"]) == ("not up", {"watcher": "disabled"})
    assert "watcher=disabled" in standing.run("mode").stdout
    assert standing.run("mode", "later", "--reset", "--actor", "watcher").returncode == 0
    assert standing.ask("mode")["nodes"] == []


def test_what_was_said_of_an_actor_that_no_node_has_any_more_can_be_taken_back(standing, write_app):
    standing.run("mode", "n1", "disabled", "--actor", "retired")
    write_app()
    with running_node(standing, "--no-project"):
        standing.wait_for("mode", until=is_there)
        said = standing.run("mode", "n1", "full", "--actor", "retired")
        back = standing.run("mode", "n1", "--reset", "--actor", "retired")
        again = standing.run("mode", "n1", "--reset", "--actor", "watcher")
        typo = standing.run("mode", "n1", "--reset", "--actor", "wacher")
    assert said.stdout == "n1, actor retired: full; no node that is up has it\n"
    assert back.stdout == "n1, actor retired: as it was started; no node that is up has it\n"
    assert again.stdout == "n1, actor watcher: there was no order\n"
    assert "did you mean watcher?" in one_line(typo, code=1)


def test_a_node_that_nobody_said_anything_about_is_as_it_was_started(standing, write_app):
    write_app()
    with running_node(standing, "--no-project"):
        standing.wait_for("mode", until=is_there)
        up = standing.run("mode", "n1", "--reset")
        for unknown in (standing.run("mode", "n2", "--reset"), standing.run("mode", "n2")):
            assert "no node 'n2' is up, and there is no order for it; known: n1" in one_line(
                unknown, code=1
            )
    assert (up.returncode, up.stdout) == (0, "n1: there was no order\n")


@pytest.mark.parametrize(
    "words",
    [
        ("mode",),
        ("mode", "n1", "disabled"),
        ("mode", "n1", "--reset"),
        ("actors", "list"),
        ("actors", "show", "watcher"),
        ("actors", "pause", "watcher"),
        ("actors", "resume", "watcher"),
        ("orders", "rebuild"),
        ("fire", "watcher", "look"),
        ("episodes", "cancel", "00000000-0000-0000-0000-000000000007"),
    ],
)
def test_a_stack_that_is_not_there_is_not_made_by_those_who_look_or_ask(connected, words):
    stack = connected.environ["VIGIL_STACK"]
    assert f"no stack '{stack}' on this server" in one_line(connected.run(*words), code=1)
    checks = json.loads(connected.run("doctor", "--json").stdout)["checks"]
    streams = [each for each in checks if each["what"].startswith("stream ")]
    assert streams
    assert all(each["status"] != "ok" for each in streams)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("n1", "off"), "'off' is no mode; use full, trigger_only, disabled"),
        (("n1", "full", "--reset"), "either a mode or --reset"),
        (("--reset",), "name a node"),
        (("n1", "--actor", "a"), "--actor needs a node"),
        (("not.a.name", "full"), "is not a name"),
        (("n1", "full", "--by", ""), "--by: give a name"),
    ],
)
def test_what_cannot_be_meant_is_refused(standing, words, says):
    done = standing.run("mode", *words)
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
        counts = ("queued", "running", "blocked", "commands")
        assert [actor[each] for each in counts] == [0, 0, 0, 0]
        wait_episodes(connected, done=1)
        (line,) = connected.ask("mode")["paused"]
        assert (line["actor_id"], line["reason"]) == ("watcher", "deploy")
        resumed = connected.run("actors", "resume", "watcher", "--by", "bob", "--reason", "done")
        assert resumed.stdout == "watcher: resumed\n"
        assert connected.run("actors", "resume", "watcher").stdout == "watcher: was not paused\n"
        wait_episodes(connected, done=2)
        about = ("orders", "list", "--actor", "watcher")
        rows = connected.wait_for(*about, until=lambda rows: len(rows) == 2)
        assert [(row["change"], row["reason"]) for row in rows] == [
            ("actor_resumed", "done"), ("actor_paused", "deploy"),
        ]  # fmt: skip
        assert rows[0]["person"] == "bob"


def test_whoever_stops_waiting_is_told_that_the_pause_stands(connected, write_app):
    write_app()
    with running_node(connected, "--mode", "trigger_only"):
        see(connected, "a")
        wait_episodes(connected, queued=1)
        with connected.running("actors", "pause", "watcher", "--wait") as program:
            program.wait_said("watcher: paused\n")
            code = program.stop(signal.SIGINT)

    assert code == 130
    assert "watcher stays paused; `vigil actors resume watcher` ends that" in program.said


def test_what_waits_for_a_paused_actor_with_a_lane_is_seen_and_what_is_due(
    connected, write_app, tmp_path
):
    write_app()
    app = tmp_path / "watch.py"
    limited = 'Actor("watcher", domain="hosts", max_concurrent_cluster=1)'
    app.write_text(app.read_text().replace('Actor("watcher", domain="hosts")', limited))
    with running_node(connected) as node:
        see(connected, "a")
        wait_episodes(connected, done=1)
        connected.run("actors", "pause", "watcher", "--wait")
        node.wait_said(LOG_SWITCHED, times=2)
        see(connected, "b")
        see(connected, "c")
        connected.run("fire", "watcher", "look", "--payload", '{"host": "d"}')
        (actor,) = connected.wait_for("actors", "list", until=lambda rows: rows[0]["events"] == 2)
        assert (actor["waking"], actor["due"], actor["commands"]) == ([], 1, 0)
        words = connected.run("actors", "show", "watcher").stdout
        assert "max_concurrent_cluster=1\n" in words
        connected.run("actors", "resume", "watcher")
        wait_episodes(connected, done=4)
        (actor,) = connected.ask("actors", "list")
        assert (actor["events"], actor["due"]) == (0, 0)


def test_an_actor_that_no_node_has_any_more_is_mentioned_all_the_same(
    connected, write_app, tmp_path
):
    write_app()
    with running_node(connected) as node:
        see(connected, "a")
        wait_episodes(connected, done=1)
        assert node.stop(signal.SIGTERM) == 0
    app = tmp_path / "watch.py"
    app.write_text(app.read_text().replace('Actor("watcher"', 'Actor("another"'))
    with running_node(connected, "--no-project"):
        connected.wait_for("mode", until=is_there)
        fired = connected.run("fire", "watcher", "look")
        assert one_line(fired, code=0) == "vigil: watcher: no node that is up has it; it waits\n"
        paused = connected.run("actors", "pause", "watcher")
        assert paused.stdout == "watcher: paused; no node that is up has it\n"
        shown = connected.ask("actors", "show", "watcher")
        assert (shown["nodes"], shown["due"], shown["expectations"]) == ([], 1, [])
        words = connected.run("actors", "show", "watcher")
        assert "nothing found" not in words.stderr


def test_an_actor_shows_what_each_of_its_expectations_waits_for(connected, write_app, tmp_path):
    write_app()
    app = tmp_path / "watch.py"
    text = app.read_text().replace(
        'on=event("host.seen"), subject_key="host")',
        'on=[event("host.seen"), every("30d")], subject_key="host", cooldown_s=3600,'
        " breaker=Breaker(threshold=3))",
    )
    app.write_text(
        text.replace(
            "from vigil import Actor,",
            "from vigil import Breaker, every\nfrom vigil import Actor,",
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
        said = connected.run("actors", "show", "watcher").stdout
        assert "cooldown_s=3600, breaker.threshold=3\n" in said.replace(" \n", "\n")
        assert "event host.seen, every 30d (next in " in " ".join(said.split())
        for words in (("actors", "list"), ("actors", "show", "watcher"), ("mode",)):
            done = connected.run(*words)
            assert (done.returncode, "watcher" in done.stdout or "n1" in done.stdout) == (0, True)

        for words in (("show",), ("pause",), ("resume",)):
            unknown = connected.run("actors", *words, "nobody")
            assert (unknown.returncode, unknown.stderr.count("\n")) == (1, 1)
            assert "nobody knows an actor 'nobody'; known: watcher" in unknown.stderr


def test_without_postgres_actors_are_listed_without_their_episodes(connected, write_app):
    write_app()
    away = "postgresql://127.0.0.1:1/nothing"
    with running_node(connected, "--no-project"):
        done = connected.wait_for(
            "actors", "list", "--postgres-dsn", away, until=lambda rows: rows and rows[0]["nodes"]
        )
    counts = ("queued", "running", "blocked", "commands")
    assert [done[0][each] for each in counts] == [None, None, None, 0]


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


def test_a_name_near_that_of_a_node_which_is_up_may_have_been_meant(standing, write_app):
    write_app()
    with running_node(standing, "--no-project"):
        standing.wait_for("mode", until=is_there)
        typo = standing.run("mode", "n12", "disabled")
        meant = standing.run("mode", "n12", "disabled")
        other = standing.run("mode", "backup", "disabled")
    waits = "disabled; the node is not up, and takes this mode when it starts"
    assert typo.stdout == f"n12: {waits}; did you mean n1?\n"
    assert meant.stdout == f"n12: {waits}\n"
    assert other.stdout == f"backup: {waits}\n"


def test_a_copy_that_is_not_as_ordered_is_found_and_made_so(standing):
    def checks():
        found = json.loads(standing.run("doctor", "--json").stdout)["checks"]
        return {each["what"]: (each["status"], each["says"]) for each in found}

    standing.run("mode", "n1", "trigger_only", "--by", "ann", "--reason", "a deploy")
    assert checks()["orders"] == ("ok", "nodes see what was ordered")
    asyncio.run(overwrite(standing, "mode.n1", b'{"mode":"disabled"}'))
    says = "is in the registry, but not as it was ordered"
    assert checks()["mode.n1"] == ("problem", says)

    dry = standing.run("orders", "rebuild", "--dry-run", "--json")
    assert json.loads(dry.stdout) == [{"order_key": "mode.n1", "problem": says}]
    assert standing.run("orders", "rebuild").returncode == 0

    assert checks()["orders"][0] == "ok"
    (row,) = standing.ask("mode")["nodes"]
    assert (row["mode"], row["by"], row["reason"]) == ("trigger_only", "ann", "a deploy")
    again = standing.run("orders", "rebuild")
    assert (again.returncode, again.stderr) == (0, "nothing to do: nodes see what was ordered\n")


async def overwrite(vigil, key: str, value: bytes) -> None:
    stack = Stack(vigil.environ["VIGIL_STACK"])
    async with connect(vigil.environ["VIGIL_NATS_URL"], stack=stack) as ports:
        await ports.registry.put(key, value)

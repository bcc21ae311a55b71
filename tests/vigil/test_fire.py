"""An episode by hand, as an operator asks for it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import UUID

import pytest

from engine.app.tools import overrides
from streams.clock import SystemClock
from tests.vigil.program import NOWHERE, Vigil
from tests.vigil.test_command_line import one_line
from vigil.commands.fire import overrides_of, time_of
from vigil.options import read_object


@contextmanager
def serving(vigil: Vigil) -> Iterator[None]:
    """A node and its rows are up meanwhile."""
    with vigil.running("node", "--app", "watch:app") as program:
        program.wait_said("node up")
        vigil.wait_for("episodes", "list", until=lambda _: True)
        yield


def test_a_payload_and_overrides_may_be_in_a_file(tmp_path):
    (tmp_path / "payload").write_text('{"host": "h1"}')
    (tmp_path / "overrides").write_text('{"synthesis": "fine"}')
    assert read_object(f"@{tmp_path}/payload", what="--payload") == {"host": "h1"}
    assert overrides_of(f"@{tmp_path}/overrides") == overrides(synthesis="fine")


def test_a_time_is_said_with_its_zone_or_as_a_delay():
    assert time_of(None, None) is None
    assert time_of("2030-01-31T09:00:00+01:00", None) == datetime(2030, 1, 31, 8, tzinfo=UTC)
    later = time_of(None, "1h")
    assert later is not None
    assert later > SystemClock().now()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--payload", "[1]"), "--payload: a list, not a JSON object"),
        (("--payload", "{"), "--payload: not JSON"),
        (("--payload", "@nowhere.json"), "--payload: nowhere.json: No such file"),
        (("--overrides", '{"tool": 1}', "--dry-run"), "--overrides: no field 'tool'"),
        (("--by", ""), "--by: give a name, or leave it out"),
        (("--at", "tomorrow"), "--at: 'tomorrow' is not a time, such as"),
        (("--at", "2030-01-31T09:00"), "is in no time zone; write Z"),
        (("--in", "90"), "--in: '90': write 90s, 15m or 2d"),
        (("--in", "400d"), "--in: '400d'"),
        (
            ("--budget", "dollars=0.01"),
            "--budget: 'dollars=0.01': write turns=5,wall_s=60,usd=0.50; the limits are",
        ),
        (("--budget", "turns=5,"), "--budget: '': write turns=5,wall_s=60,usd=0.50"),
        (("--budget", "turns=2.5"), "--budget: turns: '2.5' is not a whole number"),
        (("--budget", "usd=1e"), "--budget: usd: '1e' is no sum of dollars"),
        (("--budget", "wall_s=1m"), "--budget: wall_s: '1m' is not a number of seconds"),
        (("--log-strategy", "loud"), "--log-strategy"),
        (("--revision", "-1"), "--revision"),
        (("--in", "1m", "--at", "2030-01-31T09:00:00Z"), "--at and --in both give the time"),
    ],
)
def test_words_that_cannot_work_are_one_line_before_any_server_is_asked(vigil, options, why):
    code = 1 if "No such file" in why else 2
    assert why in one_line(vigil.run("fire", "watcher", "look", *options, **NOWHERE), code=code)


def test_a_payload_over_the_limit_is_refused(vigil):
    payload = b'{"a": "%s"}' % (b"x" * 512 * 1024)
    done = vigil.run("fire", "watcher", "look", "--payload", "-", stdin=payload, **NOWHERE)
    assert "--payload: over 524,288 bytes" in one_line(done, code=2)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--overrides", "{}"), "overrides: only a dry run has any"),
        (("--priority", "1001"), "priority: 1001 is not a whole number"),
        (("--key", ""), "key: 0 characters"),
        (("--at", "2300-01-01T00:00:00Z"), "at: "),
        (("--budget", "turns=-1"), "budget: turns=-1 is below 0; use 0 for no limit"),
        (("--budget", "wall_s=nan"), "budget: wall_s=nan is not a number of seconds"),
    ],
)
def test_a_request_that_cannot_work_is_refused(standing, options, why):
    assert why in one_line(standing.run("fire", "watcher", "look", *options), code=2)


def test_a_request_waits_for_a_node_and_one_key_is_one_episode(standing, write_app):
    write_app()
    asked = ("fire", "watcher", "look", "--payload", '{"host": "h1"}', "--key", "k1")
    early = [standing.run(*asked) for _ in range(2)]
    first, again = (done.stdout.strip() for done in early)
    assert UUID(first) == UUID(again)
    for each in early:
        assert one_line(each, code=0) == "vigil: watcher: no node that is up has it; it waits\n"

    with serving(standing):
        done = standing.run(*asked, "--wait")
        (episode,) = standing.ask("episodes", "list")

        over = standing.run(*asked)
        as_json = standing.ask(*asked)
        other = standing.ask(*asked[:-1], "k2")

    assert (done.returncode, done.stdout.splitlines()) == (0, [first, "done: h1 was seen"])
    assert (over.returncode, over.stdout) == (0, f"{first}\n")
    assert "vigil: watcher: nothing new began: key 'k1' was used before, at 20" in over.stderr
    assert (as_json["episode_id"], as_json["is_new"]) == (first, False)
    assert other["is_new"] is True
    assert (episode["episode_id"], episode["summary"]) == (first, "h1 was seen")


def test_a_dry_run_is_waited_for_and_finds_nothing_that_is_meant(connected, write_app):
    write_app()
    asked = ("fire", "watcher", "look", "--payload", '{"host": "h1"}', "--dry-run")
    with serving(connected):
        left_out = connected.ask(*asked, "--wait")
        kept = {"persist_findings": True}
        apart = connected.ask(*asked, "--wait", "--overrides", json.dumps(kept))
        findings = connected.ask("findings", "list")

    assert (left_out["mode"], left_out["status"]) == ("dry_run", "done")
    assert apart["status"] == "done"
    assert [finding["finding_key"] for finding in findings] == ["dry_run:host:h1"]


def test_the_limits_of_one_episode_are_shown_with_it(connected, write_app):
    write_app()
    asked = ("fire", "watcher", "look", "--payload", '{"host": "h1"}', "--wait")
    with serving(connected):
        fired = connected.ask(
            *asked, "--budget", "turns=5, wall_s=60, usd=0.10", "--log-strategy", "timeline"
        )
        episode = connected.ask("episodes", "show", fired["episode_id"])

    assert episode["budget"] == {"turns": 5, "tokens": 25_000, "wall_s": 60.0, "usd": "0.10"}
    assert episode["log_strategy"] == "timeline"


def test_a_revision_of_what_was_never_applied_is_refused(connected, write_app):
    write_app()
    with serving(connected):
        done = connected.run("fire", "watcher", "look", "--revision", "2")
    assert "'watcher' was never applied, and has no revisions" in one_line(done, code=1)


def test_an_episode_that_fails_is_exit_code_1(connected, write_app):
    write_app()
    with serving(connected):
        done = connected.run("fire", "watcher", "look", "--wait")  # It looks for a host.
        listed = connected.run("episodes", "list")

    assert done.returncode == 1
    assert done.stdout.splitlines()[1] == "failed: crash: KeyError: 'host'"
    assert "KeyError: 'host'" in listed.stdout


def test_who_has_waited_long_enough_is_told_that_it_goes_on(standing, write_app):
    write_app()
    asked = ("fire", "watcher", "look", "--payload", '{"host": "h1"}', "--key", "k", "--wait")
    with standing.running(*asked) as program:
        said = program.wait_said("it waits")
        code = program.stop(signal.SIGINT)

    id_ = said.splitlines()[0]
    assert code == 130, program.said
    assert f"vigil: it goes on; `vigil episodes show {id_}` shows how far it is" in program.said


def test_a_misspelled_name_is_refused_while_a_node_is_up(connected, write_app):
    write_app()
    with serving(connected):
        expectation = connected.run("fire", "watcher", "lok")
        actor = connected.run("fire", "wacher", "look")

    assert "did you mean look?" in one_line(expectation, code=1)
    assert "nobody knows an actor 'wacher'; did you mean watcher?" in one_line(actor, code=1)


def test_a_fire_that_is_waited_for_says_that_nothing_can_happen_and_for_how_long(
    connected, write_app
):
    write_app()
    with serving(connected):
        connected.run("actors", "pause", "watcher", "--reason", "deploy")
        done = connected.run("fire", "watcher", "look", "--wait", "--timeout", "0")

    why, late = done.stderr.splitlines()
    assert why == "vigil: watcher: it is paused (deploy); it waits"
    assert late.endswith("is still not opened after 0 s")
    assert done.returncode == 1

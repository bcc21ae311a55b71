"""What an operator is told who answers what no node that is up can rule on, on real servers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mistakes.test_commands import UNHEARD
from tests.vigil.defining import done
from tests.vigil.program import Running, Vigil
from tests.vigil.test_command_line import one_line

ASKING = """
id: disk_watch
expectations:
  disk_is_healthy:
    on: {manual: true}
    strategy: {ref: parts:Ask}
"""

FLOW = """
name: review
steps:
  look: {actor: clerk, expectation: look, requires_approval: true}
"""

HOUR = "stays in the queue for about an hour, then it is a dead letter to requeue\n"


@contextmanager
def node(vigil: Vigil, app: str, name: str) -> Iterator[Running]:
    """A node is up meanwhile."""
    with vigil.running("node", "--app", f"parts:{app}", "--node-name", name) as program:
        program.wait_said("node up")
        yield program


def asked(vigil: Vigil, files: Path) -> str:
    """Return the id of an episode that asks people, once its node has stopped."""
    (files / "asking.yaml").write_text(ASKING)
    with node(vigil, "app", "able") as program:
        done(vigil, "apply", "asking.yaml")
        id_ = done(vigil, "fire", "disk_watch", "disk_is_healthy").strip()
        vigil.wait_for("episodes", "show", id_, until=lambda row: row["status"] == "blocked")
        assert program.stop(signal.SIGTERM) == 0
    return id_


def status(vigil: Vigil, id_: str) -> str:
    return vigil.wait_for("episodes", "show", id_, until=lambda row: row["finished_at"])["status"]


def test_a_decision_that_a_node_cannot_rule_on_says_why_and_one_that_can_rules_on_it(
    connected, files
):
    id_ = asked(connected, files)
    with node(connected, "poor", "poor") as program:
        program.wait_said("stands in")
        connected.wait_for("actors", "show", "disk_watch", until=lambda row: row["problems"])
        decided = connected.run("episodes", "deny", id_, "--yes", "--by", "ann")
        line = one_line(decided, code=1)
        with node(connected, "app", "able"):
            assert status(connected, id_) == "canceled"

    assert decided.stdout == f"{id_}: sent; a node decides on it\n"
    assert line.startswith(
        "vigil: no node that is up runs revision 1 of actor 'disk_watch' (poor: "
        "expectations.disk_is_healthy.strategy.ref: there is no 'parts:Ask'"
    )
    assert line.endswith(HOUR)


def test_a_decision_on_what_was_disabled_is_ruled_on_or_says_who_could_not(connected, files):
    id_ = asked(connected, files)
    done(connected, "actors", "disable", "disk_watch", "--yes")
    with node(connected, "poor", "poor") as program:
        program.wait_said("stands in")
        decided = connected.run("episodes", "deny", id_, "--yes", "--timeout", "1")
        line = one_line(decided, code=1)
        with node(connected, "app", "able"):
            assert status(connected, id_) == "canceled"

    assert "is sure to run revision 1 of actor 'disk_watch' (poor: it is disabled, and" in line
    assert line.endswith(HOUR)


def test_what_is_said_to_an_instance_of_a_disabled_workflow_is_waited_for(connected, files):
    (files / "flow.yaml").write_text(FLOW)
    with node(connected, "app", "able"):
        done(connected, "apply", "flow.yaml")
        id_ = done(connected, "workflows", "start", "review").strip()
        connected.wait_for(
            "workflows", "show", id_, until=lambda row: row["steps"][0]["status"] != "waiting"
        )
        done(connected, "workflows", "disable", "review", "--yes")
        canceled = connected.run("workflows", "cancel", id_)

    assert (canceled.returncode, canceled.stdout, canceled.stderr) == (
        0,
        f"{id_}: to be canceled\n",
        "",
    )


def test_a_node_that_is_switched_off_sees_to_nothing_of_a_disabled_workflow(connected, files):
    (files / "flow.yaml").write_text(FLOW)
    with node(connected, "app", "vm"):
        done(connected, "apply", "flow.yaml")
        id_ = done(connected, "workflows", "start", "review").strip()
        connected.wait_for(
            "workflows", "show", id_, until=lambda row: row["steps"][0]["status"] != "waiting"
        )
        done(connected, "workflows", "disable", "review", "--yes")
        done(connected, "mode", "vm", "disabled")
        connected.wait_for(
            "mode", until=lambda rows: [each["mode"] for each in rows["nodes"]] == ["disabled"]
        )
        canceled = connected.run("workflows", "cancel", id_)

    assert one_line(canceled, code=1) == (
        "vigil: no node that is up runs workflow 'review' (vm: it is in mode disabled, and runs"
        " nothing); `vigil mode vm full`, or start one that does: what was asked for stays in the"
        " queue until then, and is ruled on then\n"
    )


def test_an_event_that_no_live_node_listens_to_is_told_when_it_is_published(connected, write_app):
    write_app()
    with connected.running("node", "--app", "watch:app", "--node-name", "n1") as program:
        program.wait_said("node up")
        heard = connected.run("publish", "host.seen", '{"host": "web-1"}')
        unheard = connected.run("publish", "host.sen", '{"host": "web-1"}')
        several = connected.run("publish", "host.sen", "--lines", stdin=b'{"host": "web-1"}')
        forged = connected.run("publish", "finding.raised", "{}")
        forged_lines = connected.run("publish", "finding.raised", "--lines", stdin=b"{}")
    assert (heard.returncode, heard.stderr) == (0, "")
    problem = f"{UNHEARD.said}\n"
    assert (unheard.returncode, unheard.stderr) == (0, problem)
    assert (several.returncode, several.stderr) == (0, problem)
    warning = "warning: the engine publishes 'finding.raised' itself; who listens takes this"
    assert forged.stderr.splitlines()[-1].startswith(warning)
    assert forged_lines.stderr.splitlines()[-1].startswith(warning)


def test_without_a_node_nobody_knows_who_listens(standing):
    assert standing.run("publish", "host.sen", "{}").stderr == ""

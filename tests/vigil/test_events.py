"""What people are told of an event: why it fired nothing, and what other rules would have done."""

from __future__ import annotations

import json

import pytest

from tests.mistakes.test_commands import UNKNOWN_NAMES
from tests.vigil.program import Vigil
from tests.vigil.test_command_line import one_line

APP = """
from __future__ import annotations

from dataclasses import dataclass

from vigil import Actor, App, ConvergeResult, event, gt


@dataclass
class Disk:
    used: int


async def look(ctx, trigger):
    return ConvergeResult(summary="looked")


watcher = Actor("watcher")
watcher.expect(
    "disk", look, on=event("disk.measured", filter={"used": gt(90)}), subject_key="host"
)
app = App(actors=[watcher])
"""

RULE = """
id: watcher
expectations:
  disk:
    on: {event: disk.measured, filter: {used: {gt: 50}}}
    subject_key: host
    cooldown_s: 3600
    strategy: {ref: look}
"""


@pytest.fixture
def told(connected: Vigil) -> Vigil:
    """A stack whose only expectation has seen two events, and fired for one."""
    (connected.folder / "watch.py").write_text(APP)
    (connected.folder / "rule.yaml").write_text(RULE)
    with connected.running("node", "--app", "watch:app") as node:
        node.wait_said("node up")
        for used in (95, 60, 55):
            body = json.dumps({"host": "web-1", "used": used})
            assert (
                connected.run("publish", "disk.measured", body, "--id", f"x{used}").returncode == 0
            )
        assert connected.run("publish", "disk.lost", "{}", "--id", "lost").returncode == 0
        connected.wait_for("actors", "why", "watcher", "disk", until=lambda rows: len(rows) == 2)
        yield connected


def test_what_is_asked_of_events_is_told(told: Vigil):
    (newest, oldest) = told.ask("actors", "why", "watcher", "disk")
    assert (newest["event_id"], oldest["event_id"]) == ("x55", "x60")
    assert newest["compared_with"] == "filter used > 90: the event has 55"
    assert newest["against"] == {
        "kind": "filter",
        "path": "used",
        "wanted": {"gt": 90},
        "found": 55,
    }
    assert len(told.ask("actors", "why", "watcher", "disk", "--limit", "1")) == 1

    fired = told.ask("events", "why", "x95")
    assert fired["event"] == "disk.measured"
    assert [each["outcome"] for each in fired["verdicts"]] == ["opened"]
    (refused,) = told.ask("events", "why", "x60")["verdicts"]
    assert (refused["outcome"], refused["refusal"]["reason"]) == ("refused", "filter")
    assert "used > 90" in told.run("events", "why", "x60").stdout
    assert "watches 'disk.lost'" in told.ask("events", "why", "lost")["why_none"]
    assert "no event 'never'" in told.run("events", "why", "never").stderr

    same = told.ask("events", "would", "--file", "watch.py:app")
    assert (same["events"] >= 4, same["is_whole"]) == (True, True)
    assert {each["ruling"]: each["events"] for each in same["counts"]} == {"fire": 1, "filter": 2}
    assert [each["event_id"] for each in same["first"]] == ["x95"]
    assert same["first"][0]["episode_id"] == fired["verdicts"][0]["episode_id"]

    other = told.ask("events", "would", "--file", "rule.yaml", "--ruling", "cooldown")
    assert {each["ruling"]: each["events"] for each in other["counts"]} == {
        "fire": 1,
        "cooldown": 2,
    }
    assert [each["event_id"] for each in other["first"]] == ["x60", "x55"]
    short = told.run("events", "would", "--file", "rule.yaml", "--limit", "2")
    assert "there are more, which --limit 2 leaves out" in short.stderr
    assert told.ask("events", "would", "--file", "rule.yaml", "--since", "0s")["events"] == 0


def test_a_name_that_nobody_knows_is_refused(connected):
    (connected.folder / "watch.py").write_text(APP)
    with connected.running("node", "--app", "watch:app") as node:
        node.wait_said("node up")
        for each in UNKNOWN_NAMES:
            assert each.said in one_line(connected.run(*each.done.split()[1:]), code=1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--file", "no.py"), "--file no.py: there is no such file"),
        (("--file", "watch.py:apps"), "--file watch.py:apps: no App in it"),
        (("--file", "bad.py"), "ZeroDivisionError"),
        (("--file", "rule.yaml", "--actor", "watchr"), "rule.yaml has no actor 'watchr'"),
        (("--file", "rule.yaml", "--since", "soon"), "--since: 'soon' is not a time"),
        (("--file", "hand.yaml"), "no expectation in it is fired by events of the stack"),
    ],
)
def test_rules_that_cannot_be_tried_are_refused(vigil, arguments, problem):
    (vigil.folder / "watch.py").write_text(APP)
    (vigil.folder / "bad.py").write_text("1 / 0\n")
    (vigil.folder / "rule.yaml").write_text(RULE)
    hand = RULE.replace("{event: disk.measured, filter: {used: {gt: 50}}}", "{manual: true}")
    (vigil.folder / "hand.yaml").write_text(hand.replace("    cooldown_s: 3600\n", ""))
    assert problem in one_line(vigil.run("events", "would", *arguments), code=2)

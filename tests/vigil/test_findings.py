"""What operators do to findings, and what they are told, on real servers."""

from __future__ import annotations

import asyncio
import re

import pytest

from engine.app import findings
from engine.app.findings import clear_finding, raise_finding
from engine.findings.apply import FindingApplier
from engine.runtime.store import Turns
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.subjects import Stack
from tests.engine.stage import Scripted, app_of, opening
from tests.vigil.program import Vigil
from tests.vigil.test_command_line import one_line

CLOCK = SystemClock()
APP = app_of(Scripted())


def carry_out(vigil: Vigil, *intents: findings.RaiseFinding | findings.ClearFinding) -> None:
    """Have an episode of the stack intend something."""
    stack = Stack(vigil.environ["VIGIL_STACK"])

    async def run() -> None:
        async with connect(vigil.environ["VIGIL_NATS_URL"], stack=stack) as ports:
            applier = FindingApplier(ports, APP.actors, CLOCK, Turns())
            await applier.apply(intents, opened=opening(APP), attempt=1)

    asyncio.run(run())


def said(vigil: Vigil, *words: str) -> str:
    done = vigil.run("findings", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_finding_is_judged_by_people_and_each_is_told_what_came_of_it(connected):
    carry_out(connected, raise_finding("disk", class_="full"))

    assert said(connected, "ack", "disk", "--by", "ann") == "disk: acknowledged by ann"
    again = "disk: nothing to do, ann has acknowledged it"
    assert said(connected, "ack", "disk", "--by", "bob") == again
    assert said(connected, "note", "disk", "ordered a disk", "--by", "bob") == "disk: noted"
    cleared = said(connected, "clear", "disk", "--by", "bob", "--reason", "larger")
    assert cleared == "disk: cleared by bob"
    again = r"disk: nothing to clear, it was cleared at 20\S+ \d\d:\d\d:\d\d UTC by bob"
    assert re.fullmatch(again, said(connected, "clear", "disk"))


def test_who_acknowledges_what_has_ended_is_told_that_nothing_was_noted(connected):
    carry_out(connected, raise_finding("disk", class_="full"))
    said(connected, "clear", "disk", "--by", "bob")
    line = one_line(connected.run("findings", "ack", "disk", "--by", "ann"), code=1)
    assert "disk: nothing to acknowledge, it was cleared at 20" in line


def test_what_was_raised_anew_since_can_be_listed(connected):
    carry_out(connected, raise_finding("disk", class_="full"))
    said(connected, "clear", "disk")
    carry_out(connected, raise_finding("disk", class_="full"))
    asked = ("findings", "list", "--status", "superseded")
    with connected.running("project"):
        (row,) = connected.wait_for(*asked, until=lambda rows: len(rows) == 1)
    assert (row["finding_key"], row["status"]) == ("disk", "superseded")


def test_the_rows_show_who_did_what_and_why(connected):
    carry_out(connected, raise_finding("disk", class_="full"))
    said(connected, "clear", "disk", "--by", "bob", "--reason", "larger")
    with connected.running("project"):
        shown = connected.wait_for(
            "findings", "show", "disk", until=lambda row: row["status"] == "cleared"
        )
    assert (shown["cleared_by"], shown["cleared_reason"]) == ("bob", "larger")
    cleared, raised = shown["history"]
    assert (cleared["kind"], cleared["person"]) == ("finding_cleared", "bob")
    assert raised["person"] is None


def test_what_an_episode_has_cleared_says_so(connected):
    carry_out(connected, raise_finding("disk", class_="full"), clear_finding("disk"))
    assert said(connected, "clear", "disk").endswith("by its actor")


@pytest.mark.parametrize("words", [("clear", "dsk"), ("ack", "dsk"), ("note", "dsk", "why")])
def test_a_key_that_nobody_has_raised_is_one_line_with_a_hint(standing, words):
    line = one_line(standing.run("findings", *words), code=2)
    assert "no finding 'dsk' in stack" in line
    assert "`vigil findings list --status all`" in line


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("clear", ""), "not a key"),
        (("note", "disk", "x" * 4_001), "reason: 4,001 characters"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_line(standing, words, why):
    assert why in one_line(standing.run("findings", *words), code=2)


def test_a_finding_is_shown_with_what_explains_it(connected):
    carry_out(
        connected,
        raise_finding("power", class_="off"),
        raise_finding("rack", class_="off", caused_by="power"),
        raise_finding("disk", class_="gone", caused_by="rack"),
    )
    with connected.running("project"):
        rows = connected.wait_for("findings", "chain", "disk", until=lambda rows: len(rows) == 3)
    assert [row["finding_key"] for row in rows] == ["disk", "rack", "power"]
    short = connected.ask("findings", "chain", "disk", "--depth", "1")
    assert [row["finding_key"] for row in short] == ["disk", "rack"]
    assert "no finding 'x'" in one_line(connected.run("findings", "chain", "x"), code=1)

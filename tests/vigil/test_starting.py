"""Instances that a person asks for and that do not begin: whoever asks is told at once, and why."""

from __future__ import annotations

import pytest

from tests.vigil.test_command_line import one_line
from tests.vigil.test_workflows import serving, started

APP = '''
"""A workflow that has one instance at a time for each client, and asks before it does anything."""

from vigil import Actor, App, ConvergeResult, Strategy, Workflow, converge, workflow


class Do(Strategy):
    def init(self, episode, trigger):
        return {}

    def next_step(self, state, ctx):
        return converge()

    def converge(self, state, ctx):
        return ConvergeResult()


clerk = Actor("clerk")
clerk.expect("pay", Do, on=workflow())
review = Workflow("review", subject_key="client", overlap="skip")
review.step("pay", "clerk", "pay", requires_approval=True)
app = App(actors=[clerk], workflows=[review])
'''

ANN = '{"client": "ann"}'
WAYS = [(), ("--wait",), ("--json",), ("--wait", "--json")]


def test_a_start_that_begins_nothing_names_the_instance_that_is_busy(connected):
    with serving(connected, APP):
        busy = started(connected, "--payload", ANN, "--key", "first")
        ask = ("workflows", "start", "review", "--payload", ANN)
        refused = [connected.run(*ask, *way) for way in WAYS]
        again = started(connected, "--payload", ANN, "--key", "first")
        other = started(connected, "--payload", '{"client": "bob"}')

    why = f"vigil: review: no instance begins: instance {busy} was not over\n"
    assert [(one_line(each, code=1), each.stdout) for each in refused] == [(why, "")] * len(WAYS)
    assert again == busy
    assert other != busy


def test_a_key_that_began_nothing_is_told_to_be_of_no_more_use(connected):
    ask = ("workflows", "start", "review", "--payload", ANN, "--key", "second")
    with serving(connected, APP):
        busy = started(connected, "--payload", ANN)
        refused = connected.run(*ask)
        connected.run("workflows", "cancel", busy)
        connected.wait_for("workflows", "show", busy, until=lambda row: row["status"] == "canceled")
        again = [connected.run(*ask, *way) for way in WAYS]

    why = f"instance {busy} was not over; once it is, use another --key"
    line = f"vigil: review: no instance begins: {why}\n"
    assert [one_line(each, code=1) for each in (refused, *again)] == [line] * 5


def test_a_start_says_why_its_workflow_cannot_begin(connected):
    with serving(connected, APP):
        options = ("--dry-run", "--step-overrides", '{"nope": {}}')
        refused = connected.run("workflows", "start", "review", *options)

    why = "workflow_not_started: step_overrides: there is no step 'nope'"
    assert one_line(refused, code=1) == f"vigil: review: no instance begins: {why}\n"


@pytest.mark.parametrize("way", [(), ("--json",)])
def test_a_start_that_no_node_can_take_now_stays_asked_for(standing, way):
    asked = standing.run("workflows", "start", "review", *way)
    assert (asked.returncode, asked.stdout != "") == (0, True)
    assert "it waits" in one_line(asked, code=0)


def test_who_waits_for_a_start_learns_that_another_instance_is_busy(connected):
    paused = ("actors", "pause", "workflow-review")
    with serving(connected, APP):
        busy = started(connected, "--payload", ANN)
        connected.run(*paused)
        ask = ("workflows", "start", "review", "--payload", ANN, "--wait")
        with connected.running(*ask) as waiting:
            waiting.wait_said("it is paused")
            connected.run("actors", "resume", "workflow-review")
            waiting.wait_said("no instance begins")

    assert f"instance {busy} was not over" in waiting.said

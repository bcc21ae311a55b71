"""What people are told to type next, where something is shown that waits for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vigil.commands import actors, findings, outputs, workflows
from vigil.commands.episodes import replay

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
INSTANCE = "77e1d2c3-b4a5-4968-8778-695a4b3c2d1e"


@pytest.mark.parametrize(
    ("status", "attempts", "todo"),
    [
        ("awaiting_approval", 0, ["approve 'k 1'", "reject --reason '…' 'k 1'"]),
        ("proposed", 0, None),
        ("proposed", 2, ["retry 'k 1'", "cancel 'k 1'"]),
        ("failed", 5, ["retry 'k 1'"]),
        ("delivered", 1, None),
    ],
)
def test_an_output_says_what_can_be_done_about_it(status, attempts, todo):
    row = {"status": status, "attempts": attempts, "output_key": "k 1"}
    said = outputs.what_to_do(row)
    assert said == (todo and "\n".join(f"vigil outputs {each}" for each in todo))


@pytest.mark.parametrize(
    ("status", "by", "todo"),
    [
        ("active", None, "vigil findings ack -- -k\nvigil findings clear -- -k"),
        ("active", "ann", "vigil findings clear -- -k"),
        ("cleared", None, None),
    ],
)
def test_a_finding_that_is_active_says_how_to_answer_it(status, by, todo):
    row = {"status": status, "acknowledged_by": by, "finding_key": "-k"}
    assert findings.what_to_do(row) == todo


@pytest.mark.parametrize(
    ("status", "todo"),
    [
        ("awaiting_approval", ["approve {} verify", "deny --reason '…' {} verify"]),
        ("paused", ["resume {} verify --retry", "resume {} verify --skip"]),
        ("retrying", []),
    ],
)
def test_an_instance_says_what_its_first_step_that_waits_needs(status, todo):
    steps = [{"step_id": "drain", "status": "done"}, {"step_id": "verify[0]", "status": status}]
    said = workflows.what_to_do({"instance_id": INSTANCE}, steps)
    wanted = [f"vigil workflows {each.format('77e1d2c3-b4a5')}" for each in todo]
    assert said.splitlines() == wanted


@pytest.mark.parametrize(
    ("paused", "source", "state"),
    [
        ("", "code", ""),
        ("by ann", "code", "paused by ann"),
        ("deploy", "disabled", "paused: deploy, disabled"),
    ],
)
def test_an_actor_is_listed_as_paused_and_as_disabled(paused, source, state):
    assert actors.state_of({"paused": paused, "source": source}) == state


def test_the_next_tick_of_a_schedule_stands_beside_it():
    row = {
        "triggers": ["event a.b", "every 2592000s"],
        "next_ticks": {"every 2592000s": NOW + timedelta(seconds=30)},
        "breaker": "closed",
    }
    assert actors.with_ticks(row, NOW) == {
        "triggers": ["event a.b", "every 30d (next in 30s)"],
        "next_ticks": {},
        "breaker": "closed (ok)",
    }


@pytest.mark.parametrize(
    ("call", "path", "what"), [("1.2 disk.read", "1.2", "disk.read"), ("wait", "", "wait")]
)
def test_a_call_in_a_journal_is_its_path_and_what_was_called(call, path, what):
    assert replay.parts_of(call) == {"path": path, "what": what}

"""What `vigil episodes show` says of an episode that waits."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from vigil.commands.episodes.show import _asked, _budget, _used, _what, what_to_do, would_have

ID = UUID(int=7)
SINCE = datetime(2030, 1, 1, 9, tzinfo=UTC)
UNTIL = datetime(2030, 1, 2, 9, tzinfo=UTC)
NOW = datetime(2030, 1, 1, 9, 3, tzinfo=UTC)
SINCE_WHEN = "2030-01-01 09:00:00, 3m ago"

BLOCK = {
    "episode_id": ID,
    "reason": "wait",
    "ref": "",
    "summary": None,
    "blocked_at": SINCE,
    "expires_at": None,
    "on_expiry": None,
}

CHILDREN = [
    {"level": 1, "status": "done"},
    {"level": 1, "status": "running"},
    {"level": 2, "status": "running"},
    {"level": 1, "status": "queued"},
]


def test_a_sleep_is_told_with_its_end():
    asked = _asked({**BLOCK, "expires_at": UNTIL, "on_expiry": "continue"}, [], NOW)
    assert asked == {
        "for": "the end of its sleep",
        "since": SINCE_WHEN,
        "until": "2030-01-02 09:00:00, in 23h",
    }


def test_a_wait_for_children_is_told_with_how_many_are_left():
    assert _asked(BLOCK, CHILDREN, NOW) == {"for": "2 of its 3 children", "since": SINCE_WHEN}


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"ref": "bill 7"}, ["vigil episodes resolve 'bill 7'"]),
        (
            {"reason": "nondeterministic_replay", "summary": "call 2 was …"},
            [
                "vigil episodes fork 00000000-0000 --at N",
                "vigil episodes cancel 00000000-0000",
                "or bring back the code that it began with",
            ],
        ),
        (
            {"reason": "approval"},
            [
                "vigil episodes approve 00000000-0000",
                "vigil episodes deny --reason '…' 00000000-0000",
            ],
        ),
        ({}, []),
    ],
)
def test_what_people_can_do_is_a_command_a_line(block, words):
    assert what_to_do({**BLOCK, **block}).splitlines() == words


def test_what_a_dry_run_would_have_done_is_a_row_each():
    findings = [{"do": "clear", "finding_key": "disk", "reason": "room"}]
    outputs = [{"adapter": "mail", "payload": {}, "summary": "a word to ann"}]
    rows = would_have(findings, outputs)
    assert [(row["would_have"], row["name"]) for row in rows] == [
        ("cleared", "disk"),
        ("sent", "mail"),
    ]
    assert would_have(None, None) == []


GRANT = {
    "kind": "approval",
    "tool_name": "budget",
    "args_redacted": {"usd": "0.50"},
    "result": {"resolution": "approved", "by": "ann", "plan": {"usd": "0.50", "turns": 3}},
}


def test_a_grant_is_told_with_who_gave_it_and_how_much():
    assert _what(GRANT) == "granted by ann: usd=0.50, turns=3"


def test_an_approval_is_told_with_its_reason_and_with_what_was_changed():
    result = {"resolution": "approved", "by": "ann", "reason": "only that one"}
    asked = {**GRANT, "tool_name": "", "args_redacted": {}, "result": result}
    assert _what(asked) == "approval: approved by ann: only that one"
    changed = {**asked, "result": {**result, "plan": {"service": "nginx"}}}
    assert (
        _what(changed) == 'approval: approved by ann, changed to {"service":"nginx"}: only that one'
    )


def test_what_was_granted_belongs_to_the_budget_where_that_has_a_limit():
    budget = {"turns": 0, "tokens": 9, "usd": "0.50"}
    assert _budget({"budget": budget}, [GRANT, GRANT]) == {**budget, "usd": Decimal("1.50")}


USED = {
    "budget": {"turns": 3}, "turns_used": 4, "tokens_used": 0, "cost_usd": 0, "wall_used_ms": 5,
    "error_class": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "turns"),
    [
        ({"status": "done"}, "3 of 3 turns and its return"),
        ({"status": "partially_failed"}, "3 of 3 turns and its return"),
        ({"status": "failed", "error_class": "all_outputs_failed"}, "3 of 3 turns and its return"),
        ({"status": "failed", "error_class": "crash"}, "4 of 3 turns"),
        ({"status": "done", "budget": {}}, "4 turns"),
    ],
)
def test_the_return_counts_as_a_turn_for_which_a_budget_needs_no_room(ended, turns):
    assert _used({**USED, **ended}) == f"{turns}, 5ms of running"

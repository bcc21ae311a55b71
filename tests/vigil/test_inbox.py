"""What waits for a person, and what they are told to type."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.model.events import DeadLettered
from streams.model.waits import Wait
from tests.vigil.journal import Journal, approval, proposed
from vigil.commands.inbox import lines

SINCE = datetime(2030, 1, 1, 8, tzinfo=UTC)


def row(**fields: object) -> dict[str, object]:
    given = {
        "kind": "approval",
        "id": "e1",
        "actor_id": "dba",
        "expectation_id": "shrink",
        "summary": "drop table t1",
        "since": SINCE,
        "expires_at": None,
        "what_to_do": "vigil episodes approve e1",
        "episodes": 1,
        "subject_kind": None,
        "subject_id": None,
        "approvers": [],
        "editable": False,
    }
    return given | fields


def said(*rows: dict[str, object]) -> list[str]:
    return [line.plain for line in lines(rows)]


def test_what_waits_is_said_in_three_lines_of_which_the_last_can_be_typed():
    assert said(row()) == [
        "approval of dba.shrink since 2030-01-01 08:00:00 UTC",
        "  drop table t1",
        "  vigil episodes approve e1",
    ]


def test_who_may_decide_is_said_unless_anybody_may():
    assert said(row(approvers=["ann", "bob"]))[2] == "  who may decide: ann, bob"


def test_what_may_be_changed_says_how():
    assert said(row(editable=True))[-1] == "  add --changes '{…}' to approve it with changes"


def test_what_several_episodes_ask_for_says_how_many():
    (headline, *_) = said(row(episodes=3))
    assert headline == "approval of dba.shrink since 2030-01-01 08:00:00 UTC, for 3 episodes"


@pytest.mark.parametrize(("kind", "about"), [("table", "table t1"), (None, "t1")])
def test_what_it_is_about_is_said(kind, about):
    (headline, *_) = said(row(subject_kind=kind, subject_id="t1"))
    assert headline == f"approval of dba.shrink about {about} since 2030-01-01 08:00:00 UTC"


def test_what_can_expire_says_when():
    (headline, *_) = said(row(kind="wait", expires_at=SINCE))
    assert headline == (
        "wait of dba.shrink since 2030-01-01 08:00:00, until 2030-01-01 08:00:00 UTC"
    )


@pytest.mark.parametrize(
    ("kind", "editable", "what"),
    [
        ("workflow_step", True, "approval of step dba.shrink"),
        ("workflow_step", False, "failed step dba.shrink"),
        ("output", True, "approval of an output of dba.shrink"),
        ("nondeterministic_replay", False, "parked episode of dba.shrink"),
        ("dead_letter", False, "dead letter of dba.shrink"),
    ],
)
def test_what_waits_is_named_in_words(kind, editable, what):
    (headline, *_) = said(row(kind=kind, editable=editable))
    assert headline == f"{what} since 2030-01-01 08:00:00 UTC"


def test_a_dead_letter_need_not_be_of_an_actor():
    (headline, *_) = said(row(kind="dead_letter", actor_id=None, expectation_id=None))
    assert headline == "dead letter since 2030-01-01 08:00:00 UTC"


def test_a_summary_of_many_lines_is_one_line():
    assert said(row(summary="first\n  second"))[1] == "  first second"


def test_each_thing_that_waits_follows_the_other():
    assert len(said(row(), row())) == 6


def test_everything_that_waits_for_a_person_is_there_with_what_to_type(standing):
    journal = Journal(standing)
    asking = journal.block(approval(approvers=("ann", "bob")))
    waiting = journal.block(wait=Wait(ref="bill 7"))
    journal.write(
        journal.stack.output("k 1"), proposed("k 1", approval=approval(approvers=("eve",)))
    )
    journal.write(journal.stack.output("k 2"), proposed("k 2"))
    letter = DeadLettered(
        reason="unreadable", detail="not JSON", stream="s", seq=1, subject="thing.happened"
    )
    journal.write(journal.stack.dead("s", "1"), letter)
    with standing.running("project"):
        rows = standing.wait_for("inbox", until=lambda rows: len(rows) == 4)
        for_people = standing.run("inbox").stdout

    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["approval"]["id"] == asking
    assert by_kind["wait"]["id"] == waiting
    assert by_kind["wait"]["what_to_do"] == "vigil episodes resolve 'bill 7'"
    assert by_kind["output"]["what_to_do"].startswith("vigil outputs approve 'k 1'")
    assert by_kind["dead_letter"]["what_to_do"].startswith("vigil dead show ")
    assert {kind: row["approvers"] for kind, row in by_kind.items()} == {
        "approval": ["ann", "bob"],
        "wait": [],
        "output": ["eve"],
        "dead_letter": [],
    }
    assert [kind for kind, row in by_kind.items() if row["editable"]] == ["output"]
    for row in rows:
        assert f"  {row['what_to_do']}\n" in for_people


def test_an_actor_may_be_all_that_one_looks_after(standing):
    Journal(standing).block(approval())
    with standing.running("project"):
        standing.wait_for("inbox", "--actor", "dba", until=lambda rows: len(rows) == 1)
    assert standing.ask("inbox", "--actor", "other") == []
    nothing = standing.run("inbox", "--actor", "other")
    assert (nothing.stdout, nothing.stderr.strip()) == ("", "nothing waits for anybody")

"""What waits for a person, and what they are told to type."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.model.events import DeadLettered
from streams.model.waits import Wait
from tests.vigil.journal import Journal, approval, proposed
from vigil.commands.inbox import commands, lines, print_inbox

SINCE = datetime(2030, 1, 1, 8, tzinfo=UTC)
NOW = SINCE + timedelta(minutes=4)


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
    return [line.plain for line in lines(rows, now=NOW)]


def test_what_waits_is_said_with_each_command_on_a_line_of_its_own():
    assert said(row()) == [
        "approval  dba.shrink  4m",
        "  drop table t1",
        "  vigil episodes approve e1",
        "  vigil episodes deny --reason '…' e1",
    ]


def test_who_may_decide_is_said_unless_anybody_may():
    assert said(row(approvers=["ann", "bob"]))[2] == "  who may decide: ann, bob"


def test_what_may_be_changed_says_how():
    assert said(row(editable=True))[-1] == "  add --changes '{…}' to approve it with changes"


def test_what_several_episodes_ask_for_says_how_many():
    (headline, *_) = said(row(episodes=3))
    assert headline == "approval  dba.shrink  4m, for 3 episodes"


@pytest.mark.parametrize(("kind", "about"), [("table", "table t1"), (None, "t1")])
def test_what_it_is_about_is_said(kind, about):
    (headline, *_) = said(row(subject_kind=kind, subject_id="t1"))
    assert headline == f"approval  dba.shrink  {about}  4m"


@pytest.mark.parametrize(("ahead_s", "ends"), [(420, "ends in 7m"), (-60, "ended 1m ago")])
def test_what_can_expire_says_when(ahead_s, ends):
    (headline, *_) = said(row(expires_at=NOW + timedelta(seconds=ahead_s)))
    assert headline == f"approval  dba.shrink  4m, {ends}"


@pytest.mark.parametrize(
    ("kind", "editable", "what"),
    [
        ("workflow_step", True, "approval of step"),
        ("workflow_step", False, "failed step"),
        ("output", True, "approval of output"),
        ("nondeterministic_replay", False, "parked episode"),
        ("dead_letter", False, "dead letter"),
    ],
)
def test_what_waits_is_named_in_words(kind, editable, what):
    (headline, *_) = said(row(kind=kind, editable=editable))
    assert headline == f"{what}  dba.shrink  4m"


def test_a_dead_letter_need_not_be_of_an_actor():
    (headline, *_) = said(row(kind="dead_letter", actor_id=None, expectation_id=None))
    assert headline == "dead letter  4m"


def test_a_summary_of_many_lines_is_one_line():
    assert said(row(summary="first\n  second"))[1] == "  first second"


@pytest.mark.parametrize(
    ("kind", "first", "others"),
    [
        ("output", "outputs approve -- '--yes'", ["outputs reject --reason '…' -- '--yes'"]),
        ("workflow_step", "workflows approve i s", ["workflows deny --reason '…' i s"]),
        (
            "workflow_step",
            "workflows resume i s --retry",
            ["workflows resume i s --skip", "workflows cancel i"],
        ),
        ("wait", "episodes resolve 'bill 7'", []),
        (
            "nondeterministic_replay",
            "episodes show e1",
            ["episodes fork e1 --at N", "episodes cancel e1"],
        ),
        ("dead_letter", "dead show e1", ["dead requeue e1", "dead discard --reason '…' e1"]),
        ("dead_letter", "outputs retry k", ["dead discard --reason '…' e1"]),
        ("dead_letter", "dead discard --reason 'its output has gone on' e1", []),
    ],
)
def test_each_thing_that_can_be_done_has_its_command(kind, first, others):
    found = commands(row(kind=kind, what_to_do=f"vigil {first}"))
    assert list(found) == [f"vigil {each}" for each in (first, *others)]


def test_what_nobody_knows_the_outcome_of_is_not_offered_to_be_tried_again():
    settled = row(kind="dead_letter", what_to_do="vigil dead show e1", summary="outcome_unknown: x")
    assert "vigil dead requeue e1" not in commands(settled)


def test_a_wait_says_how_to_give_it_an_answer():
    waiting = row(kind="wait", what_to_do="vigil episodes resolve x")
    assert said(waiting)[-1] == "  add --result '{…}' to give it an answer"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (1, "1 thing waits for somebody"),
        (2, "2 things wait for somebody"),
        (3, "the oldest 3 things that wait for somebody; --limit shows more"),
    ],
)
def test_how_much_waits_is_said_first(rows, says, capsys):
    print_inbox([row()] * rows, limit=3, why_none="", now=NOW)
    assert capsys.readouterr().out.splitlines()[:2] == [says, ""]


def test_each_thing_that_waits_follows_the_other():
    assert len(said(row(), row())) == 9


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
    assert nothing.stdout == ""
    assert "was ever of actor 'other'; known: dba" in nothing.stderr

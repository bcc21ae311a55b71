"""The life of an output, as rows: as it was last proposed, and what happened to it."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from engine.app.workflow import APPROVAL_EXPIRED
from projections.postgres import reader
from projections.project import project as changes_of
from streams.json import raw
from streams.model.events import (
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputPostponed,
    OutputRejected,
    OutputRetried,
)
from streams.model.waits import OnExpiry
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, only_row, rows_of, write, write_events

LATER = AT + timedelta(hours=1)
ASKED = lives.proposed(
    approval=lives.approval(
        approvers=("ann",), expires_at=LATER, on_expiry=OnExpiry.APPROVE, remind_every_s=60.0
    )
)
APPROVED = OutputApproved(by="ann", reason="go ahead", decision_id="d1")
POSTPONED = OutputPostponed(attempt=1, error_class="timeout", error_detail="30 s", retry_at=LATER)
FAILED = OutputFailed(attempt=2, error_class="refused", error_detail="no such address")
LAPSED = OutputFailed(attempt=0, error_class=APPROVAL_EXPIRED, error_detail="nobody decided")
ASKED_AGAIN = OutputRetried(by="bob", approval=lives.approval(expires_at=LATER))

LIFE = (
    ASKED,
    APPROVED,
    OutputAttempted(attempt=1, node="n1"),
    POSTPONED,
    OutputAttempted(attempt=2, node="n2"),
    FAILED,
    OutputRetried(by="bob", reason="the address is right now", retry_id="r1"),
    OutputAttempted(attempt=3, node="n1"),
    OutputDelivered(attempt=3, delivered_ref="m-7"),
)


async def live(pool, stack, *events):
    await write_events(pool, *events, stack=stack, subject=stack.output("mail:1"))


def in_commits(stack, events):
    """Return the events as one commit each, a second apart, from sequence 1."""
    subject = stack.output("mail:1")
    return [
        Recorded(
            subject=subject,
            seq=seq,
            commit=Commit(id=f"c{seq}", at=AT + timedelta(seconds=seq), events=(event,)),
        )
        for seq, event in enumerate(events, start=1)
    ]


async def test_a_proposed_output_shows_whose_it_is_and_what_it_says(pool, stack):
    await live(pool, stack, lives.proposed())
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["output_key"], row["status"], row["adapter"]) == ("mail:1", "proposed", "mail")
    assert (row["episode_id"], row["proposal_no"]) == (UUID(int=1), 1)
    assert (row["actor_id"], row["expectation_id"]) == ("monitor", "check_disk")
    assert json.loads(row["payload"]) == {"to": "ann"}
    assert (row["attempts"], row["created_at"], row["updated_at"]) == (0, AT, AT)
    assert (row["payload_hash"], row["approvers"], row["on_expiry"]) == (None, [], None)


async def test_an_output_that_says_nothing_is_an_output(pool, stack):
    await live(pool, stack, lives.proposed(payload=raw(None)))
    assert (await only_row(pool, "outputs", stack=stack))["payload"] is None


async def test_an_output_that_needs_approval_shows_what_people_are_asked(pool, stack):
    await live(pool, stack, ASKED)
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["payload_hash"]) == ("awaiting_approval", lives.PLAN_HASH)
    assert (row["summary"], row["approvers"]) == ("wipe the disk", ["ann"])
    assert (row["expires_at"], row["on_expiry"], row["remind_every_s"]) == (LATER, "approve", 60.0)
    assert row["asked_at"] == AT


async def test_an_output_that_needs_no_approval_was_never_asked_about(pool, stack):
    await live(pool, stack, *LIFE[2:])
    await live(pool, stack, lives.proposed())
    assert (await only_row(pool, "outputs", stack=stack))["asked_at"] is None


@pytest.mark.parametrize(
    ("decision", "status", "resolution"),
    [
        (APPROVED, "proposed", "approved"),
        (OutputApproved(by=""), "proposed", "expired"),
        (OutputRejected(by="ann", reason="go ahead", decision_id="d1"), "rejected", "denied"),
        (OutputRejected(by="", is_expiry=True), "rejected", "expired"),
    ],
)
async def test_a_decision_shows_who_decided_what(pool, stack, decision, status, resolution):
    await live(pool, stack, ASKED)
    await live(pool, stack, decision)
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["resolution"], row["decided_at"]) == (status, resolution, AT)
    said = ("ann", "go ahead", "d1") if decision.by else (None, None, None)
    assert (row["decided_by"], row["decided_reason"], row["decision_id"]) == said


@pytest.mark.parametrize("is_apart", [True, False])
@pytest.mark.parametrize("payload", [{"text": "calm down"}, None])
async def test_the_row_has_what_is_delivered_instead(pool, stack, is_apart, payload):
    edited = msgspec.structs.replace(APPROVED, edited_hash="h", edited_payload=raw(payload))
    for events in ([ASKED], [edited]) if is_apart else ([ASKED, edited],):
        await live(pool, stack, *events)
    row = await only_row(pool, "outputs", stack=stack)
    assert json.loads(row["payload"] or "null") == payload
    assert (await only_row(pool, "approvals", stack=stack))["edited_hash"] == "h"


async def test_a_request_that_nobody_answered_in_time_has_expired_though_that_is_a_failure(
    pool, stack
):
    await live(pool, stack, ASKED)
    await live(pool, stack, LAPSED)
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["resolution"], row["decided_at"]) == ("failed", "expired", AT)
    assert (row["decided_by"], row["decided_reason"]) == (None, "nobody decided")


@pytest.mark.parametrize(
    "failed",
    [
        FAILED,
        OutputFailed(attempt=1, error_class=APPROVAL_EXPIRED),
        OutputFailed(attempt=0, error_class="no_adapter"),
    ],
)
async def test_what_fails_after_it_was_approved_was_approved(pool, stack, failed):
    await live(pool, stack, ASKED, APPROVED)
    await live(pool, stack, failed)
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["resolution"], row["decided_by"]) == ("failed", "approved", "ann")


async def test_an_output_that_people_are_asked_about_once_more_waits_for_them_until_then(
    pool, stack
):
    later_still = LATER + timedelta(hours=1)
    approval = lives.approval(expires_at=later_still, on_expiry=OnExpiry.FAIL)
    await live(pool, stack, ASKED, LAPSED)
    await live(pool, stack, OutputRetried(by="bob", approval=approval))
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["expires_at"]) == ("awaiting_approval", later_still)
    assert row["error_class"] is None
    decided = ("resolution", "decided_by", "decided_reason", "decision_id", "decided_at")
    assert [row[each] for each in decided] == [None] * len(decided)


async def test_a_request_is_as_old_as_its_last_asking(pool, stack):
    happened = in_commits(stack, [ASKED, LAPSED, ASKED_AGAIN])
    for record in happened:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    since = happened[-1].commit.at
    assert (await only_row(pool, "outputs", stack=stack))["created_at"] < since
    assert (await only_row(pool, "approvals", stack=stack))["requested_at"] == since
    assert (await only_row(pool, "inbox", stack=stack))["since"] == since


async def test_an_output_that_is_put_off_shows_why_and_until_when(pool, stack):
    await live(pool, stack, *LIFE[:4])
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["attempts"], row["next_attempt_at"]) == ("proposed", 1, LATER)
    assert (row["error_class"], row["error_detail"]) == ("timeout", "30 s")


async def test_an_output_that_is_being_tried_again_shows_no_error(pool, stack):
    await live(pool, stack, *LIFE[:4])
    await live(pool, stack, LIFE[4])
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["attempts"], row["next_attempt_at"], row["error_class"]) == (2, None, None)
    assert row["decided_by"] == "ann"


async def test_an_output_that_failed_shows_why(pool, stack):
    await live(pool, stack, *LIFE[:6])
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["attempts"]) == ("failed", 2)
    assert (row["error_class"], row["error_detail"]) == ("refused", "no such address")


async def test_a_delivered_output_shows_what_the_receiver_calls_it(pool, stack):
    await live(pool, stack, *LIFE)
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["delivered_ref"], row["delivered_at"]) == ("delivered", "m-7", AT)
    assert (row["attempts"], row["error_class"], row["decided_by"]) == (3, None, "ann")


async def test_a_canceled_output_shows_when(pool, stack):
    await live(pool, stack, lives.proposed(), OutputCanceled(reason="not wanted"))
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["canceled_at"]) == ("canceled", AT)


async def test_what_is_proposed_anew_forgets_the_proposal_before_it(pool, stack):
    happened = in_commits(stack, [*LIFE[:6], lives.proposed(2, proposal_no=2)])
    for batch in (happened[:6], happened[6:]):
        await write(pool, changes_of(batch, stack=stack), stack=stack)
    row = await only_row(pool, "outputs", stack=stack)
    assert (row["status"], row["proposal_no"], row["episode_id"]) == ("proposed", 2, UUID(int=2))
    assert (row["attempts"], row["error_class"], row["decided_by"]) == (0, None, None)
    assert len(await rows_of(pool, "output_events", stack=stack)) == 7


async def test_the_history_says_what_happened_who_did_it_and_why(pool, stack):
    await write(pool, changes_of(in_commits(stack, LIFE), stack=stack), stack=stack)
    rows = (await reader.list_output_events(pool, stack, "mail:1"))[::-1]
    assert [(row["kind"], row["attempt"], row["person"], row["node"]) for row in rows] == [
        ("output_proposed", None, None, None),
        ("output_approved", None, "ann", None),
        ("output_attempted", 1, None, "n1"),
        ("output_postponed", 1, None, None),
        ("output_attempted", 2, None, "n2"),
        ("output_failed", 2, None, None),
        ("output_retried", None, "bob", None),
        ("output_attempted", 3, None, "n1"),
        ("output_delivered", 3, None, None),
    ]
    assert (rows[0]["proposal_no"], rows[0]["episode_id"]) == (1, UUID(int=1))
    assert (rows[3]["error_class"], rows[3]["next_attempt_at"]) == ("timeout", LATER)
    assert (rows[5]["error_detail"], rows[5]["next_attempt_at"]) == ("no such address", None)
    assert (rows[6]["reason"], rows[8]["delivered_ref"]) == ("the address is right now", "m-7")


async def test_the_history_says_why_an_output_was_canceled(pool, stack):
    await live(pool, stack, ASKED, OutputCanceled(reason="not wanted"))
    _, row = await rows_of(pool, "output_events", stack=stack)
    assert (row["kind"], row["reason"], row["person"]) == ("output_canceled", "not wanted", None)


LAPSED_LIFE = (ASKED, LAPSED, ASKED_AGAIN, APPROVED, *LIFE[2:])


@pytest.mark.parametrize(
    ("life", "cut"),
    [(life, cut) for life in (LIFE, LAPSED_LIFE) for cut in range(len(life) + 1)],
)
async def test_rows_are_the_same_however_the_life_is_cut_into_batches(pool, stack, life, cut):
    """I6."""
    records, tables = in_commits(stack, life), ("outputs", "output_events")
    for batch in (records[:cut], records[cut:]):
        await write(pool, changes_of(batch, stack=stack), stack=stack)
    parts = [await rows_of(pool, table, stack=stack) for table in tables]
    await pool.execute("TRUNCATE outputs, output_events, projection_checkpoints")
    for record in records:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    assert [await rows_of(pool, table, stack=stack) for table in tables] == parts


@pytest.mark.parametrize(
    ("since", "state"),
    [
        ([], "pending"),
        ([APPROVED], "approved"),
        ([APPROVED, OutputCanceled()], "approved"),
        ([OutputRejected(by="ann")], "denied"),
        ([OutputRejected(by="", is_expiry=True)], "expired"),
        ([OutputCanceled()], "canceled"),
        ([LAPSED], "expired"),
        ([LAPSED, ASKED_AGAIN], "pending"),
        ([LAPSED, ASKED_AGAIN, APPROVED], "approved"),
        ([LAPSED, ASKED_AGAIN, OutputCanceled()], "canceled"),
        ([APPROVED, FAILED, OutputRetried(by="bob")], "approved"),
    ],
)
async def test_a_request_about_an_output_shows_what_became_of_it(pool, stack, since, state):
    await live(pool, stack, ASKED, *since)
    row = await only_row(pool, "approvals", stack=stack)
    assert (row["kind"], row["id"], row["state"]) == ("output", "mail:1", state)
    assert (row["episode_id"], row["step_no"]) == (UUID(int=1), None)
    assert json.loads(row["plan"]) == {"to": "ann"}


async def test_an_output_that_needs_no_approval_asks_nobody(pool, stack):
    await live(pool, stack, *LIFE[2:])
    await live(pool, stack, lives.proposed())
    assert await rows_of(pool, "approvals", stack=stack) == []


# What the console asks.


@pytest.fixture
async def several(pool, stack):
    """Three outputs, a second apart: delivered, failed and of another actor, of episode 2."""
    delivered = (lives.proposed(key="a"), OutputDelivered(attempt=1))
    failed = (lives.proposed(key="b", actor_id="watch", adapter="pager"), FAILED)
    for second, events in enumerate((delivered, failed, (lives.proposed(2, key="c"),))):
        subject = stack.output(events[0].output_key)
        made = Commit(id=f"c{second}", at=AT + timedelta(seconds=second), events=events)
        record = Recorded(subject=subject, seq=1 + second, commit=made)
        await write(pool, changes_of([record], stack=stack), stack=stack)
    return pool


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({}, "cba"),
        ({"status": "failed"}, "b"),
        ({"actor": "monitor"}, "ca"),
        ({"adapter": "pager"}, "b"),
        ({"adapter": "pager", "status": "delivered"}, ""),
        ({"episode_id": UUID(int=2)}, "c"),
        ({"limit": 2}, "cb"),
    ],
)
async def test_outputs_come_latest_first_and_can_be_narrowed(several, stack, asked, keys):
    rows = await reader.list_outputs(several, stack, **asked)
    assert [row["output_key"] for row in rows] == list(keys)


async def test_outputs_can_be_read_part_by_part(several, stack):
    rows = await reader.list_outputs(several, stack)
    found, past = [], None
    for _ in rows:
        (past,) = await reader.list_outputs(several, stack, past=past, limit=1)
        found.append(past)
    assert found == rows
    assert await reader.list_outputs(several, stack, past=past) == []


async def test_an_output_is_shown_with_its_history(several, stack):
    row = await reader.show_output(several, stack, "b")
    assert row is not None
    assert (row["status"], row["payload"]) == ("failed", {"to": "ann"})
    kinds = [each["kind"] for each in row["history"]]
    assert kinds == ["output_failed", "output_proposed"]
    assert await reader.show_output(several, stack, "nothing") is None

"""The rows say how many have approved what takes several, and who, whatever the batches are."""

from __future__ import annotations

from uuid import UUID

import pytest
from msgspec.structs import replace

from projections.postgres import reader
from projections.project import project as changes_of
from streams.json import raw
from streams.model.events import (
    EpisodeApprovalGiven,
    OutputApprovalGiven,
    OutputApproved,
    OutputFailed,
    OutputRetried,
    StepApprovalAsked,
    StepApprovalGiven,
    StepApproved,
    StepPrepared,
)
from streams.model.waits import Approval, GivenApproval
from streams.ports.log import Recorded
from tests.engine.workflows.flows import flow, given
from tests.projections import lives
from tests.projections.lives import AT, commit, only_row, rows_of, write

ASKED = Approval(plan_hash="a" * 64, plan=raw({"wipe": "/var"}), quorum=2, barred="zoe")
ONE = replace(ASKED, given=(GivenApproval(by="ann", at=AT),))
CHANGED = replace(ONE, plan_hash="b" * 64, plan=raw({"wipe": "/srv"}), asked_hash="a" * 64)
INSTANCE = str(UUID(int=1))


def in_commits(subject, *events):
    return [
        Recorded(subject=subject, seq=seq, commit=commit(each))
        for seq, each in enumerate(events, start=1)
    ]


async def both_ways(pool, stack, table, records):
    """The only row, however the records come."""
    await write(pool, changes_of(records, stack=stack), stack=stack)
    whole = await rows_of(pool, table, stack=stack)
    for record in records:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    assert await rows_of(pool, table, stack=stack) == whole
    return await only_row(pool, table, stack=stack)


def episode(stack):
    blocked = replace(lives.blocked(), approval=ASKED)
    given = EpisodeApprovalGiven(
        step_no=1, by="ann", blocked=replace(blocked, approval=CHANGED), since=AT
    )
    lived = lives.opened(), lives.started(), blocked, given
    return in_commits(stack.episode(lives.episode_id(1)), *lived)


def output(stack, *more):
    proposed = replace(lives.proposed(), approval=ASKED)
    given = OutputApprovalGiven(by="ann", approval=CHANGED)
    return in_commits(stack.output("mail:1"), proposed, given, *more)


def step(stack, *more):
    journal = given(flow("a")).flow.journal
    asked = StepApprovalAsked(step="a", inputs=(raw({"x": 1}),), approval=ASKED)
    noted = StepApprovalGiven(step="a", by="ann", approval=CHANGED, inputs=(raw({"x": 2}),))
    started = journal[0].commit.events[0]
    return in_commits(stack.workflow(INSTANCE), started, asked, noted, *more)


@pytest.mark.parametrize(
    ("table", "records", "hash_"),
    [
        ("episode_blocks", episode, "plan_hash"),
        ("outputs", output, "payload_hash"),
        ("workflow_steps", step, "plan_hash"),
    ],
)
async def test_a_request_says_how_many_have_to_and_who_has(pool, stack, table, records, hash_):
    row = await both_ways(pool, stack, table, records(stack))
    assert (row["quorum"], row["approved_by"], row["barred"]) == (2, ["ann"], "zoe")
    assert row[hash_] == "b" * 64
    (waiting,) = await reader.list_inbox(pool, stack)
    assert (waiting["quorum"], waiting["approved_by"]) == (2, ["ann"])
    assert waiting["editable"] in (True, False)


async def test_a_step_that_goes_on_keeps_who_had_to_approve_it(pool, stack):
    """Also if all that follows the question comes at once, and its items are placed anew."""
    approved = StepApproved(step="a", by="ann, bob")
    prepared = StepPrepared(step="a", inputs=(raw({"x": 2}),))
    records = step(stack, approved, prepared)
    for some in (records[:2], records[2:]):
        await write(pool, changes_of(some, stack=stack), stack=stack)
    row = await only_row(pool, "workflow_steps", stack=stack)
    assert (row["quorum"], row["approvers"], row["barred"]) == (
        2, list(ASKED.approvers), "zoe",
    )  # fmt: skip
    assert (row["approved_by"], row["decided_by"]) == (["ann"], "ann, bob")


async def test_the_view_of_approvals_has_it_too(pool, stack):
    await write(pool, changes_of(episode(stack) + output(stack), stack=stack), stack=stack)
    shown = await rows_of(pool, "approvals", stack=stack)
    assert [(row["quorum"], row["approved_by"], row["barred"]) for row in shown] == [
        (2, ["ann"], "zoe")
    ] * 2


async def test_an_output_that_is_asked_for_again_was_approved_by_nobody(pool, stack):
    failed = OutputFailed(attempt=0, error_class="approval_expired", error_detail="too late")
    again = OutputRetried(by="ann", retry_id="r1", approval=ASKED)
    row = await both_ways(pool, stack, "outputs", output(stack, failed, again))
    assert (row["approved_by"], row["payload_hash"]) == ([], "a" * 64)


async def test_what_was_approved_names_all_who_have(pool, stack):
    approved = OutputApproved(by="ann, bob", edited_hash="b" * 64, edited_payload=raw("x"))
    row = await both_ways(pool, stack, "outputs", output(stack, approved))
    assert (row["decided_by"], row["resolution"]) == ("ann, bob", "approved")


async def test_a_step_that_was_approved_names_all_who_have(pool, stack):
    approved = StepApproved(step="a", by="ann, bob", edited_hash="b" * 64)
    row = await both_ways(pool, stack, "workflow_steps", step(stack, approved))
    assert (row["decided_by"], row["status"]) == ("ann, bob", "pending")

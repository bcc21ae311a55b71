"""What an episode waits for, as rows: what it asks, how it was answered, and that it is blocked."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from projections.postgres import reader
from projections.project import project as changes_of
from streams.json import raw
from streams.model.events import EndStatus, EpisodeDeferred, Resolution
from streams.model.outputs import OutputOutcome
from streams.model.waits import OnExpiry
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, only_row, rows_of, write, write_events

LATER = AT + timedelta(hours=1)
DEFERRED = EpisodeDeferred(pending=("mail:1",))
ASKED = lives.blocked(
    approvers=("ann", "bob"), expires_at=LATER, on_expiry=OnExpiry.FAIL, remind_every_s=60.0
)
SLEEP = lives.blocked(ref="", expires_at=LATER, on_expiry=OnExpiry.CONTINUE)
ANSWERED = lives.resolved(by="ann", reason="go ahead", decision_id="d1")


async def live(pool, stack, *events):
    begun = (lives.opened(), lives.started(), *events)
    await write_events(pool, *begun, stack=stack, subject=stack.episode(lives.episode_id(1)))


async def test_an_episode_that_asks_shows_what_it_asks(pool, stack):
    await live(pool, stack, ASKED)
    row = await only_row(pool, "episode_blocks", stack=stack)
    assert (row["episode_id"], row["step_no"], row["reason"]) == (UUID(int=1), 1, "approval")
    assert (json.loads(row["plan"]), row["plan_hash"]) == ({"wipe": "/var"}, lives.PLAN_HASH)
    assert (row["summary"], row["approvers"]) == ("wipe the disk", ["ann", "bob"])
    assert (row["blocked_at"], row["expires_at"]) == (AT, LATER)
    assert (row["on_expiry"], row["remind_every_s"]) == ("fail", 60.0)
    assert (row["resolution"], row["resolved_at"], row["ref"]) == (None, None, None)
    assert row["editable"] is False


async def test_a_plan_that_people_may_change_says_so(pool, stack):
    await live(pool, stack, lives.blocked(editable=True))
    assert (await only_row(pool, "episode_blocks", stack=stack))["editable"] is True
    (waiting,) = await reader.list_inbox(pool, stack)
    assert waiting["editable"] is True


async def test_an_episode_that_waits_shows_for_what(pool, stack):
    await live(pool, stack, lives.blocked(ref="payment:42"))
    row = await only_row(pool, "episode_blocks", stack=stack)
    assert (row["reason"], row["ref"], row["on_expiry"]) == ("wait", "payment:42", "fail")
    assert (row["plan"], row["plan_hash"], row["approvers"]) == (None, None, [])
    assert (row["expires_at"], row["remind_every_s"]) == (None, None)


async def test_an_episode_that_sleeps_waits_for_nobody(pool, stack):
    await live(pool, stack, SLEEP)
    assert await rows_of(pool, "inbox", stack=stack) == []


async def test_a_plan_that_says_nothing_is_none(pool, stack):
    await live(pool, stack, lives.blocked(plan=raw(None)))
    assert (await only_row(pool, "episode_blocks", stack=stack))["plan"] is None


@pytest.mark.parametrize(
    ("since", "status", "blocked_by"),
    [
        ([], "running", None),
        ([lives.blocked()], "blocked", "approval"),
        ([lives.blocked(ref="r")], "blocked", "wait"),
        ([SLEEP], "blocked", None),
        ([lives.blocked(), lives.recorded(1)], "blocked", "approval"),
        ([lives.blocked(), lives.recorded(1), lives.resolved()], "queued", None),
        ([lives.converged(), DEFERRED], "blocked", "outputs"),
        ([lives.converged(), DEFERRED, lives.started(2)], "running", None),
        ([lives.converged(), DEFERRED, lives.finished()], "done", None),
        ([lives.blocked(), lives.finished(EndStatus.CANCELED)], "canceled", None),
    ],
)
async def test_an_episode_shows_what_it_is_blocked_by(pool, stack, since, status, blocked_by):
    """In one batch, and in as many as there are commits."""
    records = in_commits(stack, [lives.opened(), lives.started(), *since])
    for batches in ([records], [[record] for record in records]):
        await pool.execute("TRUNCATE episodes, episode_blocks, episode_steps")
        for batch in batches:
            await write(pool, changes_of(batch, stack=stack), stack=stack)
        row = await only_row(pool, "episodes", stack=stack)
        assert (row["status"], row["blocked_by"]) == (status, blocked_by)


async def test_an_episode_shows_what_became_of_its_outputs(pool, stack):
    sent = OutputOutcome(output_key="mail:1", outcome="delivered")
    other = OutputOutcome(output_key="mail:2", outcome="duplicate")
    lost = OutputOutcome(output_key="mail:3", outcome="failed", error_class="away")
    deferred = EpisodeDeferred(pending=("mail:3",), outputs=(sent, other))
    lived = [lives.opened(), lives.started(), lives.converged(), deferred]
    ended = lives.finished(EndStatus.PARTIALLY_FAILED, outputs=(sent, other, lost))
    records = in_commits(stack, [*lived, ended])
    shown = [{"output_key": "mail:1", "outcome": "delivered"}]
    shown += [{"output_key": "mail:2", "outcome": "duplicate"}]
    for batch in (records[:4], records[4:], records):
        await write(pool, changes_of(batch, stack=stack), stack=stack)
        outputs = json.loads((await only_row(pool, "episodes", stack=stack))["outputs"])
        assert outputs[:2] == shown
        failed = {"output_key": "mail:3", "outcome": "failed", "error_class": "away"}
        assert outputs[2:] == ([] if batch == records[:4] else [failed])


async def test_an_episode_whose_outputs_came_to_nothing_yet_shows_none(pool, stack):
    records = in_commits(stack, [lives.opened(), lives.started(), lives.converged(), DEFERRED])
    await write(pool, changes_of(records, stack=stack), stack=stack)
    assert (await only_row(pool, "episodes", stack=stack))["outputs"] is None


def in_commits(stack, events):
    """Return the events as one commit each, a second apart."""
    subject = stack.episode(lives.episode_id(1))
    return [
        Recorded(
            subject=subject,
            seq=seq,
            commit=Commit(id=f"c{seq}", at=AT + timedelta(seconds=seq), events=(event,)),
        )
        for seq, event in enumerate(events, start=1)
    ]


async def test_a_request_and_its_answer_in_one_batch_are_one_row(pool, stack):
    records = in_commits(stack, [lives.opened(), ASKED, ANSWERED])
    await write(pool, changes_of(records, stack=stack), stack=stack)
    row = await only_row(pool, "episode_blocks", stack=stack)
    assert (row["blocked_at"], row["resolved_at"]) == (
        AT + timedelta(seconds=2),
        AT + timedelta(seconds=3),
    )
    assert (row["resolution"], row["resolved_by"]) == ("approved", "ann")
    assert (row["resolved_reason"], row["decision_id"]) == ("go ahead", "d1")
    assert row["journal_seq"] == 3


async def test_an_answer_that_comes_later_is_in_the_row_of_its_request(pool, stack):
    records = in_commits(stack, [lives.opened(), ASKED, ANSWERED])
    for record in records:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    row = await only_row(pool, "episode_blocks", stack=stack)
    assert (row["resolution"], row["resolved_by"]) == ("approved", "ann")
    assert (row["summary"], row["journal_seq"]) == ("wipe the disk", 3)


@pytest.mark.parametrize("is_apart", [True, False])
@pytest.mark.parametrize("edited_hash", ["", "h"])
async def test_a_plan_that_was_approved_with_changes_says_so(pool, stack, is_apart, edited_hash):
    answered = lives.resolved(by="ann", edited_hash=edited_hash)
    records = in_commits(stack, [lives.opened(), lives.blocked(editable=True), answered])
    for batch in [records[:2], records[2:]] if is_apart else [records]:
        await write(pool, changes_of(batch, stack=stack), stack=stack)
    row = await only_row(pool, "approvals", stack=stack)
    assert (row["plan_hash"], row["edited_hash"]) == (lives.PLAN_HASH, edited_hash or None)


async def test_an_episode_may_ask_more_than_once(pool, stack):
    twice = (lives.blocked(), lives.resolved(), lives.blocked(2, ref="payment:42"))
    await live(pool, stack, *twice)
    found = await rows_of(pool, "episode_blocks", stack=stack)
    assert {row["step_no"]: row["resolution"] for row in found} == {1: "approved", 2: None}
    newest = await reader.show_block(pool, stack, UUID(int=1))
    assert newest is not None
    assert (newest["step_no"], newest["ref"]) == (2, "payment:42")


async def test_an_episode_that_never_waited_has_no_block(pool, stack):
    await live(pool, stack)
    assert await reader.show_block(pool, stack, UUID(int=1)) is None


async def test_no_hash_of_what_was_redacted_shows_beside_a_request(pool, stack):
    await live(pool, stack, msgspec.structs.replace(ASKED, fingerprint="cd" * 32))
    assert "cdcd" not in repr(await only_row(pool, "episode_blocks", stack=stack))


@pytest.mark.parametrize(
    ("since", "state"),
    [
        ([], "pending"),
        ([lives.resolved()], "approved"),
        ([lives.resolved(1, Resolution.DENIED)], "denied"),
        ([lives.resolved(1, Resolution.EXPIRED)], "expired"),
        ([lives.resolved(), lives.started(2), lives.finished(EndStatus.CANCELED)], "approved"),
        ([lives.finished(EndStatus.CANCELED)], "canceled"),
    ],
)
async def test_a_request_shows_what_became_of_it(pool, stack, since, state):
    await live(pool, stack, ASKED, *since)
    row = await only_row(pool, "approvals", stack=stack)
    assert row["state"] == state
    assert (row["kind"], row["id"], row["step_no"]) == ("episode", lives.episode_id(1), 1)
    assert (row["actor_id"], row["expectation_id"]) == ("monitor", "check_disk")
    assert (row["requested_at"], row["plan_hash"]) == (AT, lives.PLAN_HASH)
    assert await rows_of(pool, "waits", stack=stack) == []


@pytest.mark.parametrize(
    ("since", "state"),
    [
        ([], "pending"),
        ([lives.resolved(1, Resolution.RESOLVED, by="bank")], "resolved"),
        ([lives.resolved(1, Resolution.EXPIRED)], "expired"),
        ([lives.finished(EndStatus.CANCELED)], "canceled"),
    ],
)
async def test_a_wait_shows_whether_word_has_come(pool, stack, since, state):
    await live(pool, stack, lives.blocked(ref="payment:42", expires_at=LATER), *since)
    row = await only_row(pool, "waits", stack=stack)
    assert (row["state"], row["ref"], row["since"]) == (state, "payment:42", AT)
    assert (row["expires_at"], row["on_expiry"]) == (LATER, "fail")
    assert row["resolved_by"] == ("bank" if state == "resolved" else None)
    assert await rows_of(pool, "approvals", stack=stack) == []

"""Every kind of event becomes rows that say what it says."""

from __future__ import annotations

import json
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections import claims
from projections.postgres.reader import list_children
from projections.project import AggregateFolds
from projections.project import project as changes_of
from streams.errors import UnreadableEvent
from streams.json import raw
from streams.model.children import ChildEnd, ChildStart
from streams.model.events import (
    DeadDiscarded,
    DeadRequeued,
    EndStatus,
    EpisodeDeferred,
    EpisodeFinished,
    EpisodeLeft,
    EpisodeOpened,
    Fork,
    LaneMoved,
    OutputApproved,
    OutputAttempted,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputPostponed,
    OutputRejected,
    OutputRetried,
    Resolution,
    SignalGiven,
    SignalWaited,
    StoredResult,
)
from streams.model.findings import FindingStatus, Severity
from streams.model.outputs import OutputOutcome
from streams.model.triggers import (
    Budget,
    EpisodeTrigger,
    LogStrategy,
    ManualTrigger,
    Mode,
    Overrides,
    ScheduleTrigger,
    WorkflowTrigger,
)
from streams.ports.leases import Claim, ClaimChange
from streams.ports.log import Commit, Recorded
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import AT, only_row, rows_of, write, write_events


async def live(pool, stack, *events):
    await write_events(pool, *events, stack=stack, subject=stack.episode(lives.episode_id(1)))


async def test_an_opened_episode_waits_in_the_queue(pool, stack):
    await live(pool, stack, lives.opened())
    row = await only_row(pool, "episodes", stack=stack)
    assert row["episode_id"] == UUID(int=1)
    assert (row["status"], row["attempts"], row["started_at"]) == ("queued", 0, None)
    assert (row["actor_id"], row["expectation_id"]) == ("monitor", "check_disk")
    assert (row["subject_kind"], row["subject_id"]) == ("host", "h1")
    assert (row["trigger_type"], row["queued_at"]) == ("event", AT)
    assert json.loads(row["trigger_ref"])["payload"] == {"host": "h1"}


async def test_a_budget_is_spelled_out(pool, stack):
    await live(pool, stack, lives.opened())
    row = await only_row(pool, "episodes", stack=stack)
    assert json.loads(row["budget"]) == {"turns": 5, "tokens": 25_000, "wall_s": 120.0, "usd": "0"}


async def test_a_manual_trigger_shows_who_asked(pool, stack):
    trigger = ManualTrigger(requested_by="ann", reason="to see")
    await live(pool, stack, msgspec.structs.replace(lives.opened(), trigger=trigger))
    row = await only_row(pool, "episodes", stack=stack)
    assert row["trigger_type"] == "manual"
    assert json.loads(row["trigger_ref"])["requested_by"] == "ann"


@pytest.mark.parametrize(
    ("trigger", "kind"),
    [
        (ScheduleTrigger(scheduled_at=AT, schedule="every 900s"), "schedule"),
        (WorkflowTrigger(workflow_instance_id="w1", workflow_step_id="s1"), "workflow"),
    ],
)
async def test_every_kind_of_trigger_has_its_word(pool, stack, trigger, kind):
    await live(pool, stack, msgspec.structs.replace(lives.opened(), trigger=trigger))
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["trigger_type"], json.loads(row["trigger_ref"])["kind"]) == (kind, kind)


async def test_the_episode_of_a_step_shows_its_place_in_the_workflow(pool, stack):
    trigger = WorkflowTrigger(
        workflow_instance_id=lives.episode_id(7),
        workflow_id="onboard",
        workflow_step_id="check",
        workflow_step_no=2,
        item=3,
    )
    await live(pool, stack, msgspec.structs.replace(lives.opened(), trigger=trigger))
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["workflow_id"], row["workflow_instance_id"]) == ("onboard", UUID(int=7))
    assert (row["workflow_step_id"], row["workflow_step_no"]) == ("check", 2)
    assert row["workflow_item"] == 3


async def test_a_child_shows_its_parent_and_a_fork_of_it_does_not(pool, stack):
    trigger = EpisodeTrigger(parent_id=lives.episode_id(7), parent_actor_id="boss", call="4.2.1")
    child = msgspec.structs.replace(lives.opened(), trigger=trigger)
    await live(pool, stack, child)
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["parent_id"], row["parent_call"]) == (UUID(int=7), "4.2.1")
    fork = Fork(episode_id=lives.episode_id(1), step_no=0, by="ann")
    await live(pool, stack, msgspec.structs.replace(child, fork=fork))
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["parent_id"], row["parent_call"]) == (None, None)


async def test_an_announced_child_is_no_step(pool, stack):
    start = ChildStart(
        episode_id="c1", actor_id="worker", expectation_id="count", budget=Budget(turns=1)
    )
    announced = msgspec.structs.replace(lives.announced(), child=start)
    await live(pool, stack, lives.opened(), lives.started(), announced)
    assert await rows_of(pool, "episode_steps", stack=stack) == []


async def test_the_turns_of_a_child_count_in_the_row_of_its_parent(pool, stack):
    end = ChildEnd(episode_id="c1", turns=3)
    step = msgspec.structs.replace(lives.recorded(), child=end)
    await live(pool, stack, lives.opened(), lives.started(), step)
    assert (await only_row(pool, "episodes", stack=stack))["turns_used"] == 4


async def test_the_tree_of_an_episode_has_its_children_and_theirs_each_below_its_parent(
    pool, stack
):
    for number, parent, call in (
        (1, 9, "2"),
        (2, 1, "10"),
        (3, 1, "9.2.1"),
        (4, 9, "1"),
        (5, 8, "1"),
    ):
        trigger = EpisodeTrigger(
            parent_id=lives.episode_id(parent), parent_actor_id="boss", call=call
        )
        child = msgspec.structs.replace(lives.opened(number), trigger=trigger)
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, child, stack=stack, subject=subject)
    found = await list_children(pool, stack, UUID(int=9), levels=16)
    assert [(row["level"], row["episode_id"].int) for row in found] == [
        (1, 4),
        (1, 1),
        (2, 3),
        (2, 2),
    ]
    assert [row["level"] for row in await list_children(pool, stack, UUID(int=9), levels=1)] == [
        1,
        1,
    ]


async def test_a_fork_shows_where_it_comes_from_and_no_workflow(pool, stack):
    trigger = WorkflowTrigger(workflow_instance_id=lives.episode_id(7), workflow_step_id="check")
    fork = Fork(episode_id=lives.episode_id(3), step_no=1, by="ann", reason="why not")
    forked = msgspec.structs.replace(lives.opened(), trigger=trigger, fork=fork)
    await live(pool, stack, forked, lives.recorded(1))
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["forked_from"], row["forked_at_step"]) == (UUID(int=3), 1)
    assert (row["forked_by"], row["forked_reason"]) == ("ann", "why not")
    assert (row["workflow_step_id"], row["status"], row["turns_used"]) == (None, "queued", 1)


async def test_metadata_say_when_a_result_was_made_because_the_budget_was_used_up(pool, stack):
    said = msgspec.structs.replace(lives.converged(), exhausted="turns: 12 used of 12")
    await live(pool, stack, lives.opened(), lives.started(), said)
    row = await only_row(pool, "episodes", stack=stack)
    assert json.loads(row["metadata"]) == {"exhausted": "turns: 12 used of 12"}


async def test_metadata_is_what_it_was_fired_with_and_what_the_strategy_says(pool, stack):
    opened = msgspec.structs.replace(lives.opened(), metadata={"ticket": 1, "team": "a"})
    said = msgspec.structs.replace(lives.converged(), metadata={"ticket": 2, "cost": 0.5})
    for events in [(opened,), (lives.started(), said)]:
        await live(pool, stack, *events)
    row = await only_row(pool, "episodes", stack=stack)
    assert json.loads(row["metadata"]) == {"ticket": 2, "team": "a", "cost": 0.5}


async def test_time_used_is_that_of_the_newest_step_and_the_model_the_first_that_answered(
    pool, stack
):
    other = msgspec.structs.replace(lives.recorded(2), model="m2")
    for events in [(lives.opened(), lives.started()), (lives.recorded(1),), (other,)]:
        await live(pool, stack, *events)
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["wall_used_ms"], row["model"]) == (10, "m1")
    await live(pool, stack, lives.finished())
    row = await only_row(pool, "episodes", stack=stack)
    assert row["wall_used_ms"] == 9, "the end says it all"


async def test_what_people_may_not_see_of_a_step_is_in_no_row(pool, stack):
    hidden = msgspec.structs.replace(lives.recorded(1, result="hunter2"), is_hidden=True)
    quiet = msgspec.structs.replace(lives.opened(), log_strategy=LogStrategy.NONE)
    await live(pool, stack, quiet, lives.started(), hidden)
    step = await only_row(pool, "episode_steps", stack=stack)
    row = await only_row(pool, "episodes", stack=stack)
    assert (step["result"], row["log_strategy"]) == (None, "none")


async def test_every_start_is_kept_with_its_node(pool, stack):
    again = msgspec.structs.replace(lives.started(2, node="n2"), fresh=True)
    for events in [(lives.opened(), lives.started(node="n1")), (again,)]:
        await live(pool, stack, *events)
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["first_node"], row["node"], row["attempts"]) == ("n1", "n2", 2)
    row = await only_row(pool, "episode_attempts", stack=stack)
    assert (row["attempt"], row["node"], row["is_fresh"]) == (2, "n2", True)


async def test_a_start_is_a_takeover_only_of_an_episode_that_runs(pool, stack):
    await live(pool, stack, lives.opened(), lives.started())
    await live(pool, stack, lives.blocked(1), lives.resolved(1))
    await live(pool, stack, lives.started(2), EpisodeLeft(node="n1"), lives.started(3))
    await live(pool, stack, lives.started(4))
    await live(pool, stack, lives.recorded(1), lives.started(5))
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["attempts"], row["takeovers"]) == (5, 2)


async def test_takeovers_are_counted_the_same_in_one_transaction(pool, stack):
    begun = (lives.opened(), lives.started(), lives.started(2))
    waited = (lives.blocked(1), lives.resolved(1), lives.started(3), lives.started(4))
    await live(pool, stack, *begun, *waited)
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["attempts"], row["takeovers"]) == (4, 2)


async def test_an_episode_that_says_nothing_of_it_is_meant_and_wanted_here(pool, stack):
    await live(pool, stack, lives.opened())
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["mode"], row["priority"], row["opened_by"]) == ("live", 0, None)
    assert (row["is_request"], row["start_by"]) == (False, None)


async def test_an_episode_shows_whether_it_is_meant_and_who_is_to_run_it(pool, stack):
    said = {"priority": 7, "opened_by": "n1", "is_request": True, "start_by": AT}
    await live(pool, stack, msgspec.structs.replace(lives.opened(), mode=Mode.DRY_RUN, **said))
    row = await only_row(pool, "episodes", stack=stack)
    assert row["mode"] == "dry_run"
    assert {name: row[name] for name in said} == said


async def test_what_a_dry_run_was_given_for_results_is_in_no_row(pool, stack):
    given = Overrides(tools={"vault.read": raw("hunter2")}, synthesis=raw("hunter2"))
    dry = msgspec.structs.replace(lives.opened(), mode=Mode.DRY_RUN, overrides=given)
    await live(pool, stack, dry)
    assert "hunter2" not in str(await only_row(pool, "episodes", stack=stack))


EXPIRED = EpisodeFinished(status=EndStatus.CANCELED, error_class="expired")
SENT = OutputOutcome(output_key="mail:0", outcome="delivered")
SHED = EpisodeFinished(status=EndStatus.CANCELED, error_class="shed")


@pytest.mark.parametrize(
    ("since", "status"),
    [
        ([], "pending"),
        ([lives.started()], "claimed"),
        ([lives.started(), EpisodeLeft(node="n1")], "claimed"),
        ([lives.started(), lives.finished()], "completed"),
        ([lives.started(), lives.finished(EndStatus.FAILED, error_class="crash")], "completed"),
        ([SHED], "completed"),
        ([EXPIRED], "expired"),
    ],
)
async def test_a_request_shows_what_became_of_it(pool, stack, since, status):
    asked = msgspec.structs.replace(lives.opened(), opened_by="asking", is_request=True)
    await live(pool, stack, asked, *since)
    row = await only_row(pool, "trigger_requests", stack=stack)
    claimed = ("n1", AT) if lives.started() in since else (None, None)
    assert (row["status"], row["requested_at"]) == (status, AT)
    assert (row["claimed_by"], row["claimed_at"]) == claimed
    assert (row["source_node"], row["source_stack"]) == ("asking", stack.name)


async def test_an_episode_that_its_node_runs_itself_is_no_request(pool, stack):
    await live(pool, stack, msgspec.structs.replace(lives.opened(), opened_by="n1"))
    assert await rows_of(pool, "trigger_requests", stack=stack) == []


async def test_a_running_episode_shows_its_node_and_what_it_used(pool, stack):
    await live(pool, stack, lives.opened(), lives.started(), lives.recorded(1, tokens=30))
    await live(pool, stack, lives.recorded(2, tokens=12))
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["status"], row["node"], row["attempts"]) == ("running", "n1", 1)
    assert (row["turns_used"], row["tokens_used"]) == (2, 42)


async def test_pauses_and_attempts_after_the_first_are_no_turns(pool, stack):
    paths = ("3", "3.0.1", "3.0.2", "4")
    steps = [
        msgspec.structs.replace(lives.recorded(number), path=path)
        for number, path in enumerate(paths, start=1)
    ]
    await live(pool, stack, lives.opened(), lives.started(), *steps[:2])
    await live(pool, stack, *steps[2:])
    row = await only_row(pool, "episodes", stack=stack)
    log = await only_row(pool, "episode_logs", stack=stack)
    assert (row["turns_used"], log["last_step_no"]) == (2, 4)
    await live(pool, stack, lives.finished())
    row = await only_row(pool, "episodes", stack=stack)
    assert row["turns_used"] == 3, "the end says it all"


async def test_turns_of_an_episode_that_is_opened_and_ends_at_once_are_those_of_the_end(
    pool, stack
):
    await live(pool, stack, lives.opened(), lives.started(), lives.recorded(1), lives.finished())
    row = await only_row(pool, "episodes", stack=stack)
    assert row["turns_used"] == 3


async def test_a_takeover_keeps_the_first_start(pool, stack):
    first = Recorded(
        subject=stack.episode(lives.episode_id(1)),
        seq=1,
        commit=lives.commit(lives.opened(), lives.started()),
    )
    await write(pool, changes_of([first], stack=stack), stack=stack)
    at = AT + timedelta(minutes=1)
    again = Commit(id="c2", at=at, events=(lives.started(2, node="n2"),))
    second = Recorded(subject=first.subject, seq=2, commit=again)
    await write(pool, changes_of([second], stack=stack), stack=stack)
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["node"], row["attempts"], row["started_at"]) == ("n2", 2, AT)


async def test_a_takeover_in_the_same_batch_keeps_the_first_start_too(pool, stack):
    happened = []
    for seq, event in enumerate((lives.opened(), lives.started(1), lives.started(2)), start=1):
        made = Commit(id=f"c{seq}", at=AT + timedelta(seconds=seq), events=(event,))
        subject = stack.episode(lives.episode_id(1))
        happened.append(Recorded(subject=subject, seq=seq, commit=made))
    await write(pool, changes_of(happened, stack=stack), stack=stack)
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["attempts"], row["started_at"]) == (2, AT + timedelta(seconds=2))


async def test_an_episode_that_its_node_left_waits_in_the_queue_again(pool, stack):
    await live(pool, stack, lives.opened(), lives.started(), EpisodeLeft(node="n1"))
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["status"], row["started_at"], row["attempts"]) == ("queued", AT, 1)


async def test_a_finished_episode_shows_what_it_found_and_the_exact_counts(pool, stack):
    for events in lives.WHOLE_LIFE:
        await live(pool, stack, *events)
    row = await only_row(pool, "episodes", stack=stack)
    assert (row["status"], row["finished_at"]) == ("done", AT)
    assert (row["turns_used"], row["tokens_used"]) == (3, 40)
    assert json.loads(row["classification"]) == {"primary": "disk_full"}
    assert (row["confidence"], row["summary"]) == (0.9, "the disk is full")


@pytest.mark.parametrize("status", list(EndStatus))
async def test_every_ending_shows_as_a_status(pool, stack, status):
    ended = lives.finished(status, error_class="budget_exceeded", error_detail="12 turns")
    await live(pool, stack, lives.opened(), ended)
    row = await only_row(pool, "episodes", stack=stack)
    assert row["status"] == status.value
    assert (row["error_class"], row["error_detail"]) == ("budget_exceeded", "12 turns")


async def test_an_announced_side_effect_shows_before_anyone_knows_what_came_of_it(pool, stack):
    await live(pool, stack, lives.opened(), lives.announced(1))
    row = await only_row(pool, "episode_steps", stack=stack)
    assert (row["kind"], row["state"], row["result"]) == ("tool_call", "announced", None)
    assert (row["tool_name"], row["side_effect_key"]) == ("disk.clean", "k1")


async def test_the_key_of_a_call_shows_no_hash_of_its_arguments(pool, stack):
    announced = msgspec.structs.replace(lives.announced(1), idempotency_key="e1:3:0123456789abcdef")
    await live(pool, stack, lives.opened(), announced)
    row = await only_row(pool, "episode_steps", stack=stack)
    assert row["side_effect_key"] == "e1:3"


async def test_an_announced_output_is_no_tool_call(pool, stack):
    announced = msgspec.structs.replace(lives.announced(1), output_key="mail:1")
    await live(pool, stack, lives.opened(), announced)
    row = await only_row(pool, "episode_steps", stack=stack)
    assert (row["kind"], row["state"]) == ("output", "announced")


async def test_a_recorded_step_remembers_that_it_was_announced(pool, stack):
    await live(pool, stack, lives.opened(), lives.announced(1))
    await live(pool, stack, lives.recorded(1))
    row = await only_row(pool, "episode_steps", stack=stack)
    assert (row["state"], row["side_effect_key"], row["announced_at"]) == ("recorded", "k1", AT)
    assert json.loads(row["args_redacted"]) == {"path": "/var"}
    assert json.loads(row["result"]) == "done"
    assert (row["cost_ms"], row["model"]) == (7, "m1")


async def test_a_step_shows_its_shown_result(pool, stack):
    step = msgspec.structs.replace(lives.recorded(1), result_shown=raw({"hidden": True}))
    await live(pool, stack, lives.opened(), step)
    row = await only_row(pool, "episode_steps", stack=stack)
    assert json.loads(row["result"]) == {"hidden": True}


STORED = StoredResult(digest="cd" * 32, size_bytes=5_242_882)


async def test_a_large_result_shows_by_its_size_and_digest(pool, stack):
    step = msgspec.structs.replace(lives.recorded(1, result=None), stored=STORED)
    await live(pool, stack, lives.opened(), step, lives.recorded(2))
    first, second = await rows_of(pool, "episode_steps", stack=stack)
    assert (first["result"], first["result_size_bytes"]) == (None, 5_242_882)
    assert first["result_digest"] == "cd" * 32
    assert (second["result_size_bytes"], second["result_digest"]) == (None, None)


@pytest.mark.parametrize("less", [{"is_hidden": True}, {"result_shown": raw("***")}])
async def test_a_large_result_that_people_may_not_see_whole_shows_no_digest(pool, stack, less):
    step = msgspec.structs.replace(lives.recorded(1, result=None), stored=STORED, **less)
    await live(pool, stack, lives.opened(), step)
    row = await only_row(pool, "episode_steps", stack=stack)
    assert (row["result_size_bytes"], row["result_digest"]) == (5_242_882, None)


async def test_no_hash_of_what_was_redacted_shows(pool, stack):
    step = msgspec.structs.replace(lives.recorded(1), fingerprint="ab" * 32)
    await live(pool, stack, lives.opened(), step)
    assert "abab" not in repr(await only_row(pool, "episode_steps", stack=stack))


async def test_a_checkpoint_shows_how_large_its_state_is_and_not_what_it_says(pool, stack):
    await live(pool, stack, lives.opened(), lives.saved(1))
    row = await only_row(pool, "episode_checkpoints", stack=stack)
    assert (row["checkpoint_no"], row["phase"]) == (1, "cleaned")
    assert row["state_size_bytes"] == len('{"left":2}')
    assert "left" not in repr(row)


async def test_a_finding_is_a_row_per_raise_and_every_event_is_history(pool, stack):
    events = (
        lives.raised(),
        lives.updated(severity=Severity.CRITICAL),
        lives.cleared(),
        lives.raised(raise_no=2),
    )
    await write_events(pool, *events, stack=stack, subject=stack.finding("disk:h1"))
    first, second = await rows_of(pool, "findings", stack=stack)
    assert {first["status"], second["status"]} == {"active", "superseded"}
    history = await rows_of(pool, "finding_events", stack=stack)
    assert [(row["event_no"], row["kind"], row["severity"]) for row in history] == [
        (0, "finding_raised", "high"),
        (1, "finding_updated", "critical"),
        (2, "finding_cleared", "high"),
        (3, "finding_raised", "high"),
    ]


async def test_a_finding_cleared_by_a_person_names_no_episode(pool, stack):
    gone = lives.cleared(cleared_by_episode_id="ann")
    await write_events(pool, gone, stack=stack, subject=stack.finding("disk:h1"))
    row = await only_row(pool, "findings", stack=stack)
    assert (row["cleared_by_episode_id"], row["cleared_reason"]) == (None, "cleaned")


async def test_severities_are_ordered(pool, stack):
    for number, severity in enumerate(Severity):
        key = f"k{number}"
        await write_events(
            pool, lives.raised(key, severity=severity), stack=stack, subject=stack.finding(key)
        )
    worst = await pool.fetch(
        "SELECT severity FROM active_findings WHERE stack = $1 ORDER BY severity DESC", stack.name
    )
    assert [row["severity"] for row in worst] == ["critical", "high", "medium", "low"]
    bad = await pool.fetchval(
        "SELECT count(*) FROM active_findings WHERE stack = $1 AND severity >= 'high'", stack.name
    )
    assert bad == 2


async def test_a_dead_letter_keeps_the_message_as_it_came(pool, stack):
    await write_events(pool, lives.lettered(), stack=stack, subject=stack.dead("events", "7"))
    row = await only_row(pool, "dead_letters", stack=stack)
    assert (row["reason"], row["source_seq"], row["payload"]) == ("unreadable", 7, b"\x00\xff")
    assert json.loads(row["headers"]) == {"ce-id": "x"}
    assert (row["status"], row["episode_id"], row["settled_at"]) == ("waiting", None, None)


async def test_a_dead_letter_names_the_episode_that_was_given_up(pool, stack):
    lettered = lives.lettered(episode_id=lives.episode_id(1))
    await write_events(pool, lettered, stack=stack, subject=stack.dead("episode", "1"))
    row = await only_row(pool, "dead_letters", stack=stack)
    assert row["episode_id"] == UUID(int=1)


@pytest.mark.parametrize(
    ("decision", "status", "note"),
    [
        (DeadRequeued(by="ann", event_seq=9), "requeued", "event 9"),
        (DeadRequeued(by="ann", episode_id="e2"), "requeued", "episode e2"),
        (DeadDiscarded(by="ann", reason="a typo"), "discarded", "a typo"),
        (DeadDiscarded(by="ann"), "discarded", None),
    ],
)
async def test_a_settled_letter_shows_who_decided_what(pool, stack, decision, status, note):
    subject = stack.dead("events", "7")
    await write_events(pool, lives.lettered(), stack=stack, subject=subject)
    await write_events(pool, decision, stack=stack, subject=subject)
    row = await only_row(pool, "dead_letters", stack=stack)
    assert (row["status"], row["settled_by"], row["settled_note"]) == (status, "ann", note)
    assert (row["settled_at"], row["reason"]) == (AT, "unreadable")


async def test_a_letter_that_is_projected_again_waits_again_until_its_decision(pool, stack):
    subject = stack.dead("events", "7")
    for events in ((lives.lettered(),), (DeadDiscarded(by="ann"),), (lives.lettered(),)):
        await write_events(pool, *events, stack=stack, subject=subject)
    row = await only_row(pool, "dead_letters", stack=stack)
    assert (row["status"], row["settled_by"]) == ("waiting", None)


async def test_a_letter_and_its_decision_may_come_in_one_batch(pool, stack):
    events = (lives.lettered(), DeadDiscarded(by="ann"))
    await write_events(pool, *events, stack=stack, subject=stack.dead("events", "7"))
    assert (await only_row(pool, "dead_letters", stack=stack))["status"] == "discarded"


def claimed(revision: int, *, key: str = "episode.monitor.1", node: str = "n1") -> ClaimChange:
    held = Claim(owner_node=node, claimed_at=AT, heartbeat_at=AT, lease_until=AT)
    return ClaimChange(key=key, revision=revision, state="claimed", at=AT, claim=held)


def ended(revision: int, state: str, *, key: str = "episode.monitor.1") -> ClaimChange:
    return ClaimChange(key=key, revision=revision, state=state, at=AT)


async def test_a_claim_shows_who_holds_it_and_how_it_ended(pool, stack):
    await write(pool, claims.project([claimed(1)]), stack=stack)
    row = await only_row(pool, "work_claims", stack=stack)
    assert (row["state"], row["owner_node"], row["work_type"]) == ("claimed", "n1", "episode")
    await write(pool, claims.project([ended(2, "expired")]), stack=stack)
    row = await only_row(pool, "work_claims", stack=stack)
    assert (row["state"], row["owner_node"], row["finished_at"]) == ("expired", "n1", AT)
    await write(pool, claims.project([claimed(3, node="n2")]), stack=stack)
    row = await only_row(pool, "work_claims", stack=stack)
    assert (row["state"], row["owner_node"], row["finished_at"]) == ("claimed", "n2", None)


async def test_a_claim_whose_work_failed_says_why(pool, stack):
    failed = ClaimChange(key="episode.monitor.1", revision=2, state="failed", at=AT, error="oh")
    await write(pool, claims.project([claimed(1), failed]), stack=stack)
    row = await only_row(pool, "work_claims", stack=stack)
    assert (row["state"], row["error_detail"], row["attempt"]) == ("failed", "oh", 1)


async def test_a_claim_given_up_while_nobody_watched_shows_as_done(pool, stack):
    held = [claimed(1, key=f"episode.monitor.{key}") for key in "ab"]
    await write(pool, claims.project(held), stack=stack)
    still = claims.project([claimed(5, key="episode.monitor.b")])
    await write(pool, [claims.forget(AT), *still], stack=stack)
    rows = await rows_of(pool, "work_claims", stack=stack)
    assert {row["dedupe_key"]: row["state"] for row in rows} == {
        "episode.monitor.a": "done",
        "episode.monitor.b": "claimed",
    }


async def lane(pool, stack, *events, seq):
    made = Recorded(subject=stack.lane("monitor"), seq=seq, commit=lives.commit(*events))
    await write(pool, changes_of([made], stack=stack), stack=stack)


async def tickets(pool, stack):
    return {
        row["episode_id"].int: (row["state"], row["journal_seq"])
        for row in await rows_of(pool, "lane_tickets", stack=stack)
    }


async def test_an_episode_that_waits_its_turn_has_a_ticket(pool, stack):
    ticket = lives.ticket(7, priority=2, key="h1", key_limit=1)
    await lane(pool, stack, lives.placed(ticket), seq=1)
    row = await only_row(pool, "lane_tickets", stack=stack)
    assert (row["actor_id"], row["expectation_id"]) == ("monitor", "check_disk")
    assert (row["episode_id"], row["number"]) == (UUID(int=7), 7)
    assert (row["state"], row["priority"], row["lane_key"]) == ("waiting", 2, "h1")


async def test_a_ticket_without_a_key_shows_none(pool, stack):
    await lane(pool, stack, lives.placed(lives.ticket()), seq=1)
    assert (await only_row(pool, "lane_tickets", stack=stack))["lane_key"] is None


async def test_a_ticket_shows_when_its_turn_has_come(pool, stack):
    await lane(pool, stack, lives.placed(lives.ticket(1), lives.ticket(2)), seq=1)
    await lane(pool, stack, lives.admitted(1), seq=2)
    assert await tickets(pool, stack) == {1: ("admitted", 2), 2: ("waiting", 1)}


@pytest.mark.parametrize("how", ["shed", "left"])
async def test_a_ticket_goes_with_its_place(pool, stack, how):
    await lane(pool, stack, lives.placed(lives.ticket(1), lives.ticket(2)), seq=1)
    await lane(pool, stack, LaneMoved(**{how: (lives.episode_id(1),)}), seq=2)
    assert await tickets(pool, stack) == {2: ("waiting", 1)}


async def test_what_a_lane_keeps_of_itself_makes_its_tickets_anew(pool, stack):
    """Even where the commits before it are not on the journal any more, or were read wrongly."""
    await lane(pool, stack, lives.placed(lives.ticket(1), lives.ticket(2)), seq=1)
    whole = lives.kept(lives.ticket(3), admitted=(lives.ticket(2),))
    await lane(pool, stack, whole, seq=2)
    assert await tickets(pool, stack) == {2: ("admitted", 2), 3: ("waiting", 2)}


async def test_what_one_lane_keeps_leaves_other_lanes_alone(pool, stack):
    records = [
        Recorded(subject=stack.lane(actor), seq=seq, commit=lives.commit(event))
        for seq, (actor, event) in enumerate(
            [("other", lives.placed(lives.ticket(1))), ("monitor", lives.kept(lives.ticket(2)))], 1
        )
    ]
    await write(pool, changes_of(records, stack=stack), stack=stack)
    assert await tickets(pool, stack) == {1: ("waiting", 1), 2: ("waiting", 2)}


async def test_what_a_lane_does_not_keep_cannot_be_admitted_later(pool, stack):
    """Whatever comes first in the batch: another lane admits, too."""
    await lane(pool, stack, lives.placed(lives.ticket(1)), seq=1)
    happened = [
        ("other", lives.admitted(2)),
        ("monitor", lives.kept()),
        ("monitor", lives.admitted(1)),
    ]
    records = [
        Recorded(subject=stack.lane(actor), seq=seq, commit=lives.commit(event))
        for seq, (actor, event) in enumerate(happened, start=2)
    ]
    await write(pool, changes_of(records, stack=stack), stack=stack)
    assert await tickets(pool, stack) == {}


def test_a_ticket_for_what_can_be_no_episode_cannot_be_read(stack):
    strange = LaneMoved(admitted=("e1",))
    made = Recorded(subject=stack.lane("monitor"), seq=9, commit=lives.commit(strange))
    with pytest.raises(UnreadableEvent, match="'e1' is not a UUID"):
        changes_of([made], stack=stack)


def test_the_signals_of_a_reference_have_no_rows_of_their_own(stack):
    waited = SignalWaited(ref="r", actor_id="a", episode_id="e", step_no=1, since=AT)
    given = SignalGiven(ref="r", id="s1", by="bank", at=AT, episodes=("e",))
    made = Recorded(subject=stack.signal("r"), seq=9, commit=lives.commit(waited, given))
    assert changes_of([made], stack=stack) == []


def test_what_is_no_signal_cannot_be_read_as_one(stack):
    made = Recorded(
        subject=stack.signal("r"), seq=9, commit=lives.commit(LaneMoved(admitted=("e1",)))
    )
    with pytest.raises(UnreadableEvent, match="LaneMoved in the life of a signal"):
        changes_of([made], stack=stack)


NASTY = "nul \0, emoji \N{GRINNING FACE}, quote ' \" \\ %s $1, \u202e rtl"


async def test_any_text_becomes_a_row(pool, stack):
    opened = lives.opened(payload={"text": NASTY, NASTY: ["\0"]})
    await live(pool, stack, opened, lives.recorded(1, result={"out": NASTY}))
    await live(pool, stack, lives.converged(summary=NASTY))
    row = await only_row(pool, "episodes", stack=stack)
    shown = NASTY.replace("\0", "\N{REPLACEMENT CHARACTER}")
    assert row["summary"] == shown
    assert json.loads(row["trigger_ref"])["payload"]["text"] == shown
    step = await only_row(pool, "episode_steps", stack=stack)
    assert json.loads(step["result"]) == {"out": shown}


async def test_huge_values_become_rows(pool, stack):
    huge = "x" * 500_000
    opened = lives.opened(payload={"text": huge})
    trigger = msgspec.structs.replace(opened.trigger, entity_id=huge)
    huge_opened = msgspec.structs.replace(opened, trigger=trigger, dedupe_key=huge)
    await live(pool, stack, huge_opened, lives.recorded(1, result=huge))
    found = lives.raised(subject_id=huge, summary=huge, evidence_json=raw(huge), caused_by_key=huge)
    await write_events(pool, found, stack=stack, subject=stack.finding("disk:h1"))
    assert (await only_row(pool, "episodes", stack=stack))["subject_id"] == huge
    assert (await only_row(pool, "findings", stack=stack))["summary"] == huge


@pytest.mark.parametrize(
    "place",
    [
        lambda stack: stack.episode("not-a-uuid"),
        lambda stack: stack.finding("disk:h1"),
        lambda stack: stack.output("mail:1"),
        lambda stack: stack.dead("events", "7"),
        lambda stack: f"{stack.name}.nowhere",
    ],
)
def test_a_commit_that_does_not_belong_where_it_is_cannot_be_read(stack, place):
    misplaced = Recorded(subject=place(stack), seq=9, commit=lives.commit(lives.started()))
    with pytest.raises(UnreadableEvent, match="@9"):
        changes_of([misplaced], stack=stack)


events_of_episodes = st.one_of(
    st.just(lives.opened()),
    st.builds(lives.started, st.integers(1, 3), node=st.sampled_from(["n1", "n2"])),
    st.builds(lives.announced, st.integers(1, 3)),
    st.builds(lives.recorded, st.integers(1, 3), tokens=st.integers(0, 9)),
    st.builds(lives.saved, st.integers(1, 2)),
    st.just(EpisodeLeft(node="n1")),
    st.builds(lives.blocked, st.integers(1, 3), expires_at=st.none() | st.just(AT)),
    st.builds(lives.blocked, st.integers(1, 3), ref=st.sampled_from("ab")),
    st.builds(
        lives.resolved,
        st.integers(1, 3),
        st.sampled_from(Resolution),
        by=st.sampled_from(["", "ann"]),
    ),
    st.just(EpisodeDeferred(pending=("mail:1",), outputs=(SENT,))),
    st.just(lives.converged()),
    st.builds(lives.finished, st.sampled_from(EndStatus)),
)
events_of_findings = st.one_of(
    st.builds(lives.raised, raise_no=st.integers(1, 2), severity=st.sampled_from(Severity)),
    st.builds(lives.updated, raise_no=st.integers(1, 2), summary=st.sampled_from("ab")),
    st.builds(lives.cleared, raise_no=st.integers(1, 2), status=st.sampled_from(FindingStatus)),
)
said_of_outputs = {"by": st.sampled_from(["", "ann"]), "reason": st.sampled_from(["", "so"])}
attempts_at_outputs = {"attempt": st.integers(1, 3), "error_class": st.sampled_from(["x", "y"])}
events_of_outputs = st.one_of(
    st.builds(lives.proposed, proposal_no=st.integers(1, 2)),
    st.builds(lives.proposed, approval=st.builds(lives.approval, approvers=st.just(("ann",)))),
    st.builds(OutputApproved, **said_of_outputs),
    st.builds(OutputRejected, **said_of_outputs),
    st.builds(OutputAttempted, attempt=st.integers(1, 3)),
    st.builds(OutputPostponed, retry_at=st.just(AT), **attempts_at_outputs),
    st.builds(OutputFailed, **attempts_at_outputs),
    st.builds(OutputDelivered, attempt=st.integers(1, 3), delivered_ref=st.sampled_from("ab ")),
    st.builds(OutputRetried, **said_of_outputs),
    st.just(OutputCanceled()),
)
tickets_of_lanes = st.lists(
    st.builds(lives.ticket, st.integers(1, 3), priority=st.integers(0, 1)),
    max_size=3,
    unique_by=lambda ticket: ticket.episode_id,
).map(tuple)
ids_of_lanes = st.lists(st.integers(1, 3).map(lives.episode_id), max_size=2, unique=True).map(tuple)
events_of_lanes = st.one_of(
    st.builds(LaneMoved, placed=tickets_of_lanes, admitted=ids_of_lanes, left=ids_of_lanes),
    st.builds(LaneMoved, admitted=ids_of_lanes, shed=ids_of_lanes),
    st.builds(
        lambda tickets, at: lives.kept(*tickets[:at], admitted=tickets[at:]),
        tickets_of_lanes,
        st.integers(0, 3),
    ),
)
commits = st.lists(
    st.tuples(st.just("episode"), st.integers(1, 2), events_of_episodes)
    | st.tuples(st.just("finding"), st.integers(1, 2), events_of_findings)
    | st.tuples(st.just("output"), st.integers(1, 2), events_of_outputs)
    | st.tuples(st.just("lane"), st.integers(1, 2), events_of_lanes),
    max_size=12,
).map(
    lambda happened: [each for at, each in enumerate(happened) if is_possible(each, happened[:at])]
)


def is_possible(each, before):
    """An episode begins with its opening; where that is lost, it never begins."""
    kind, number, event = each
    earlier = [event for *of_it, event in before if of_it == [kind, number]]
    is_late = bool(earlier) and not isinstance(earlier[0], EpisodeOpened)
    return not (isinstance(event, EpisodeOpened) and is_late)


def subject_of(stack, kind, number):
    match kind:
        case "episode":
            return stack.episode(lives.episode_id(number))
        case "finding":
            return stack.finding(f"k{number}")
        case "output":
            return stack.output(f"k{number}")
        case "lane":
            return stack.lane(f"a{number}")


def recorded_at(stack, happened):
    """Return commits of one event each, a second apart."""
    for seq, (kind, number, event) in enumerate(happened, start=1):
        subject = subject_of(stack, kind, number)
        made = Commit(id=f"c{seq}", at=AT + timedelta(seconds=seq), events=(event,))
        yield Recorded(subject=subject, seq=seq, commit=made)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(happened=commits, cut=st.integers(1, 12))
async def test_however_the_log_is_cut_into_batches_it_leaves_the_same_rows(pool, happened, cut):
    batched, single = Stack("batched"), Stack("single")
    for table in lives.TABLES:
        await pool.execute(f"TRUNCATE {table}")
    for stack, size in ((batched, cut), (single, 1)):
        records = list(recorded_at(stack, happened))
        for start in range(0, len(records), size):
            changes = changes_of(records[start : start + size], stack=stack)
            await write(pool, changes, stack=stack)
    assert await lives.all_rows(pool, stack=batched) == await lives.all_rows(pool, stack=single)


@given(happened=commits)
def test_a_batch_changes_each_row_once(happened):
    stack = Stack("a")
    changes = changes_of(recorded_at(stack, happened), stack=stack)
    rows = [
        (change.statement.table, *(getattr(change.row, key) for key in change.statement.keys))
        for change in changes
        if change.statement.keys
    ]
    assert len(rows) == len(set(rows))


async def test_two_keys_that_show_as_one_are_one_row(pool, stack):
    """Postgres refuses a statement that would change one row twice."""
    records = [
        Recorded(subject=stack.finding(key), seq=seq, commit=lives.commit(lives.raised(key)))
        for seq, key in enumerate(("a\0", "a\N{REPLACEMENT CHARACTER}"), start=1)
    ]
    await write(pool, changes_of(records, stack=stack), stack=stack)
    row = await only_row(pool, "findings", stack=stack)
    assert (row["finding_key"], row["journal_seq"]) == ("a\N{REPLACEMENT CHARACTER}", 2)


async def test_claims_that_come_and_go_in_one_batch_show_how_they_ended(pool, stack):
    seen = [claimed(1), ended(2, "done"), claimed(3, node="n2"), ended(4, "expired")]
    await write(pool, claims.project(seen), stack=stack)
    row = await only_row(pool, "work_claims", stack=stack)
    assert (row["state"], row["owner_node"], row["fence"]) == ("expired", "n2", 4)
    assert row["finished_at"] == AT


def test_a_commit_that_holds_what_does_not_belong_is_left_out_whole(stack):
    together = AggregateFolds(stack)
    subject = stack.episode(lives.episode_id(1))
    together.add(Recorded(subject=subject, seq=1, commit=lives.commit(lives.opened())))
    mixed = lives.commit(lives.started(), lives.raised())
    with pytest.raises(UnreadableEvent, match="FindingRaised in the life of an episode"):
        together.add(Recorded(subject=subject, seq=2, commit=mixed))
    (change,) = together.changes()
    assert (change.row.status, change.row.journal_seq) == ("queued", 1)

"""The rows of workflows are what the journal makes of their instances, wherever it is cut."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from engine.app.workflow import retrying
from engine.workflows.instance import INSTANCE_ENDED
from projections.postgres import reader
from projections.project import project as changes_of
from streams.errors import UnreadableEvent
from streams.json import raw
from streams.model.events import StepApprovalGiven, StepReused
from streams.ports.log import Commit, Recorded
from tests.engine.workflows.flows import (
    cancel,
    canceled,
    decided,
    done,
    fails,
    flow,
    given,
    needs,
    resumed,
    undoable,
    undone,
    waits,
)
from tests.projections.lives import AT, only_row, rows_of, write
from tests.streams.workflow_samples import WORKFLOW_EVENTS

ANOTHER = "00000000-0000-0000-0000-000000000008"
TWO = (("a", {"for_each": lambda t, p: [{"n": 1}, {"n": 2}]}), ("b", needs("a")))
ASKING = ("a", {"requires_approval": True, "approvers": ["ada"], "approval_expires_s": 60.0})

LIVES = {
    "a step after the other": (flow("a", ("b", needs("a"))), [done("a", {"x": 1}), done("b")]),
    "a fan-out": (flow(*TWO), [done("a", 7, 1), done("a", 8, 0), done("b")]),
    "nothing to fan out over": (
        flow(("a", {"for_each": lambda t, p: []}), ("b", needs("a"))),
        [done("b")],
    ),
    "a retry": (
        flow(("a", {"on_failure": retrying(attempts=2, backoff_s=5)})),
        [fails("a"), waits(6), done("a")],
    ),
    "a retry put off": (
        flow(("a", {"on_failure": retrying(attempts=2, backoff_s=5)})),
        [fails("a")],
    ),
    "a failure that is passed over": (
        flow(("a", {"on_failure": "continue"}), ("b", needs("a"))),
        [fails("a"), done("b")],
    ),
    "paused and tried again": (
        flow(("a", {"on_failure": "pause"})),
        [fails("a"), resumed("a", "retry"), fails("a")],
    ),
    "paused and skipped": (
        flow(("a", {"on_failure": "pause"}), ("b", needs("a"))),
        [fails("a"), resumed("a", "skip"), done("b")],
    ),
    "some items paused, and tried again": (
        flow(("a", {"for_each": lambda t, p: [{}, {}, {}], "on_failure": "pause"})),
        [fails("a", item=0), done("a", item=1), fails("a", item=2), resumed("a", "retry")],
    ),
    "approved": (flow(ASKING), [decided("a", "approve"), done("a")]),
    "approved with changes": (
        flow(ASKING),
        [decided("a", "approve", inputs=[{"x": 2}]), done("a")],
    ),
    "denied": (flow(ASKING), [decided("a", "deny")]),
    "waiting for approval": (flow(ASKING, "b"), [done("b")]),
    "canceled": (
        flow("a", ("b", needs("a")), ("c", {"on_failure": "pause"})),
        [fails("c"), cancel(), canceled("a")],
    ),
    "undone": (
        flow(undoable("a"), undoable("b", "a"), ("c", needs("b"))),
        [done("a"), done("b"), fails("c"), undone("b"), undone("a")],
    ),
    "within a budget": (
        flow(*TWO, budget_usd="0.50"),
        [done("a", 8, 0, "0.20"), done("a", 7, 1, "0.10"), done("b", spent="0.05")],
    ),
    "undone within a budget": (
        flow(undoable("a"), ("b", needs("a")), budget_usd="0.50"),
        [done("a", spent="0.20"), fails("b"), undone("a", spent="0.10")],
    ),
    "being undone": (
        flow(undoable("a"), undoable("b", "a"), ("c", needs("b"))),
        [done("a"), done("b"), fails("c")],
    ),
}


def lived(workflow, happens, stack):
    """Return the journal of an instance, with its id as the journal has it, and the instance."""
    told = given(workflow).when(*happens).flow
    subject = stack.workflow(told.instance.begun.instance_id)
    return [replace(each, subject=subject) for each in told.journal], told.instance


@pytest.mark.parametrize(("workflow", "happens"), LIVES.values(), ids=LIVES)
@pytest.mark.parametrize("size", [1, 2, 100])
async def test_the_rows_say_what_the_journal_says(pool, stack, workflow, happens, size):
    journal, instance = lived(workflow, happens, stack)
    for first in range(0, len(journal), size):
        await write(pool, changes_of(journal[first : first + size], stack=stack), stack=stack)
    row = await reader.show_workflow(pool, stack, UUID(instance.begun.instance_id))
    assert row["status"] == instance.status.value
    assert row["spent_usd"] == instance.spent_usd
    assert row["budget_usd"] == (instance.begun.budget_usd or None)
    assert {(each["step_id"], each["item"]): shown(each) for each in row["items"]} == {
        place: expected(item) for place, item in instance.items()
    } | {(name, 0): ("done", 0, None, None, None, None) for name in emptied(instance)}


@pytest.mark.parametrize(("workflow", "happens"), LIVES.values(), ids=LIVES)
async def test_a_silent_instance_is_shown_as_it_is_also_if_it_waits_for_people(
    pool, stack, workflow, happens
):
    journal, instance = lived(workflow, happens, stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    rows = await reader.list_silent_instances(pool, stack, before=datetime.max.replace(tzinfo=UTC))
    goes_on = [] if instance.phase in INSTANCE_ENDED else [instance.status.value]
    assert [row["status"] for row in rows] == goes_on


async def test_silent_instances_of_workflows_that_are_left_out_are_not_listed(pool, stack):
    journal, instance = lived(flow("a"), [], stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)

    async def listed(*but):
        late = datetime.max.replace(tzinfo=UTC)
        rows = await reader.list_silent_instances(pool, stack, before=late, but=but)
        return [row["workflow_id"] for row in rows]

    name = instance.begun.spec.name
    assert await listed("another") == [name]
    assert await listed("another", name) == []


def shown(row):
    result, id_ = row["result"], row["episode_id"]
    return (
        row["status"],
        row["attempts"],
        id_ and str(id_),
        result,
        row["error_class"],
        row["retry_at"],
    )


def expected(item):
    failure = item.error_class if item.status not in {"running", "pending"} else ""
    return (
        item.status.value,
        item.attempt,
        item.episode_id or None,
        msgspec.json.decode(item.result),
        failure or None,
        item.retry_at if item.status == "retrying" else None,
    )


def emptied(instance):
    return [name for name, step in instance.steps.items() if not step.items]


@pytest.mark.parametrize(("workflow", "happens"), LIVES.values(), ids=LIVES)
async def test_cutting_the_journal_anywhere_leaves_the_same_rows(pool, stack, workflow, happens):
    journal, _ = lived(workflow, happens, stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    whole = [await rows_of(pool, each, stack=stack) for each in TABLES]
    one_by_one = [[record] for record in journal]
    halves = [[journal[:cut], journal[cut:]] for cut in range(1, len(journal))]
    for parts in (one_by_one, *halves):
        for part in parts:
            await write(pool, changes_of(part, stack=stack), stack=stack)
        assert [await rows_of(pool, each, stack=stack) for each in TABLES] == whole


@pytest.mark.parametrize(("workflow", "happens"), LIVES.values(), ids=LIVES)
async def test_what_another_instance_did_in_the_same_transaction_changes_no_row(
    pool, stack, workflow, happens
):
    journal, instance = lived(workflow, happens, stack)
    (begun, *ended), _ = lived(flow("a", ("b", needs("a"))), [done("a"), cancel()], stack)
    others = [replace(each, subject=stack.workflow(ANOTHER)) for each in (begun, *ended)]
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    whole = await reader.show_workflow(pool, stack, UUID(instance.begun.instance_id))
    for cut in range(1, len(journal)):
        for part in (others[:2] + journal[:cut], others[2:] + journal[cut:]):
            await write(pool, changes_of(part, stack=stack), stack=stack)
        assert await reader.show_workflow(pool, stack, UUID(instance.begun.instance_id)) == whole


@pytest.mark.parametrize("is_apart", [True, False])
async def test_an_item_that_is_stopped_after_one_of_two_approvals_is_as_new_as_the_stop(
    pool, stack, is_apart
):
    journal, _ = lived(flow(ASKING), [cancel()], stack)
    (asked,) = journal[1].commit.events
    given_ = StepApprovalGiven(
        step="a", by="ada", approval=asked.approval, decision_id="d1", inputs=asked.inputs
    )
    await write_with(given_, pool, journal, stack=stack, is_apart=is_apart)
    row = await only_row(pool, "workflow_steps", stack=stack)
    assert (row["status"], row["journal_seq"]) == ("canceled", 4)


async def test_an_item_is_stopped_by_the_commit_that_has_an_approval_though_others_moved_on(
    pool, stack
):
    (started, asking, stopped), instance = lived(flow(ASKING), [cancel()], stack)
    (asked,) = asking.commit.events
    given_ = StepApprovalGiven(
        step="a", by="ada", approval=asked.approval, decision_id="d1", inputs=asked.inputs
    )
    both = replace(stopped, commit=replace(stopped.commit, events=(given_, *stopped.commit.events)))
    moved, _ = lived(flow("a", ("b", needs("a"))), [done("a")], stack)
    others = [replace(each, subject=stack.workflow(ANOTHER)) for each in moved]
    for part in ([*others[:2], started, asking], [*others[2:], both]):
        await write(pool, changes_of(part, stack=stack), stack=stack)
    row = await reader.show_workflow(pool, stack, UUID(instance.begun.instance_id))
    assert [each["status"] for each in row["items"]] == ["canceled"]


@pytest.mark.parametrize("is_apart", [True, False])
async def test_an_item_that_was_over_when_its_instance_stopped_is_as_new_as_its_end(
    pool, stack, is_apart
):
    (started, begun, stopped), _ = lived(flow("a"), [cancel()], stack)
    prepared = replace(begun, commit=replace(begun.commit, events=begun.commit.events[:1]))
    earlier = "00000000-0000-0000-0000-000000000007"
    reused = StepReused(step="a", item=0, episode_id=earlier, result=raw({"x": 1}))
    journal = [started, prepared, stopped]
    await write_with(reused, pool, journal, stack=stack, is_apart=is_apart)
    row = await only_row(pool, "workflow_steps", stack=stack)
    assert (row["status"], row["journal_seq"]) == ("done", 3)


async def write_with(event, pool, journal, *, stack, is_apart):
    """Write a journal with an event as its third commit: each alone, or all from there at once."""
    events = [each.commit.events for each in journal]
    records = [
        replace(journal[0], seq=seq, commit=replace(journal[0].commit, id=f"c{seq}", events=each))
        for seq, each in enumerate([*events[:2], (event,), *events[2:]], start=1)
    ]
    parts = [[each] for each in records] if is_apart else [records[:2], records[2:]]
    for part in parts:
        await write(pool, changes_of(part, stack=stack), stack=stack)


TABLES = ("workflow_instances", "workflow_steps")


async def test_an_instance_shows_what_began_it_and_its_graph(pool, stack):
    journal, instance = lived(flow("a", ("b", needs("a")), subject_key="client"), [], stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    row = await only_row(pool, "workflow_instances", stack=stack)
    assert (row["workflow_id"], row["trigger_type"], row["mode"]) == ("w", "manual", "live")
    assert [(each["step_id"], each["depends_on"]) for each in json.loads(row["steps"])] == [
        ("a", []),
        ("b", ["a"]),
    ]
    assert str(row["instance_id"]) == instance.begun.instance_id


@pytest.mark.parametrize(("inputs", "is_edited"), [(None, False), ([{"x": 2}], True)])
@pytest.mark.parametrize("is_apart", [True, False])
async def test_a_step_that_was_approved_with_changes_says_so(
    pool, stack, inputs, is_edited, is_apart
):
    journal, _ = lived(flow(ASKING), [decided("a", "approve", inputs=inputs), done("a")], stack)
    for batch in [[each] for each in journal] if is_apart else [journal]:
        await write(pool, changes_of(batch, stack=stack), stack=stack)
    row = await only_row(pool, "workflow_steps", stack=stack)
    assert (row["edited_hash"] is not None) is is_edited
    assert row["edited_hash"] != row["plan_hash"]


async def test_what_people_are_asked_and_say_about_a_step_stays_when_it_runs(pool, stack):
    journal, _ = lived(flow(ASKING), [decided("a", "approve"), done("a")], stack)
    for record in journal:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    row = await only_row(pool, "workflow_steps", stack=stack)
    assert (row["approvers"], row["decided_by"], row["decided_reason"]) == (
        ["ada"],
        "ada",
        "why not",
    )
    assert row["plan_hash"] is not None


PAUSED = (flow(("a", {"on_failure": "pause"})), [fails("a")])


@pytest.mark.parametrize(
    ("life", "says", "command"),
    [
        (LIVES["waiting for approval"], "step a: act/a", "approve {} a"),
        (PAUSED, "step a has failed: crash: boom", "resume {} a --retry"),
    ],
)
async def test_what_waits_for_people_is_in_their_inbox(pool, stack, life, says, command):
    journal, instance = lived(*life, stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    (row,) = await reader.list_inbox(pool, stack)
    id_ = instance.begun.instance_id
    assert (row["kind"], row["id"], row["actor_id"]) == ("workflow_step", id_, "workflow-w")
    assert (row["summary"], row["what_to_do"]) == (says, f"vigil workflows {command.format(id_)}")
    assert row["since"] is not None


@pytest.mark.parametrize(
    ("life", "is_editable"), [(LIVES["waiting for approval"], True), (PAUSED, False)]
)
async def test_what_is_approved_may_be_changed_and_a_failed_step_may_not(
    pool, stack, life, is_editable
):
    journal, _ = lived(*life, stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    (row,) = await reader.list_inbox(pool, stack)
    assert row["editable"] is is_editable


async def test_the_inbox_says_who_may_decide_on_a_step(pool, stack):
    journal, _ = lived(flow(ASKING), [], stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    (row,) = await reader.list_inbox(pool, stack)
    assert row["approvers"] == ["ada"]


async def test_lists_show_the_latest_first_and_only_what_is_asked_for(pool, stack):
    journal, _ = lived(flow("a"), [done("a")], stack)
    await write(pool, changes_of(journal, stack=stack), stack=stack)
    (row,) = await reader.list_workflows(pool, stack, status="done", workflow="w")
    assert (row["items"], row["done"], row["waiting"]) == (1, 1, 0)
    assert await reader.list_workflows(pool, stack, status="running") == []
    assert await reader.list_workflows(pool, stack, workflow="other") == []


@pytest.mark.parametrize("size", [1, 100])
async def test_an_item_shows_the_earlier_episode_whose_result_stands_for_it(pool, stack, size):
    journal, instance = lived(flow("a"), [], stack)
    earlier = "00000000-0000-0000-0000-000000000007"
    reused = StepReused(step="a", item=0, episode_id=earlier, result=raw({"x": 1}))
    commit = Commit(id="reused", at=AT, events=(reused,))
    journal = [*journal, replace(journal[-1], seq=journal[-1].seq + 1, commit=commit)]
    for first in range(0, len(journal), size):
        await write(pool, changes_of(journal[first : first + size], stack=stack), stack=stack)
    shown = await reader.show_workflow(pool, stack, UUID(instance.begun.instance_id))
    (row,) = shown["items"]
    assert (row["status"], row["reused_episode_id"]) == ("done", UUID(earlier))
    assert (row["result"], row["finished_at"]) == ({"x": 1}, AT)


def test_an_instance_whose_id_is_no_uuid_stops_the_projection(stack):
    events = WORKFLOW_EVENTS["workflow.started@1"][:1]
    record = Recorded(
        subject=stack.workflow("i1"), seq=1, commit=Commit(id="c1", at=AT, events=events)
    )
    with pytest.raises(UnreadableEvent, match="not a UUID"):
        changes_of([record], stack=stack)

"""Programs read the tables as records, which have every column."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from projections import records
from projections.postgres import records as queries
from projections.postgres.queries import query
from projections.postgres.query_result import answer
from projections.project import project
from streams.model.events import EndStatus
from streams.model.findings import Severity
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import AT, write, write_events
from tests.projections.test_workflow_rows import LIVES, lived

ASKED = {
    "list_episodes": (records.EpisodeSummary, 12),
    "show_episode": (records.EpisodeRecord, 2),
    "list_episode_causes": (records.EpisodeCause, 3),
    "list_steps": (records.StepRow, 4),
    "list_timeline": (records.TimelineEntry, 5),
    "list_findings": (records.FindingSummary, 9),
    "show_finding": (records.FindingRecord, 2),
    "list_finding_events": (records.FindingEventRow, 4),
    "list_outputs": (records.OutputSummary, 8),
    "show_output": (records.OutputRecord, 2),
    "list_output_events": (records.OutputEventRow, 4),
    "list_workflows": (records.WorkflowSummary, 6),
    "show_workflow": (records.WorkflowRecord, 2),
    "list_workflow_steps": (records.WorkflowItem, 3),
    "list_service_levels": (records.ServiceLevelRecord, 3),
    "list_budget_recommendations": (records.BudgetRecommendation, 3),
    "list_costs": (records.CostSummary, 5),
    "list_inbox": (records.InboxItem, 9),
    "list_dead_letters": (records.DeadLetterSummary, 6),
    "list_orders": (records.OrderSummary, 9),
    "list_decisions": (records.DecisionSummary, 9),
    "list_tokens": (records.TokenSummary, 6),
    "list_audit": (records.AuditEntry, 8),
    "show_dead_letter": (records.DeadLetterRecord, 2),
}
"""Query → the record of its rows, and how many values it takes."""

ADDED = {"position", "blocked_ref", "blocked_until", "history", "items"}
"""Fields that are not columns of the query for one."""

KNOWN = {"stack", "episode_id", "instance_id", "finding_key", "output_key"}
"""Columns that whoever asks has said."""

OF_THE_PAST = {
    *("left_at", "deferred_at", "decided_at", "paused_at", "resumed_at"),
    *("placed_at", "begun_at", "compensation_begun_at", "compensation_ended_at"),
}
"""Columns by which lists of the past are told."""


@pytest.mark.parametrize("name", ASKED)
async def test_a_record_has_a_field_for_every_column(pool, stack, name):
    type_, values = ASKED[name]
    asked = [None] * (values - 1)
    columns = set((await answer(pool, query(name), stack.name, *asked)).columns)
    fields = {each.encode_name for each in msgspec.structs.fields(type_)}
    assert columns - fields <= KNOWN | OF_THE_PAST
    assert fields - columns <= ADDED


@pytest.fixture
async def filled(pool, stack):
    """Two episodes with a step, one of them failed; a finding, an output and a dead letter."""
    for number, end in enumerate([(), (lives.finished(EndStatus.FAILED),)], start=1):
        events = (lives.opened(number), lives.started(), lives.recorded(1), *end)
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, *events, stack=stack, subject=subject)
    raised = lives.raised("disk", severity=Severity.HIGH)
    await write_events(pool, raised, stack=stack, subject=stack.finding("disk"))
    await write_events(pool, lives.proposed(), stack=stack, subject=stack.output("mail:1"))
    letter = lives.lettered(seq=1)
    await write_events(pool, letter, stack=stack, subject=stack.dead("events", "1"))
    return pool


async def test_episodes_are_read_as_lists_pages_counts_and_one_by_one(filled, stack):
    (failed,) = await queries.episodes(filled, stack, status="failed")
    assert (failed.episode_id, failed.tokens_used) == (UUID(int=2), 40)
    first = await queries.episodes(filled, stack, limit=1)
    second = await queries.episodes(filled, stack, after=first[0])
    assert {first[0].episode_id, second[0].episode_id} == {UUID(int=1), UUID(int=2)}
    assert await queries.count_episodes(filled, stack) == {"failed": 1, "running": 1}
    assert await queries.count_episodes(filled, stack, until=AT - timedelta(hours=1)) == {}
    one = await queries.episode(filled, stack, UUID(int=1))
    assert one is not None
    assert (one.trigger_ref["payload"], one.budget["turns"]) == ({"host": "h1"}, 5)
    assert await queries.episode(filled, stack, UUID(int=9)) is None


PAGED = {
    "findings": lambda each: each.finding_key,
    "workflows": lambda each: each.instance_id,
    "inbox": lambda each: (each.kind, each.id),
    "dead_letters": lambda each: each.letter_key,
    "outputs": lambda each: each.output_key,
}


@pytest.fixture
async def three(pool, stack):
    """Three of everything that is listed."""
    for number in range(1, 4):
        raised = lives.raised(f"disk-{number}", severity=Severity.HIGH)
        await write_events(pool, raised, stack=stack, subject=stack.finding(f"disk-{number}"))
        key = f"mail:{number}"
        proposed = lives.proposed(key=key)
        await write_events(pool, proposed, stack=stack, subject=stack.output(key))
        letter = lives.lettered(seq=number)
        await write_events(pool, letter, stack=stack, subject=stack.dead("events", str(number)))
        workflow, happens = LIVES["a step after the other"]
        journal, _ = lived(workflow, happens, Stack(stack.name))
        moved = [
            msgspec.structs.replace(each, subject=stack.workflow(lives.episode_id(number)))
            for each in journal
        ]
        await write(pool, project(moved, stack=stack), stack=stack)
    return pool


@pytest.mark.parametrize("name", PAGED)
async def test_a_list_goes_on_after_the_last_of_a_page(three, stack, name):
    listed = getattr(queries, name)
    whole = await listed(three, stack)
    assert whole
    found, last = [], None
    while page := await listed(three, stack, after=last, limit=2):
        found += page
        last = page[-1]
    assert [*map(PAGED[name], found)] == [*map(PAGED[name], whole)]


@pytest.mark.parametrize("name", ["findings", "outputs", "workflows", "inbox", "dead_letters"])
async def test_a_count_is_of_all_that_is_listed(three, stack, name):
    counted = await getattr(queries, f"count_{name}")(three, stack)
    assert sum(counted.values()) == len(await getattr(queries, name)(three, stack))


async def test_what_an_episode_did_is_read_as_steps_timeline_and_log(filled, stack):
    (step,) = await queries.steps(filled, stack, UUID(int=1))
    assert (step.tool_name, step.args_redacted) == ("disk.clean", {"path": "/var"})
    entries = await queries.timeline(filled, stack, UUID(int=2))
    assert [each.position for each in entries] == [1, 2, 3, 4]
    assert entries[-1].kind == "episode_finished"
    lines = await queries.log(filled, stack, UUID(int=2), strategy="summary_only")
    assert [line.partition("` ")[2] for line in lines] == ["failed (9 ms)"]


async def test_findings_outputs_and_dead_letters_are_read_as_lists_and_one_by_one(filled, stack):
    (listed,) = await queries.findings(filled, stack, severity="high")
    found = await queries.finding(filled, stack, "disk")
    assert found is not None
    assert (listed.class_, [each.kind for each in found.history]) == (
        "disk_full",
        ["finding_raised"],
    )
    (cause,) = await queries.causal_chain(filled, stack, "disk")
    assert (cause.depth, cause.finding_key) == (0, "disk")
    (listed,) = await queries.outputs(filled, stack, adapter="mail")
    assert await queries.outputs(filled, stack, after=listed) == []
    found = await queries.output(filled, stack, "mail:1")
    assert found is not None
    assert (found.payload, found.history[0].kind) == ({"to": "ann"}, "output_proposed")
    (listed,) = await queries.dead_letters(filled, stack, status="waiting")
    found = await queries.dead_letter(filled, stack, listed.letter_key)
    assert found is not None
    assert (found.payload, found.headers) == (b"\x00\xff", {"ce-id": "x"})
    assert [each.kind for each in await queries.inbox(filled, stack)] == ["dead_letter"]
    for ask in (queries.finding, queries.output, queries.dead_letter):
        assert await ask(filled, stack, "nothing") is None


@pytest.mark.parametrize(("workflow", "happens"), LIVES.values(), ids=LIVES)
async def test_runs_of_workflows_are_read_as_a_list_and_one_by_one(pool, stack, workflow, happens):
    journal, instance = lived(workflow, happens, stack)
    await write(pool, project(journal, stack=stack), stack=stack)
    (listed,) = await queries.workflows(pool, stack)
    found = await queries.workflow(pool, stack, listed.instance_id)
    assert found is not None
    assert (listed.status, found.status) == (instance.status.value, instance.status.value)
    assert {each.step_id for each in found.items} == set(instance.specs)

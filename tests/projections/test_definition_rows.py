"""Definitions as rows: what holds, under which revision, and how it came to that."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from msgspec import Raw
from msgspec.structs import replace

from engine.definitions import agent_of, canonical, workflow_of
from projections.definitions import agent_contents, workflow_contents
from projections.project import project as changes_of
from streams.clock import SystemClock
from streams.errors import UnreadableEvent
from streams.json import raw
from streams.memory import memory_ports
from streams.model.definitions import definition_id
from streams.model.events import DefinitionKind
from streams.ports.log import Commit, Recorded
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import (
    AT,
    append,
    only_row,
    projecting,
    rows_of,
    wait_projected,
    write,
)
from tests.streams.workflow_samples import WORKFLOW_EVENTS

AGENT, WORKFLOW = DefinitionKind.AGENT, DefinitionKind.WORKFLOW
TABLES = ("agent_definitions", "workflow_definitions", "definition_history")

CHECK = {"on": [{"manual": True}], "strategy": {"template": "observe_dispatch_converge"}}
AGENTS = [
    raw({"id": "disk", "expectations": {"has_room": CHECK, "answers": CHECK}}),
    raw({"id": "disk", "domain": "hosts", "spec_rev": "v2", "expectations": {"answers": CHECK}}),
    raw({"id": "disk", "domain": "hosts", "expectations": {"has_room": CHECK}}),
]
ONBOARD = {
    "name": "onboard",
    "on": [{"event": ["vendor.added"]}],
    "subject_key": "vendor",
    "steps": [
        {"id": "screen", "actor": "compliance", "expectation": "screens"},
        {"id": "connect", "actor": "it", "expectation": "connects", "depends_on": ["screen"]},
    ],
}
WORKFLOWS = [raw(ONBOARD), raw({**ONBOARD, "steps": []}), raw({"name": "onboard"})]
BODIES = {AGENT: AGENTS, WORKFLOW: WORKFLOWS}
IDS = {AGENT: "disk", WORKFLOW: "onboard"}


def applied(revision=1, kind=AGENT, *, id_=None, **fields):
    given = {"body": BODIES[kind][revision - 1]}
    return lives.applied(kind, id_ or IDS[kind], revision, **(given | fields))


def disabled(revision=1, kind=AGENT, *, id_=None):
    return lives.disabled(kind, id_ or IDS[kind], revision)


def life(kind):
    """Return one that is applied anew, disabled, applied again and disabled for good."""
    return [
        applied(1, kind, reason="needed"),
        applied(2, kind, by="cleo"),
        disabled(2, kind),
        applied(3, kind),
        disabled(3, kind),
    ]


def in_commits(stack, events):
    """Return the events as one commit each, a second apart, from sequence 1."""
    subject = stack.definition(definition_id(events[0].kind, events[0].id))
    return [
        Recorded(
            subject=subject,
            seq=seq,
            commit=Commit(id=f"c{seq}", at=AT + timedelta(seconds=seq), events=(event,)),
        )
        for seq, event in enumerate(events, start=1)
    ]


async def live(pool, stack, *events, size=100):
    records = in_commits(stack, events)
    for first in range(0, len(records), size):
        await write(pool, changes_of(records[first : first + size], stack=stack), stack=stack)


@pytest.mark.parametrize("size", [1, 100])
async def test_an_agent_shows_what_holds_since_when_and_by_whom(pool, stack, size):
    await live(pool, stack, *life(AGENT)[:2], size=size)
    row = await only_row(pool, "agent_definitions", stack=stack)
    assert (row["actor_id"], row["revision"], row["is_enabled"]) == ("disk", 2, True)
    assert (row["domain"], row["spec_rev"], row["expectations"]) == ("hosts", "v2", ["answers"])
    assert json.loads(row["definition"]) == json.loads(bytes(AGENTS[1]))
    assert (row["applied_by"], row["applied_reason"]) == ("cleo", None)
    assert (row["first_applied_at"], row["applied_at"]) == (at(1), at(2))
    assert (row["disabled_at"], row["journal_seq"]) == (None, 2)


def at(seconds):
    return AT + timedelta(seconds=seconds)


async def test_an_agent_that_says_little_has_what_is_so_by_default(pool, stack):
    await live(pool, stack, applied(1))
    row = await only_row(pool, "agent_definitions", stack=stack)
    assert (row["domain"], row["spec_rev"]) == ("default", None)
    assert row["expectations"] == ["answers", "has_room"]


def test_what_definitions_leave_out_is_read_as_whoever_reads_all_of_it_does():
    defined = agent_of(json.loads(bytes(AGENTS[0])))
    assert b"domain" not in bytes(canonical(defined))
    contents = agent_contents(canonical(defined))
    assert (contents.domain, contents.spec_rev) == (defined.domain, defined.spec_rev)
    assert set(contents.expectations) == set(defined.expectations)


def test_what_a_workflow_says_is_read_as_whoever_runs_it_does():
    defined = workflow_of(ONBOARD)
    contents = workflow_contents(canonical(defined))
    assert json.loads(bytes(contents.on)) == ONBOARD["on"]
    assert contents.subject_key == defined.subject_key
    assert contents.step_ids == tuple(defined.steps) == ("screen", "connect")


@pytest.mark.parametrize("size", [1, 100])
async def test_a_workflow_shows_what_begins_it_and_its_steps_in_order(pool, stack, size):
    await live(pool, stack, applied(1, WORKFLOW), size=size)
    row = await only_row(pool, "workflow_definitions", stack=stack)
    assert (row["workflow_id"], row["revision"], row["is_enabled"]) == ("onboard", 1, True)
    assert json.loads(row["triggers"]) == ONBOARD["on"]
    assert (row["subject_key"], row["steps"]) == ("vendor", ["screen", "connect"])
    assert json.loads(row["definition"]) == ONBOARD


async def test_a_workflow_that_only_people_begin_has_no_trigger(pool, stack):
    await live(pool, stack, applied(3, WORKFLOW))
    row = await only_row(pool, "workflow_definitions", stack=stack)
    assert (row["triggers"], row["subject_key"], row["steps"]) == (None, None, [])


@pytest.mark.parametrize("kind", [AGENT, WORKFLOW])
@pytest.mark.parametrize("size", [1, 100])
async def test_what_is_disabled_shows_what_held_who_disabled_it_and_why(pool, stack, kind, size):
    await live(pool, stack, *life(kind)[:3], size=size)
    row = await only_row(pool, f"{kind.value}_definitions", stack=stack)
    assert (row["is_enabled"], row["revision"], row["journal_seq"]) == (False, 2, 3)
    assert (row["disabled_at"], row["disabled_by"]) == (at(3), "bob")
    assert row["disabled_reason"] == "too loud"
    assert (row["applied_at"], row["applied_by"]) == (at(2), "cleo")


@pytest.mark.parametrize("kind", [AGENT, WORKFLOW])
@pytest.mark.parametrize("size", [1, 100])
async def test_what_is_applied_again_holds_and_says_nothing_of_who_disabled_it(
    pool, stack, kind, size
):
    await live(pool, stack, *life(kind)[:4], size=size)
    row = await only_row(pool, f"{kind.value}_definitions", stack=stack)
    assert (row["is_enabled"], row["revision"]) == (True, 3)
    assert (row["disabled_at"], row["disabled_by"], row["disabled_reason"]) == (None,) * 3
    assert (row["first_applied_at"], row["applied_at"]) == (at(1), at(4))


@pytest.mark.parametrize("kind", [AGENT, WORKFLOW])
async def test_the_history_has_every_revision_and_who_wanted_what(pool, stack, kind):
    await live(pool, stack, *life(kind))
    rows = await rows_of(pool, "definition_history", stack=stack)
    rows.sort(key=lambda row: row["journal_seq"])
    assert {(row["kind"], row["definition_id"]) for row in rows} == {(kind.value, IDS[kind])}
    assert [(row["change"], row["revision"], row["person"], row["reason"]) for row in rows] == [
        ("applied", 1, "ada", "needed"),
        ("applied", 2, "cleo", None),
        ("disabled", 2, "bob", "too loud"),
        ("applied", 3, "ada", None),
        ("disabled", 3, "bob", "too loud"),
    ]
    one, two, three = (json.loads(bytes(body)) for body in BODIES[kind])
    said = [row["definition"] and json.loads(row["definition"]) for row in rows]
    assert said == [one, two, None, three, None]
    assert [row["at"] for row in rows] == [at(seq) for seq in range(1, 6)]


@pytest.mark.parametrize("kind", [AGENT, WORKFLOW])
@pytest.mark.parametrize("cut", range(6))
async def test_rows_are_the_same_however_the_life_is_cut_into_batches(pool, stack, kind, cut):
    """I6."""
    records = in_commits(stack, life(kind))
    for batch in (records[:cut], records[cut:]):
        await write(pool, changes_of(batch, stack=stack), stack=stack)
    parts = [await rows_of(pool, table, stack=stack) for table in TABLES]
    await write(pool, changes_of(records, stack=stack), stack=stack)
    assert [await rows_of(pool, table, stack=stack) for table in TABLES] == parts
    await pool.execute(f"TRUNCATE {', '.join(TABLES)}, projection_checkpoints")
    for record in records:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    assert [await rows_of(pool, table, stack=stack) for table in TABLES] == parts


async def test_an_agent_and_a_workflow_of_one_name_are_two(pool, stack):
    await live(pool, stack, applied(1, id_="same"))
    await live(pool, stack, applied(1, WORKFLOW, id_="same"), disabled(1, WORKFLOW, id_="same"))
    agent = await only_row(pool, "agent_definitions", stack=stack)
    workflow = await only_row(pool, "workflow_definitions", stack=stack)
    assert (agent["is_enabled"], workflow["is_enabled"]) == (True, False)
    assert len(await rows_of(pool, "definition_history", stack=stack)) == 3


@pytest.mark.parametrize("kind", [AGENT, WORKFLOW])
@pytest.mark.parametrize(
    "body", [[], "x", None, 7, {"expectations": 1, "steps": 1}, {"steps": [{"name": "a"}]}]
)
async def test_what_cannot_be_read_of_a_definition_does_not_stop_the_rows(pool, stack, kind, body):
    await live(pool, stack, applied(1, kind, body=raw(body)))
    row = await only_row(pool, f"{kind.value}_definitions", stack=stack)
    assert json.loads(row["definition"] or "null") == body
    assert row["expectations" if kind is AGENT else "steps"] == []


def test_what_is_no_json_says_nothing():
    assert agent_contents(Raw(b"{")).expectation_ids == ()
    assert workflow_contents(Raw(b"\xff")).step_ids == ()


@pytest.mark.parametrize(
    "stray", [applied(1, id_="other"), disabled(1, id_="other"), applied(1, WORKFLOW, id_="disk")]
)
def test_a_change_of_another_definition_does_not_belong_here(stack, stray):
    first, second = in_commits(stack, [applied(1), stray])
    with pytest.raises(UnreadableEvent, match="is about the"):
        changes_of([first, second], stack=stack)


def test_what_is_no_change_of_a_definition_does_not_belong_here(stack):
    (record,) = in_commits(stack, [applied(1)])
    strange = replace(record, commit=replace(record.commit, events=(lives.opened(),)))
    with pytest.raises(UnreadableEvent, match="EpisodeOpened in the life of a definition"):
        changes_of([strange], stack=stack)


# What was opened under a definition.


@pytest.mark.parametrize(("revision", "shown"), [(0, None), (3, 3)])
async def test_an_episode_shows_the_revision_of_its_actor(pool, stack, revision, shown):
    opened = replace(lives.opened(), revision=revision)
    await lives.write_events(
        pool, opened, lives.started(), stack=stack, subject=stack.episode(lives.episode_id(1))
    )
    row = await only_row(pool, "episodes", stack=stack)
    assert row["definition_revision"] == shown


@pytest.mark.parametrize(("revision", "shown"), [(0, None), (3, 3)])
async def test_an_instance_shows_the_revision_that_it_began_under(pool, stack, revision, shown):
    begun = WORKFLOW_EVENTS["workflow.started@1"][0]
    begun = replace(begun, spec=replace(begun.spec, revision=revision))
    subject = stack.workflow(lives.episode_id(1))
    await lives.write_events(pool, begun, stack=stack, subject=subject)
    row = await only_row(pool, "workflow_instances", stack=stack)
    assert row["definition_revision"] == shown


# The rows of a whole journal.


@pytest.mark.parametrize("partitions", [1, 3])
async def test_every_partition_of_a_journal_brings_its_definitions(pool, stack, partitions):
    ports = memory_ports(stack=Stack(stack.name, partitions), clock=SystemClock())
    for kind in (AGENT, WORKFLOW):
        for id_ in "abcdef":
            subject = ports.stack.definition(definition_id(kind, id_))
            await append(ports.log, subject, *([replace(each, id=id_)] for each in life(kind)[:3]))
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    for table in TABLES[:2]:
        rows = await rows_of(pool, table, stack=stack)
        assert {(row["revision"], row["is_enabled"]) for row in rows} == {(2, False)}
        assert len(rows) == 6
    assert len(await rows_of(pool, "definition_history", stack=stack)) == 36

"""What ended before a cut leaves the tables, whole; what is open, held or referred to stays."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from projections.errors import NotCaughtUp
from projections.postgres import prune as pruning
from projections.postgres.prune import count_old, prune
from projections.postgres.reader import show_finding, show_output
from streams.clock import SystemClock
from streams.memory import memory_ports
from streams.model.events import (
    DeadDiscarded,
    EndStatus,
    HoldAdded,
    HoldRemoved,
    OutputDelivered,
    RowsCut,
)
from streams.model.retention import HoldKind, RetentionCut, RetentionField
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import AT, HurriedClock, all_rows, episode_id, rows_of, write_events

CLOCK = HurriedClock()
NOW = AT + timedelta(days=100)
PARTS = (
    "episodes", "episode_steps", "episode_attempts", "episode_checkpoints", "episode_blocks",
)  # fmt: skip
WHOLE = [event for events in lives.WHOLE_LIFE for event in events]
INSTANCE = """
INSERT INTO workflow_instances (
    stack, instance_id, journal_seq, workflow_id, status, mode, trigger_type, trigger_ref,
    dedupe_key, steps, depth, started_at, updated_at, finished_at, subject_value
)
VALUES ($1, $2::uuid, 1, 'flow', $3, 'live', 'manual', '{}', 'k', '[]', 0, $4, $4, $5, 'h1')
"""


def cut(what="done", *, before=AT + timedelta(days=1), actor=""):
    return RetentionCut(what=RetentionField(what), actor_id=actor, before=before)


async def write_cuts(pool, stack, *cuts):
    event = RowsCut(cuts=cuts, by="n1")
    await write_events(pool, event, stack=stack, subject=stack.order("cuts"))


async def write_episode(pool, stack, number=1, *, events=None, at=AT, end=EndStatus.DONE):
    said = [lives.opened(number), *WHOLE[1:-1], lives.finished(end)] if events is None else events
    await write_events(pool, *said, stack=stack, subject=stack.episode(episode_id(number)), at=at)


async def write_hold(pool, stack, kind, held, *, event=HoldAdded):
    said = event(kind=kind, held=held, by="ann", reason="case 7")
    await write_events(pool, said, stack=stack, subject=stack.order(f"hold.{kind.value}.{held}"))


async def episodes(pool, stack):
    return {row["episode_id"].int for row in await rows_of(pool, "episodes", stack=stack)}


async def pruned(ports, pool):
    return await prune(ports, pool, clock=CLOCK)


async def test_an_old_episode_leaves_with_all_that_only_it_has(ports, pool, stack):
    await write_episode(pool, stack, 1)
    await write_episode(pool, stack, 2, at=NOW)
    before = {table: len(await rows_of(pool, table, stack=stack)) for table in PARTS}
    await write_cuts(pool, stack, cut())

    report = await pruned(ports, pool)

    assert await episodes(pool, stack) == {2}
    for table in PARTS:
        left = await rows_of(pool, table, stack=stack)
        assert {row["episode_id"].int for row in left} == {2}
        assert len(left) * 2 == before[table]
        assert report.deleted[table] == len(left)
    assert (await pruned(ports, pool)).deleted == {}


async def test_without_a_cut_nothing_leaves(ports, pool, stack):
    await write_episode(pool, stack, 1)
    assert (await pruned(ports, pool)).deleted == {}
    assert await episodes(pool, stack) == {1}


async def test_what_has_not_ended_never_leaves(ports, pool, stack):
    await write_episode(pool, stack, 1, events=[lives.opened(1), lives.started()])
    await write_cuts(pool, stack, cut("done", before=NOW), cut("failed", before=NOW))
    await pruned(ports, pool)
    assert await episodes(pool, stack) == {1}


@pytest.mark.parametrize(
    ("end", "what"),
    [
        (EndStatus.DONE, "done"),
        (EndStatus.CANCELED, "done"),
        (EndStatus.FAILED, "failed"),
        (EndStatus.PARTIALLY_FAILED, "failed"),
    ],
)
async def test_failures_leave_by_a_cut_of_their_own(ports, pool, stack, end, what):
    await write_episode(pool, stack, 1, end=end)
    other = "failed" if what == "done" else "done"
    await write_cuts(pool, stack, cut(other))
    await pruned(ports, pool)
    assert await episodes(pool, stack) == {1}
    await write_cuts(pool, stack, cut(what))
    await pruned(ports, pool)
    assert await episodes(pool, stack) == set()


async def test_an_actor_with_a_cut_of_its_own_leaves_by_that(ports, pool, stack):
    await write_episode(pool, stack, 1)
    await write_cuts(pool, stack, cut(), cut(actor="monitor", before=AT))
    await pruned(ports, pool)
    assert await episodes(pool, stack) == {1}
    await write_cuts(pool, stack, cut(before=AT), cut(actor="monitor"))
    await pruned(ports, pool)
    assert await episodes(pool, stack) == set()


async def test_newer_cuts_replace_older_ones(pool, stack):
    for cuts in [(cut(), cut(actor="a")), (cut("failed"),)]:
        event = RowsCut(cuts=cuts, by="n1")
        await lives.write(
            pool,
            lives.changes_of(
                [
                    lives.Recorded(
                        subject=stack.order("cuts"),
                        seq=len(cuts[0].what),
                        commit=lives.commit(event),
                    )
                ],
                stack=stack,
            ),
            stack=stack,
        )
    (row,) = await rows_of(pool, "retention_cuts", stack=stack)
    assert (row["what"], row["actor_id"], row["before"]) == ("failed", "", cut().before)


@pytest.mark.parametrize(
    ("kind", "held"),
    [(HoldKind.ACTOR, "monitor"), (HoldKind.EPISODE, episode_id(1)), (HoldKind.SUBJECT, "h1")],
)
async def test_what_is_held_stays_until_it_is_let_go(ports, pool, stack, kind, held):
    await write_episode(pool, stack, 1)
    await write_cuts(pool, stack, cut())
    await write_hold(pool, stack, kind, held)

    report = await pruned(ports, pool)
    assert (report.deleted, report.stay) == ({}, {f"{kind.value} {held}": 1})

    await write_hold(pool, stack, kind, held, event=HoldRemoved)
    await pruned(ports, pool)
    assert await episodes(pool, stack) == set()


async def test_a_hold_on_something_else_holds_nothing(ports, pool, stack):
    await write_episode(pool, stack, 1)
    await write_cuts(pool, stack, cut())
    for kind in HoldKind:
        await write_hold(pool, stack, kind, "other")
    await write_hold(pool, stack, HoldKind.ACTOR, "h1")
    await pruned(ports, pool)
    assert await episodes(pool, stack) == set()


async def link(pool, column, value, *, number=1):
    await pool.execute(
        f"UPDATE episodes SET {column} = $1 WHERE episode_id = $2::uuid",  # noqa: S608 - ours
        value,
        episode_id(number),
    )


async def test_an_episode_of_an_open_instance_stays(ports, pool, stack):
    await write_episode(pool, stack, 1)
    await link(pool, "workflow_instance_id", episode_id(9))
    await pool.execute(INSTANCE, stack.name, episode_id(9), "running", AT, None)
    await write_cuts(pool, stack, cut())
    assert (await pruned(ports, pool)).stay == {"an open instance": 1}

    await pool.execute("UPDATE workflow_instances SET finished_at = $1, status = 'done'", AT)
    report = await pruned(ports, pool)
    assert (report.deleted["episodes"], report.deleted["workflow_instances"]) == (1, 1)


async def test_an_instance_stays_for_as_long_as_one_of_its_episodes_does(ports, pool, stack):
    await write_episode(pool, stack, 1, at=NOW)
    await link(pool, "workflow_instance_id", episode_id(9))
    await pool.execute(INSTANCE, stack.name, episode_id(9), "done", AT, AT)
    await write_cuts(pool, stack, cut())
    assert (await pruned(ports, pool)).stay == {"its episodes": 1}


@pytest.mark.parametrize(
    ("kind", "held"), [(HoldKind.ACTOR, "workflow-flow"), (HoldKind.SUBJECT, "h1")]
)
async def test_an_instance_is_held_as_its_workflow_or_its_subject_is(
    ports, pool, stack, kind, held
):
    await pool.execute(INSTANCE, stack.name, episode_id(9), "done", AT, AT)
    await write_cuts(pool, stack, cut())
    await write_hold(pool, stack, kind, held)
    assert (await pruned(ports, pool)).stay == {f"{kind.value} {held}": 1}


async def test_a_child_stays_while_its_parent_is_open_and_a_parent_while_a_child_is(
    ports, pool, stack
):
    await write_episode(pool, stack, 1, events=[lives.opened(1), lives.started()])
    await write_episode(pool, stack, 2)
    await write_episode(pool, stack, 3, events=[lives.opened(3), lives.started()])
    await link(pool, "parent_id", episode_id(1), number=2)
    await link(pool, "parent_id", episode_id(2), number=3)
    await write_cuts(pool, stack, cut())
    assert (await pruned(ports, pool)).stay == {"an open parent": 1}

    await link(pool, "parent_id", None, number=2)
    assert (await pruned(ports, pool)).stay == {"an open child": 1}


async def test_an_episode_stays_while_what_it_found_is_active(ports, pool, stack):
    await write_episode(pool, stack, 1)
    await write_events(pool, lives.raised(), stack=stack, subject=stack.finding("disk:h1"))
    await write_cuts(pool, stack, cut())
    assert (await pruned(ports, pool)).stay == {"an active finding": 1}


async def test_an_episode_stays_while_an_output_of_it_is_open(ports, pool, stack):
    await write_episode(pool, stack, 1)
    await write_events(pool, lives.proposed(), stack=stack, subject=stack.output("mail:1"))
    await write_cuts(pool, stack, cut())
    assert (await pruned(ports, pool)).stay == {"an open output": 1}


async def test_an_episode_stays_while_its_dead_letter_waits(ports, pool, stack):
    await write_episode(pool, stack, 1)
    letter = lives.lettered(episode_id=episode_id(1))
    await write_events(pool, letter, stack=stack, subject=stack.dead("event", "k"))
    await write_cuts(pool, stack, cut())
    assert (await pruned(ports, pool)).stay == {"a waiting dead letter": 1}


async def raise_over(pool, stack, key="disk:h1", **fields):
    for event in (lives.raised(key, **fields), lives.cleared(key, **fields)):
        await write_events(pool, event, stack=stack, subject=stack.finding(key))


async def test_a_raise_that_is_over_leaves_with_its_history(ports, pool, stack):
    await raise_over(pool, stack)
    await raise_over(pool, stack, "disk:h2", subject_id="h2")
    again = {"raise_no": 2, "raised_at": NOW, "updated_at": NOW}
    await write_events(
        pool, lives.raised(**again), stack=stack, subject=stack.finding("disk:h1"), at=NOW
    )
    await write_cuts(pool, stack, cut("findings"))
    await write_hold(pool, stack, HoldKind.SUBJECT, "h2")

    report = await pruned(ports, pool)

    left = await rows_of(pool, "findings", stack=stack)
    assert {(row["finding_key"], row["raise_no"]) for row in left} == {
        ("disk:h1", 2), ("disk:h2", 1),
    }  # fmt: skip
    events = await rows_of(pool, "finding_events", stack=stack)
    assert {(row["finding_key"], row["raise_no"]) for row in events} == {
        ("disk:h1", 2), ("disk:h2", 1),
    }  # fmt: skip
    assert report.stay == {"subject h2": 1}


async def test_what_explains_an_active_finding_stays(ports, pool, stack):
    await raise_over(pool, stack, "disk:h1")
    effect = lives.raised("site:down", caused_by_key="disk:h1")
    await write_events(pool, effect, stack=stack, subject=stack.finding("site:down"))
    await write_cuts(pool, stack, cut("findings"))
    assert (await pruned(ports, pool)).stay == {"an active finding": 1}


async def test_a_settled_output_leaves_with_its_history(ports, pool, stack):
    for number, end in enumerate([(OutputDelivered(attempt=1),), ()], start=1):
        key = f"mail:{number}"
        await write_events(
            pool, lives.proposed(key=key), *end, stack=stack, subject=stack.output(key)
        )
    await write_cuts(pool, stack, cut("outputs"))
    await pruned(ports, pool)
    for table in ("outputs", "output_events"):
        assert {row["output_key"] for row in await rows_of(pool, table, stack=stack)} == {"mail:2"}


async def test_a_settled_dead_letter_leaves_and_one_that_waits_does_not(ports, pool, stack):
    for key, events in {"a": [DeadDiscarded(by="ann")], "b": []}.items():
        letter = lives.lettered()
        await write_events(pool, letter, *events, stack=stack, subject=stack.dead("event", key))
    await write_cuts(pool, stack, cut("dead_letters"))
    await pruned(ports, pool)
    left = await rows_of(pool, "dead_letters", stack=stack)
    assert [row["letter_key"] for row in left] == ["event.b"]


async def test_many_leave_in_slices(ports, pool, stack, monkeypatch):
    monkeypatch.setattr(pruning, "SLICE_MAX", 2)
    for number in range(1, 8):
        await write_episode(pool, stack, number, at=AT + timedelta(seconds=number % 3))
    for number in (2, 5):
        await write_hold(pool, stack, HoldKind.EPISODE, episode_id(number))
    await write_cuts(pool, stack, cut())
    report = await pruned(ports, pool)
    assert await episodes(pool, stack) == {2, 5}
    assert report.deleted["episodes"] == 5


async def test_two_stacks_in_one_database_do_not_touch_each_other(pool):
    ours, theirs = Stack("ours"), Stack("theirs")
    for stack in (ours, theirs):
        await write_episode(pool, stack, 1)
        await raise_over(pool, stack)
        await write_events(
            pool, lives.proposed(), OutputDelivered(attempt=1),
            stack=stack, subject=stack.output("mail:1"),
        )  # fmt: skip
        await write_events(
            pool, lives.lettered(), DeadDiscarded(by="ann"),
            stack=stack, subject=stack.dead("event", "k"),
        )  # fmt: skip
        await pool.execute(INSTANCE, stack.name, episode_id(9), "done", AT, AT)
    every = [cut(each.value) for each in RetentionField if each.value in ALL]
    await write_cuts(pool, ours, *every)
    await write_hold(pool, theirs, HoldKind.ACTOR, "monitor")
    before = await all_rows(pool, stack=theirs)

    await prune(memory_ports(stack=ours, clock=SystemClock()), pool, clock=CLOCK)

    assert await all_rows(pool, stack=theirs) == before
    gone = await all_rows(pool, stack=ours)
    assert {table for table, rows in gone.items() if rows} == {"orders"}


ALL = ("done", "failed", "findings", "outputs", "dead_letters")


async def test_rows_that_lag_behind_are_not_deleted_yet(ports, pool, stack, monkeypatch):
    monkeypatch.setattr(pruning, "LEVEL_S", 0.05)
    await write_episode(pool, stack, 1)
    await write_cuts(pool, stack, cut())
    hold = HoldAdded(kind=HoldKind.ACTOR, held="monitor", by="ann")
    await lives.append(ports.log, stack.order("hold.actor.monitor"), (hold,))
    with pytest.raises(NotCaughtUp):
        await pruned(ports, pool)
    assert await episodes(pool, stack) == {1}


async def test_projectors_wait_for_a_slice_so_no_hold_comes_too_late(ports, pool, stack):
    await write_episode(pool, stack, 1)
    await write_cuts(pool, stack, cut())
    async with pool.acquire() as connection:
        async with connection.transaction():
            # As a projector that has written a hold, and has not committed it yet.
            await connection.execute(
                "UPDATE projection_checkpoints SET journal_seq = journal_seq + 1"
            )
            deleting = asyncio.create_task(pruned(ports, pool))
            await connection.execute(
                "INSERT INTO retention_holds (stack, kind, held, journal_seq, is_held, at, person)"
                " VALUES ($1, 'actor', 'monitor', 1, true, $2, 'ann')",
                stack.name,
                AT,
            )
            done, _ = await asyncio.wait({deleting}, timeout=0.3)
            assert not done
        await deleting
    assert await episodes(pool, stack) == {1}


async def test_rows_that_come_again_leave_again(ports, pool, stack):
    await write_cuts(pool, stack, cut())
    for _ in range(2):
        await write_episode(pool, stack, 1)
        await pruned(ports, pool)
        assert await episodes(pool, stack) == set()
        for table in PARTS:
            assert await rows_of(pool, table, stack=stack) == []


async def test_a_reader_in_a_loop_never_sees_half_an_episode(ports, pool, stack, monkeypatch):
    monkeypatch.setattr(pruning, "SLICE_MAX", 3)
    for number in range(1, 31):
        await write_episode(pool, stack, number)
    await write_cuts(pool, stack, cut())
    steps = len([1 for each in WHOLE if type(each).__name__ == "StepRecorded"])
    halves = (
        "SELECT count(*) FROM (SELECT episode_id, count(*) AS steps FROM episode_steps"
        " GROUP BY episode_id) AS had FULL JOIN episodes USING (episode_id)"
        " WHERE steps IS DISTINCT FROM $1 OR episodes.episode_id IS NULL"
    )
    deleting, looks = asyncio.create_task(pruned(ports, pool)), 0
    while not deleting.done():
        assert await pool.fetchval(halves, steps) == 0
        looks += 1
    await deleting
    assert looks > 3
    assert await episodes(pool, stack) == set()


@pytest.mark.parametrize("what", ["finding", "output"])
async def test_what_leaves_while_it_is_read_is_read_as_gone(pool, stack, what):
    """A reader that has the row asks for its history next."""
    await raise_over(pool, stack)
    await write_events(pool, lives.proposed(), stack=stack, subject=stack.output("mail:1"))
    key = {"finding": "disk:h1", "output": "mail:1"}[what]
    show = {"finding": show_finding, "output": show_output}[what]
    assert (await show(pool, stack, key))["history"]
    await pool.execute(f"DELETE FROM {what}_events")  # noqa: S608 - our own
    assert await show(pool, stack, key) is None


async def test_a_dry_run_counts_what_would_leave_and_what_holds_the_rest(pool, stack):
    for number in (1, 2, 3):
        await write_episode(pool, stack, number)
    await write_episode(pool, stack, 4, at=NOW)
    await write_hold(pool, stack, HoldKind.EPISODE, episode_id(2))

    (old,) = await count_old(pool, stack, [cut()])

    assert (old.kind, old.actor_id, old.state, old.count, old.due) == (
        "episodes", "monitor", "done", 3, 2,
    )  # fmt: skip
    assert (old.stay, old.since) == ({f"episode {episode_id(2)}": 1}, AT)
    assert await episodes(pool, stack) == {1, 2, 3, 4}

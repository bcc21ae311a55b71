"""The rows of a lane are its tickets, wherever its journal begins."""

from __future__ import annotations

import random

import pytest

from engine.lanes import lane as lane_rules
from engine.lanes.lane import LaneInputs, Limits, Wanted
from projections.project import project as changes_of
from streams.model.events import LaneKept
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, rows_of, write

MOVES = lane_rules.KEEP_EVERY + 60


def lived(stack, seed):
    """Return the commits of a lane in which episodes come, go and come back, and the lane."""
    chance = random.Random(seed)
    lane, commits = lane_rules.EMPTY, []
    for seq in range(1, MOVES + 1):
        wanted = [
            Wanted(
                episode_id=lives.episode_id(10 * seq + number),
                expectation_id="check_disk",
                priority=chance.randint(0, 2),
                key=chance.choice(["", "h1", "h2"]),
                key_limit=1,
            )
            for number in range(chance.randint(0, 3))
        ]
        left = [each.episode_id for each in lane.admitted[: chance.randint(0, 2)]]
        # Some of them waited for something else, and come back in the same move.
        wanted += [
            Wanted(episode_id=each, expectation_id="check_disk", resumes=True)
            for each in left
            if chance.random() < 0.3
        ]
        seen = LaneInputs(wanted=wanted, left=left)
        limits = Limits(capacity=4, overflow="shed_oldest", queue_max=10)
        commit = Commit(id=f"c{seq}", at=AT, events=lane_rules.decide(lane, seen, limits))
        if not commit.events:
            continue
        commits.append(Recorded(subject=stack.lane("monitor"), seq=seq, commit=commit))
        for event in commit.events:
            lane = lane_rules.evolve(lane, event, version=seq)
    return commits, lane


def shown(row):
    return row["episode_id"], row["state"], row["number"], row["priority"], row["lane_key"]


@pytest.mark.parametrize("seed", range(3))
async def test_the_rows_of_a_lane_are_its_tickets(pool, stack, seed):
    commits, lane = lived(stack, seed)
    await write(pool, changes_of(commits, stack=stack), stack=stack)
    rows = await rows_of(pool, "lane_tickets", stack=stack)
    tickets = [("waiting", each) for each in lane.waiting]
    tickets += [("admitted", each) for each in lane.admitted]
    assert {(str(row[0]), *row[1:]) for row in map(shown, rows)} == {
        (each.episode_id, state, each.number, each.priority, each.key or None)
        for state, each in tickets
    }


@pytest.mark.parametrize("seed", range(3))
async def test_the_rows_are_the_same_wherever_the_journal_begins(pool, stack, seed):
    commits, _ = lived(stack, seed)
    kept = next(
        index
        for index, record in enumerate(commits)
        if any(isinstance(event, LaneKept) for event in record.commit.events)
    )
    found = []
    for begin, size in ((0, 1), (0, MOVES), (kept // 2, 7), (kept, 3)):
        await pool.execute("TRUNCATE lane_tickets")
        for start in range(begin, MOVES, size):
            changes = changes_of(commits[start : start + size], stack=stack)
            await write(pool, changes, stack=stack)
        found.append(await rows_of(pool, "lane_tickets", stack=stack))
    assert all(found)
    assert all(each == found[0] for each in found)

"""What is part of something has a row only where that has one, as its beginning may be lost."""

from __future__ import annotations

import pytest

from projections.project import project as changes_of
from streams.model.events import OutputAttempted, OutputDelivered
from streams.ports.log import Recorded
from tests.engine.workflows.flows import done, flow, needs
from tests.projections import lives
from tests.projections.lives import all_rows, rows_of, write
from tests.projections.test_workflow_rows import lived
from tests.simulation.rows import folded

ITEMS = {"for_each": lambda t, p: [{"n": 1}, {"n": 2}], **needs("a")}


def episode(stack):
    """Return the commits of an episode, each with parts of another kind."""
    events = (
        lives.opened(),
        lives.started(2),
        lives.announced(1),
        lives.recorded(1),
        lives.saved(1),
        lives.blocked(2),
        lives.resolved(2),
        lives.finished(),
    )
    return [lives.record(stack, each, seq=seq) for seq, each in enumerate(events, start=1)]


def output(stack):
    events = (
        lives.proposed(),
        OutputAttempted(attempt=1, node="n1"),
        OutputDelivered(attempt=1, delivered_ref="m"),
    )
    return [
        Recorded(subject=stack.output("mail:1"), seq=seq, commit=lives.commit(each))
        for seq, each in enumerate(events, start=1)
    ]


def instance(stack):
    journal, _ = lived(flow("a", ("b", ITEMS)), [done("a"), done("b", item=0)], stack)
    return journal


LIVES = (episode, output, instance)


@pytest.mark.parametrize("life", LIVES)
async def test_a_life_without_its_beginning_makes_no_row(pool, stack, life):
    rest = life(stack)[1:]
    await write(pool, changes_of(rest, stack=stack), stack=stack)
    assert [table for table, rows in (await all_rows(pool, stack=stack)).items() if rows] == []
    assert folded(rest, stack=stack) == {}


@pytest.mark.parametrize("life", LIVES)
async def test_a_life_whose_rows_were_there_before_goes_on(pool, stack, life):
    beginning, *rest = life(stack)
    await write(pool, changes_of([beginning, *rest], stack=stack), stack=stack)
    whole = await all_rows(pool, stack=stack)
    await write(pool, changes_of(rest, stack=stack), stack=stack)
    known = {table: len(rows) for table, rows in whole.items()}
    after = await all_rows(pool, stack=stack)
    assert {table: len(rows) for table, rows in after.items()} == known
    assert any(known.values())


async def test_a_life_that_begins_behind_the_parts_of_another_one_is_whole(pool, stack):
    await write(pool, changes_of([lives.record(stack, lives.opened(1))], stack=stack), stack=stack)
    later = [
        lives.record(stack, lives.recorded(1), number=1, seq=2),
        lives.record(stack, lives.opened(2), number=2, seq=3),
        lives.record(stack, lives.recorded(1), number=2, seq=4),
    ]
    await write(pool, changes_of(later, stack=stack), stack=stack)
    assert len(await rows_of(pool, "episode_steps", stack=stack)) == 2


@pytest.mark.parametrize("together", [True, False])
async def test_what_a_lost_proposal_left_is_no_history_of_the_next_one(pool, stack, together):
    _, attempted, delivered = output(stack)
    again = Recorded(
        subject=stack.output("mail:1"), seq=4, commit=lives.commit(lives.proposed(proposal_no=2))
    )
    rest = [attempted, delivered, again]
    for each in [rest] if together else [[each] for each in rest]:
        await write(pool, changes_of(each, stack=stack), stack=stack)
    (only,) = await rows_of(pool, "output_events", stack=stack)
    assert (only["journal_seq"], only["kind"]) == (4, "output_proposed")
    assert [place[0] for place in folded(rest, stack=stack)].count("output_events") == 1

"""Journals of simulated worlds leave the same rows in Postgres wherever they are cut."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Final

import pytest

from projections.project import project
from tests.projections.lives import all_rows, write
from tests.simulation.world import History, happened
from tests.size import size

FIRST: Final = 600
WORLDS: Final = range(FIRST, FIRST + size("cut", short=2, full=200))
CUT_TO: Final = (3, 10, 40, 1_000)
"""Most commits of a transaction, in each of the ways in which a journal is cut."""


@pytest.fixture(params=WORLDS)
def history(request) -> History:
    return happened(request.param)


@pytest.mark.timeout(300)
async def test_wherever_the_journal_of_a_world_is_cut_it_leaves_the_same_rows(
    pool, emptying, history
):
    stack, cut = history.stack, Random(history.seed)
    found = []
    for most in CUT_TO:
        await pool.execute(emptying)
        left = iter(history.journal)
        while part := list(islice(left, cut.randint(1, most))):
            await write(pool, project(part, stack=stack), stack=stack)
        found.append(await all_rows(pool, stack=stack))
    assert found == found[:1] * len(CUT_TO)
    assert found[0]["episodes"]

"""A stack archives, purges and cuts off through a storm a day, and what was there is there.

VIGIL_TEST_SIZE=full lets a year pass, and more stacks live for some days.
"""

from __future__ import annotations

from typing import Final

import pytest

from streams.layout import Stream
from tests.simulation.invariants import breaches
from tests.simulation.years import HOT_DAYS, journals, lived
from tests.size import size

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7_200)]

FEW_DAYS: Final = HOT_DAYS + 2
"""After so many the journal is purged every day."""

STACKS: Final = range(1, 1 + size("aged", short=1, full=30))
DAYS: Final = {1: size("retained", short=FEW_DAYS, full=365)}


@pytest.mark.parametrize("seed", STACKS)
def test_archive_and_retention_lose_nothing_and_the_journal_stays_small(seed):
    world, history = lived(seed, days=DAYS.get(seed, FEW_DAYS))

    assert breaches(history) == []
    dead = history.stack.stream(Stream.DEAD)
    stored = [
        (each.subject, each.seq)
        for each in world.servers.stored
        if history.stack.stream_of(each.subject) != dead
    ]
    assert [(each.subject, each.seq) for each in history.journal] == stored
    assert all(each.first_seq > 1 for each in journals(world.servers))
    settled = max(world.sizes[:FEW_DAYS])
    assert max(world.sizes[FEW_DAYS:], default=0) <= 2 * settled

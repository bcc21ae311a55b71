"""The histories of an actor's last episodes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.operations.replay import load
from streams.model.events import EndStatus
from tests.client.happened import lived
from tests.projections import lives
from tests.projections.lives import AT, write_events
from vigil.errors import Mistake


async def ended(ports, pool, number, status=EndStatus.DONE, *, is_kept=True):
    """An episode that has ended, in the rows, and on the journal if that still has it."""
    events = lives.opened(number), lives.started(), lives.finished(status)
    subject = ports.stack.episode(lives.episode_id(number))
    at = AT + timedelta(seconds=number)
    await write_events(pool, *events, stack=ports.stack, subject=subject, at=at)
    if is_kept:
        await lived(ports, number, *events[1:])
    return lives.episode_id(number)


async def test_the_newest_come_first_and_canceled_ones_not_at_all(ports, pool, client):
    ids = [await ended(ports, pool, number) for number in (1, 2, 3)]
    await ended(ports, pool, 4, EndStatus.CANCELED)
    found = await client.episodes.histories(actor="monitor", last=2)
    assert [*found] == [ids[2], ids[1]]
    (record,) = [each for each in load(found[ids[2]]) if each.commit.events][:1]
    assert record.commit.events[0] == lives.opened(3)
    of_others = await client.episodes.histories(actor="monitor", expectation="other")
    assert of_others == {}


async def test_one_that_is_kept_no_longer_is_left_out_and_told(ports, pool, client):
    kept = await ended(ports, pool, 1)
    gone = await ended(ports, pool, 2, is_kept=False)
    said = []
    assert [*await client.episodes.histories(actor="monitor", say=said.append)] == [kept]
    assert said == [f"left out: episode {gone}: the journal holds no episode {gone}"]


@pytest.mark.parametrize("last", [0, 1_001])
async def test_a_number_that_cannot_be_is_a_mistake(client, last):
    with pytest.raises(Mistake, match="is not from 1 to 1,000"):
        await client.episodes.histories(actor="monitor", last=last)

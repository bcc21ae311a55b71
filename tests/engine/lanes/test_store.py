"""The lane of an actor as one node has read it: others may have moved on since."""

from __future__ import annotations

from itertools import count

import pytest

from engine.lanes.store import LaneStore
from streams.errors import VersionConflict
from streams.model.events import LaneMoved
from streams.model.lanes import Ticket
from tests.engine.lane_stage import lane_of
from tests.engine.stage import CLOCK


def placed(number):
    ticket = Ticket(episode_id=f"e{number}", expectation_id="thing", number=number)
    return LaneMoved(placed=(ticket,))


async def test_of_two_nodes_that_decide_on_one_version_the_second_is_refused(ports):
    first, second = [
        LaneStore(ports, CLOCK, "worker", (f"{node}-{number}" for number in count()))
        for node in ("n1", "n2")
    ]
    for each in (first, second):
        await each.read()

    await first.append([placed(1)])
    with pytest.raises(VersionConflict):
        await second.append([placed(2)])

    assert [ticket.episode_id for ticket in (await lane_of(ports)).waiting] == ["e1"]

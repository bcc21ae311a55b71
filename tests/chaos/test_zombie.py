"""I2: a node that wakes up after its lease went to another one writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from streams.model.events import EndStatus, EpisodeStarted
from tests.acceptance.cluster import wait_until
from tests.chaos.stage import WAIT_S_MAX, opened

pytestmark = pytest.mark.nightly

ANSWER_S: Final = 1.0
"""Time enough to freeze a node between its call and the answer."""

LEASE_S: Final = 6
"""Longer than an idle runner's pull lives, which would bring the call for recovery to the frozen
node: there it would wait until the server sends it again."""


async def test_a_node_that_was_frozen_past_its_lease_adds_nothing(tmp_path: Path):
    async with opened(tmp_path, answer_s=ANSWER_S, VIGIL_LEASE_S=str(LEASE_S)) as stage:
        nodes = await stage.start_two()
        await stage.publish("settle")
        first = await stage.wait_called()
        nodes[first].freeze()
        second = await stage.wait_called(times=2)
        assert (await stage.wait_finished()).status is EndStatus.DONE

        before = await stage.life()
        zombie = nodes[first]
        zombie.thaw()
        await wait_until(lambda: zombie.says("claim_lost"), "claim_lost", most_s=WAIT_S_MAX)
        assert zombie.stop() == 0

        assert await stage.life() == before
        events = [event for record in before for event in record.commit.events]
        assert [e.node for e in events if isinstance(e, EpisodeStarted)] == [first, second]
        assert [call.node for call in stage.calls()] == [first, second]
        assert len({call.key for call in stage.calls()}) == 1

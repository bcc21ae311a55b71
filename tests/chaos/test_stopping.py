"""I9: what a node leaves behind when it is told to stop, and what its exit code says of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest

from engine.episodes.episode import fold
from streams.model.events import EndStatus, EpisodeLeft
from tests.acceptance.cluster import wait_until
from tests.chaos.stage import WAIT_S_MAX, opened

pytestmark = pytest.mark.nightly

SOON_S: Final = 1.0
NEVER_S: Final = 600.0
"""An answer that no test waits for."""


async def test_a_node_that_reaches_a_barrier_in_time_hands_its_episode_over(tmp_path: Path):
    async with opened(tmp_path, answer_s=SOON_S) as stage:
        nodes = await stage.start_two()
        await stage.publish("notify")
        first = await stage.wait_called()
        assert nodes[first].stop() == 0

        # The lease is 30 s: had it been left to lapse, this would have timed out. And the call
        # that was under way is not made again, though nobody could have told the two apart.
        assert (await stage.wait_finished()).status is EndStatus.DONE
        life = await stage.life()
        left = [e for record in life for e in record.commit.events if isinstance(e, EpisodeLeft)]
        assert [event.node for event in left] == [first]
        assert [call.node for call in stage.calls()] == [first]


async def test_a_node_whose_grace_ends_first_says_that_it_left_an_episode_to_its_lease(
    tmp_path: Path,
):
    async with opened(tmp_path, answer_s=NEVER_S, VIGIL_LEASE_S="1") as stage:
        first = await stage.start("n1", VIGIL_GRACE_S="0.2")
        await stage.publish("notify")
        await stage.wait_called()
        assert first.stop() == 3

        # Nobody knows what became of the call: the next node asks no second time.
        await stage.start("n2")
        finished = await stage.wait_finished()
        assert (finished.status, finished.error_class) == (EndStatus.FAILED, "outcome_unknown")
        assert [call.node for call in stage.calls()] == ["n1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_a_node_at_once(tmp_path: Path, number: signal.Signals):
    async with opened(tmp_path, answer_s=NEVER_S, VIGIL_LEASE_S="1") as stage:
        first = await stage.start("n1", VIGIL_GRACE_S="600")
        await stage.publish("settle")
        await stage.wait_called()
        first.signal(signal.SIGTERM)
        await wait_until(lambda: first.says("node stopping"), "it stops", most_s=WAIT_S_MAX)
        first.signal(number)
        assert first.wait() == 128 + number

        await stage.start("n2")
        await stage.wait_called(times=2)
        assert fold(await stage.life()).node == "n2"

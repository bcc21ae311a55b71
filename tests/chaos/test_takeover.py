"""How long an episode stands still when its node goes. `bench/takeover.py` measures it well.

That it goes on elsewhere is seen in every simulated world; when a lease ends on a server, by the
contracts.
"""

from __future__ import annotations

import signal
from typing import Final

import pytest

from bench.takeover import takeovers

pytestmark = pytest.mark.nightly

LEASE_S: Final = 1
LAPSE_S_MAX: Final = 0.5
"""From a lease's end to the next step elsewhere, on a machine that does nothing else."""

HANDOVER_S_MAX: Final = 1.0
BUSY_S: Final = 1.0
"""What a busy machine may add to either."""


async def test_a_killed_nodes_episode_goes_on_elsewhere_when_its_lease_ends():
    took_s = await takeovers(signal.SIGKILL, lease_s=LEASE_S, samples=2)

    assert max(took_s) < LEASE_S + LAPSE_S_MAX + BUSY_S


async def test_a_stopped_nodes_episode_goes_on_elsewhere_at_once():
    took_s = await takeovers(signal.SIGTERM, lease_s=30, samples=2)

    assert max(took_s) < HANDOVER_S_MAX + BUSY_S

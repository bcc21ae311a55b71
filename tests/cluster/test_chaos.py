"""What servers acknowledged is on each of them, whatever breaks: `make chaos-cluster`, in small."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.chaos.run import Size
from tests.cluster.disk import can_mount, small_disk
from tests.cluster.faults import ServerFault, plan_servers
from tests.cluster.run import run

SEED: Final = 4
SMALL: Final = Size(episodes=30, functions=10, nodes=2, lease_s=2, during_s=4.0)


@pytest.mark.nightly
async def test_nothing_acknowledged_is_lost_on_any_server(tmp_path: Path):
    outcome = await run(tmp_path, SMALL, seed=SEED, kinds=(ServerFault.TWO,))

    assert outcome.faults() == []
    assert outcome.happened.total() > 0
    assert outcome.of_nodes.exercised["functions_done"] == SMALL.functions
    assert outcome.compared > SMALL.episodes
    assert outcome.acknowledged > SMALL.episodes


@pytest.mark.skipif(not can_mount(), reason="this machine lets nobody make a file system to fill")
def test_a_small_disk_is_full_to_the_last_byte_until_it_is_emptied(tmp_path: Path):
    with small_disk(tmp_path / "disk", megabytes=1) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "more").write_bytes(b"x")
        disk.empty()
        (disk.path / "more").write_bytes(b"x")


def test_a_seed_plans_the_same_faults_again():
    assert plan_servers(1, during_s=60.0) == plan_servers(1, during_s=60.0)
    assert plan_servers(1, during_s=60.0) != plan_servers(2, during_s=60.0)


def test_all_kinds_of_faults_happen_before_one_happens_again():
    planned = [each.fault for each in plan_servers(1, during_s=60.0)]

    assert set(planned[: len(ServerFault)]) == set(ServerFault)

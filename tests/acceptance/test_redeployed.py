"""A deploy kills no open episode: what it cannot replay waits for the code that can."""

from __future__ import annotations

from typing import Final

import pytest

from tests.acceptance.cluster import Cluster
from tests.acceptance.redeployed import CALLED, LEDGER

pytestmark = pytest.mark.nightly

APP: Final = "tests.acceptance.redeployed:app"
EPISODES: Final = 100
BLOCKED: Final = "select 1 from episodes where status = 'blocked'"
PARKED: Final = "select 1 from inbox where kind = 'nondeterministic_replay'"


async def test_a_hundred_sleeping_episodes_outlive_a_deploy_that_renames_their_tool(
    cluster: Cluster,
):
    ledger = cluster.directory / "ledger"
    first = await cluster.start("n1", app=APP, **{LEDGER: str(ledger)})
    orders = {f"e{number}": {"order": f"o{number}"} for number in range(EPISODES)}
    await cluster.publish("order.placed", orders)
    await cluster.wait_rows(f"{BLOCKED} and turns_used = 1", EPISODES, most_s=60)
    assert first.stop() == 0

    renamed = {LEDGER: str(ledger), CALLED: "bill"}
    for name in ("n2", "n3"):
        await cluster.start(name, app=APP, **renamed)
    await cluster.wait_rows(PARKED, EPISODES, most_s=60)
    assert len(ledger.read_text().split()) == EPISODES
    how = await cluster.query("select distinct summary from inbox")
    assert "call 1 was tool_call charge.call" in how[0][0]

    # The new version runs on, as while nodes are replaced one after the other.
    await cluster.start("n4", app=APP, **{LEDGER: str(ledger)})
    await cluster.wait_rows("select 1 from episodes where status = 'done'", EPISODES, most_s=90)

    calls = ledger.read_text().split()
    assert len(calls) == len(set(calls)) == 2 * EPISODES
    steps = await cluster.query(
        "select count(*) from episode_steps group by episode_id having count(*) <> 3"
    )
    assert steps == []
    parks = await cluster.query("select max(attempts) from episodes")
    assert parks[0][0] <= 3, "each code was tried once"
    assert await cluster.query("select 1 from dead_letters") == []

"""The state is projected from a stream of its own."""

from __future__ import annotations

from projections.postgres import store
from projections.postgres.progress import heads
from projections.postgres.reader import list_checkpoints
from streams.clock import SystemClock
from streams.memory import memory_ports
from tests.projections import lives
from tests.projections.lives import AT, append, projecting, rows_of, wait_projected

KEY = "disk:h1"
LOST = "disk:h2"


async def places(pool, stack):
    return {row["projection"]: row["journal_seq"] for row in await list_checkpoints(pool, stack)}


async def test_journal_and_state_have_a_checkpoint_each(ports, pool):
    await append(ports.log, ports.stack.episode(lives.episode_id(1)), (lives.opened(1),))
    await append(ports.log, ports.stack.finding(KEY), (lives.raised(KEY),), (lives.cleared(KEY),))
    assert await heads(ports) == {"journal": 1, "state": 2}
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    reached = await places(pool, ports.stack)
    assert (reached["journal"], reached["state"]) == (1, 2)
    assert len(await rows_of(pool, "finding_events", stack=ports.stack)) == 2


async def test_a_state_that_is_lost_and_begins_anew_is_added_to_the_rows_that_stay(
    ports, pool, stack
):
    await append(ports.log, stack.finding(LOST), (lives.raised(LOST),))
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    await store.resume(pool, stack=stack.name, positions={"state": 0}, now=AT)
    anew = memory_ports(stack=stack, clock=SystemClock())
    await append(anew.log, stack.finding(KEY), (lives.raised(KEY),))
    async with projecting(anew, pool):
        await wait_projected(anew, pool)
    found = await rows_of(pool, "findings", stack=stack)
    assert {row["finding_key"] for row in found} == {KEY, LOST}

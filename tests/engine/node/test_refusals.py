"""Why events did not fire is stored in the background, and harms nothing if it cannot be."""

from __future__ import annotations

import asyncio

from engine.node.refusals import FLUSH_S, RefusalWriter
from engine.runtime.dropping import DroppingBuffer
from streams.errors import Unavailable
from streams.memory import memory_ports
from streams.memory.refusals import MemoryRefusals
from tests.contracts.test_refusals import refusal
from tests.engine.stage import CLOCK
from tests.simulation.time import SimClock, simulate


class Away(MemoryRefusals):
    """A port that refuses as long as it is away."""

    is_away = True

    async def store(self, refusals):
        if self.is_away:
            raise Unavailable("refusals", detail="away")
        await super().store(refusals)


async def stored(port):
    return [each.refusal.event_id for each in await port.after(0)]


def test_what_is_noted_is_stored_together_soon_after():
    async def life():
        clock = SimClock()
        port = memory_ports(clock=clock).refusals
        buffer = DroppingBuffer(line_max=200)
        writing = asyncio.create_task(RefusalWriter(buffer, port, clock).run())
        buffer.put("a", refusal(1))
        await asyncio.sleep(FLUSH_S - 0.01)
        before = await stored(port)
        buffer.put("a", refusal(2))
        await asyncio.sleep(0.02)
        writing.cancel()
        return before, await stored(port)

    assert simulate(life()) == ([], ["x1", "x2"])


async def test_what_cannot_be_stored_is_dropped_and_later_ones_are_stored(ports):
    port, buffer = Away(CLOCK, stack=ports.stack), DroppingBuffer(line_max=200)
    writer = RefusalWriter(buffer, port, CLOCK)
    buffer.put("a", refusal(1))
    await writer.flush()
    port.is_away = False
    buffer.put("a", refusal(2))
    await writer.flush()

    assert await stored(port) == ["x2"]

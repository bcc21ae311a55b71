"""What somebody else has written to the log of an output."""

from __future__ import annotations

from itertools import count

from engine.outputs.store import OutputStore
from streams.memory import MemoryPorts
from streams.model.events import OutputEvent
from tests.engine.stage import CLOCK

_PENS = count(1)


async def left(ports: MemoryPorts, key: str, *events: OutputEvent) -> None:
    """Add `events` to the log of the output `key`, as a node that died right after."""
    output_store = OutputStore(ports, CLOCK, key, writer_id=f"who died {next(_PENS)}")
    await output_store.read()
    await output_store.append(*events)

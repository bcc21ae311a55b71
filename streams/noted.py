"""What is noted of the streams of a stack, by a process that is connected to it."""

from __future__ import annotations

from streams.keys import STREAMS
from streams.model.losses import Notes, read_notes
from streams.ports.all import Ports


async def noted(ports: Ports) -> Notes:
    """Return the notes that the registry and the gates have; raise `msgspec.DecodeError`."""
    entries = [await bucket.get(STREAMS) for bucket in (ports.registry, ports.gates)]
    return read_notes(*(entry.value if entry is not None else None for entry in entries))

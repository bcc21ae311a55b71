"""What a reactor would have noted, where none runs."""

from __future__ import annotations

from typing import Final

from streams.keys import published_key
from streams.layout import FOLLOWED
from streams.ports.all import Ports

FAR: Final = 10**9


async def note_followed(ports: Ports, *, up_to: int | None = FAR) -> None:
    """Note that all was published that follows from commits; None: from those that are there."""
    for stream in FOLLOWED:
        for partition in ports.stack.partitions_of(stream):
            head = await ports.log.head(stream, partition=partition)
            key = published_key(ports.stack.part(stream, partition))
            await ports.gates.put(key, str(head if up_to is None else up_to).encode())

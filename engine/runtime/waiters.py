"""Finds the episodes that wait for something outside, by its name, and brings them word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.resolving import WaitEntry, Word, command_for, entry_in
from streams.keys import waits_for
from streams.ports import Ports
from streams.tracing import traceparent


async def find_waiters(ports: Ports, ref: str) -> Sequence[WaitEntry]:
    """Return the episodes that wait for `ref`, or did until a moment ago.

    Raises:
        BadName: the reference is not valid Unicode text.
        Unavailable: the registry is away.
    """
    entries = await ports.registry.entries(under=waits_for(ref))
    found = (entry_in(each.value) for each in entries.values() if each.value is not None)
    return [each for each in found if each is not None and each.ref == ref]


async def bring(ports: Ports, said: Word, waiters: Iterable[WaitEntry]) -> None:
    """Have each of `waiters` told what was said. Bringing the same word again changes nothing.

    Raises:
        Unavailable: some may not be told. Bring it again.
    """
    for each in waiters:
        command = command_for(said, each)
        id_ = f"resolve.{each.episode_id}.{said.id}"
        await ports.inbox.send(command, id=id_, trace=traceparent())

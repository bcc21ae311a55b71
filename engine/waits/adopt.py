"""Takes over the waits and signals of a stack from before references were aggregates.

A waiting episode had an entry in the registry, and a signal that had reached one had a key in the
gates. Entries are written down on the journals of their references once, when a node starts. Keys
of the gates have lapsed an hour after the last node of an earlier version has stopped, and so have
the timers that they are about. Once no stack has any of these this file can go.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from engine.waits.wait import block_in
from streams.errors import UnreadableEvent
from streams.json import UNDECODABLE
from streams.keys import WAITS, brought_key
from streams.model.events import SignalWaited
from streams.ports.all import Ports

log: Final = structlog.get_logger("vigil.waits")


class WaitEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The registry's entry of an episode that waits for a signal."""

    actor_id: str
    episode_id: str
    ref: str


async def adopt_waits(ports: Ports, wait: Callable[[SignalWaited], Awaitable[None]]) -> None:
    """Have `wait` take every wait that the registry has an entry of; then remove the entry."""
    entries = await ports.registry.entries(under=WAITS)
    for key, value in ((key, each.value) for key, each in entries.items()):
        try:
            waited = None if value is None else await _waited(ports, key, value)
            if waited is not None:
                await wait(waited)
                log.info("wait adopted", ref=waited.ref, episode_id=waited.episode_id)
        except UnreadableEvent:  # A newer version has written it, and its nodes adopt it.
            continue
        await ports.registry.delete(key)


async def was_brought(ports: Ports, signal_id: str) -> bool:
    """Return whether a node of an earlier version has sent the signal to an episode."""
    entry = await ports.gates.get(brought_key(signal_id))
    return entry is not None and entry.value is not None


async def _waited(ports: Ports, key: str, value: bytes) -> SignalWaited | None:
    """Return the wait of an entry; None: it is over."""
    try:
        entry = msgspec.json.decode(value, type=WaitEntry)
    except UNDECODABLE:
        return None
    block = block_in(await ports.log.last(ports.stack.episode(entry.episode_id)))
    step_no = key.rpartition(".")[2]
    if block is None or (block.ref, str(block.step_no)) != (entry.ref, step_no):
        return None
    return SignalWaited(
        ref=entry.ref,
        actor_id=entry.actor_id,
        episode_id=entry.episode_id,
        step_no=block.step_no,
        since=block.at,
    )

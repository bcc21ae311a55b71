"""Finds the episodes that wait for something outside, by its name, and brings them word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from engine.blocking import block_in
from engine.resolving import (
    KEPT_S,
    Kept,
    WaitEntry,
    Word,
    command_for,
    entry_in,
    is_newer,
    kept_for,
    may_be_missed,
)
from streams.errors import RevisionConflict, Unavailable, UnreadableEvent
from streams.keys import brought_key, wait_key, waits_for, word_key
from streams.ports import Ports
from streams.tracing import traceparent

LOOKS_IN_FLIGHT_MAX: Final = 16
"""Journals that are looked at, at a time, for whether their episodes still wait."""


async def find_waiters(ports: Ports, ref: str) -> Sequence[WaitEntry]:
    """Return the episodes that wait for `ref`, and remove what still says so of others.

    Raises:
        BadName: the reference is not valid Unicode text.
        Unavailable: the registry or the log is away.
    """
    entries = await ports.registry.entries(under=waits_for(ref))
    said = {key: entry_in(each.value) for key, each in entries.items() if each.value is not None}
    found = {key: each for key, each in said.items() if each is not None and each.ref == ref}
    room = asyncio.Semaphore(LOOKS_IN_FLIGHT_MAX)

    async def check(key: str, entry: WaitEntry) -> bool:
        async with room:
            return await _is_waiting(ports, key, entry)

    waiting = await asyncio.gather(*(check(key, each) for key, each in found.items()))
    return [each for each, waits in zip(found.values(), waiting, strict=True) if waits]


async def _is_waiting(ports: Ports, key: str, entry: WaitEntry) -> bool:
    """Return whether an episode waits as its entry at `key` says, and remove the entry if not.

    A node that stood still may have made it when the wait was over. It is made after the episode
    has begun to wait, so what the journal's leader does not say by now it never will again.
    """
    try:
        block = block_in(await ports.log.last(ports.stack.episode(entry.episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return True
    if block is not None and key == wait_key(block.ref, entry.episode_id, block.step_no):
        return True
    await ports.registry.delete(key)
    return False


async def keep(ports: Ports, said: Word, *, at: datetime) -> None:
    """Have those hear of `said`, given at `at`, who wait for it already and cannot be found yet.

    Raises:
        Unavailable: it may not be kept. Keep it again.
    """
    key, kept = word_key(said.ref), msgspec.json.encode(Kept(word=said, at=at))
    before = await ports.gates.get(key)
    if before is not None and before.value is not None and is_newer(before.value, than=at):
        return
    try:
        revision = before.revision if before is not None else 0
        await ports.gates.put(key, kept, after=revision, ttl_s=KEPT_S)
    except RevisionConflict as error:
        raise Unavailable(key, detail="others keep word for the same at this time") from error


async def missed(ports: Ports, ref: str, *, since: datetime) -> Word | None:
    """Return the word for somebody who waits for `ref`, given before they could be found.

    What was given before they waited, too, is for them if nobody has had it.

    Raises:
        Unavailable: the gates are away.
    """
    entry = await ports.gates.get(word_key(ref))
    if entry is None or entry.value is None:
        return None
    kept = kept_for(entry.value, ref)
    if kept is None:
        return None
    is_theirs = may_be_missed(kept, since=since) or not await is_brought(ports, kept.word)
    return kept.word if is_theirs else None


async def is_brought(ports: Ports, said: Word) -> bool:
    """Return whether somebody was found before whom `said` is for.

    Raises:
        Unavailable: the gates are away.
    """
    entry = await ports.gates.get(brought_key(said.id))
    return entry is not None and entry.value is not None


async def bring(ports: Ports, said: Word, waiters: Iterable[WaitEntry]) -> None:
    """Have each of `waiters` told what was said. Bringing the same word again changes nothing.

    It is noted first, for those who have been told do not wait any more.

    Raises:
        Unavailable: some may not be told. Bring it again.
    """
    await ports.gates.put(brought_key(said.id), b"", ttl_s=KEPT_S)
    for each in waiters:
        command = command_for(said, each)
        id_ = f"resolve.{each.episode_id}.{said.id}"
        await ports.inbox.send(command, id=id_, trace=traceparent())

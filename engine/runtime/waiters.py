"""Finds the episodes that wait for something outside, by its name, and brings them word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from engine.resolving import (
    KEPT_S,
    Kept,
    WaitEntry,
    Word,
    command_for,
    entry_in,
    is_newer,
    kept_for,
)
from streams.errors import RevisionConflict, Unavailable
from streams.keys import waits_for, word_key
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
    """Return the word that was given, since somebody waits for `ref`, before they could be found.

    Raises:
        Unavailable: the gates are away.
    """
    entry = await ports.gates.get(word_key(ref))
    if entry is None or entry.value is None:
        return None
    return kept_for(entry.value, ref, since=since)


async def bring(ports: Ports, said: Word, waiters: Iterable[WaitEntry]) -> None:
    """Have each of `waiters` told what was said. Bringing the same word again changes nothing.

    Raises:
        Unavailable: some may not be told. Bring it again.
    """
    for each in waiters:
        command = command_for(said, each)
        id_ = f"resolve.{each.episode_id}.{said.id}"
        await ports.inbox.send(command, id=id_, trace=traceparent())

"""Makes a stack of a backup, on servers that have none of that name, or lose what they have."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streams.errors import Incompatible
from streams.jetstream.backup import snapshot
from streams.jetstream.backup.create import Tell, parts_of
from streams.jetstream.backup.files import StoredBackup, StreamBackup, damaged, lines, verify
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import api
from streams.jetstream.messages.publish import Publisher, Write
from streams.jetstream.setup import setup
from streams.jetstream.setup.losses import note_restored
from streams.model.losses import REGISTRY
from streams.subjects import Stack

OF_SERVER: Final = "Nats-"
"""Begins the names of headers that have told the server something when a message came."""


@dataclass(frozen=True)
class RestoredStack:
    """What was restored."""

    stack: Stack
    streams: Sequence[StreamBackup]
    positions: dict[str, int]
    """Up to which sequence each stream goes, by its name within the stack."""


async def restore_backup(
    url: str,
    *,
    backup: StoredBackup,
    replaces: bool,
    tell: Tell,
    settings: LinkSettings | None = None,
) -> RestoredStack:
    """Make the streams of a stack of a backup that is verified first.

    The registry comes last: before it is there nothing of the stack starts. Interrupted, it is
    begun again, with `replaces`.

    Args:
        replaces: whether streams of the stack that are there are deleted first.

    Raises:
        Incompatible: the backup is damaged, the stack is there, or the server refuses something.
        Unavailable: a server does not answer.
    """
    verify(backup)  # guard: damaged-backup-restores-nothing
    manifest = backup.manifest
    stack = Stack(manifest.stack, manifest.partitions)
    async with Link(url, settings or LinkSettings()) as link:
        await setup.check_server(link)
        await _clear(link, stack, replaces=replaces)
        ordered = sorted(manifest.streams, key=lambda each: each.part == REGISTRY)
        positions: dict[str, int] = {}
        for each in ordered:
            await _restore(link, backup, each, copies=link.settings.replicas)
            info = await setup.info_of(link, each.stream)
            positions[each.part] = int(info["state"]["last_seq"]) if info is not None else 0
            tell(each.part, each.snapshot.size_bytes, each.snapshot.size_bytes)
        earlier = {each.part: each.created for each in ordered}
        await note_restored(link, stack, earlier)  # guard: restored-streams-noted
        return RestoredStack(stack, manifest.streams, positions)


async def _clear(link: Link, stack: Stack, *, replaces: bool) -> None:
    names = parts_of(stack)
    there = [part for part, name in names.items() if await setup.config_of(link, name) is not None]
    if there and not replaces:  # guard: restore-replaces-nothing
        raise Incompatible(
            f"stack {stack.name} is there: {', '.join(there[:3])}…",
            remedy="Restore to servers without it, or stop its nodes and give --replace.",
        )
    # Without its registry nothing of a stack starts, and what runs ends.
    for part in sorted(there, key=lambda each: each != REGISTRY):
        name = names[part]
        await api.ask(link, f"STREAM.DELETE.{name}", about=f"stream {name}")


async def _restore(link: Link, backup: StoredBackup, stream: StreamBackup, *, copies: int) -> None:
    config = {**stream.config, "num_replicas": copies}
    path = backup.folder / stream.snapshot.name
    made = await snapshot.load(link, stream.stream, path, config=config, state=stream.state)
    last = int(made.get("state", {}).get("last_seq", 0))
    publisher = Publisher(link)
    for added in stream.commits:
        for seq, subject, said, data in lines(backup.folder / added.name):
            if seq <= last:  # The snapshot has what came while it was made.
                continue
            # Else whatever remembers a sequence would mean another commit.
            if seq != last + 1:  # guard: restored-at-its-sequence
                raise damaged(backup.folder / added.name, f"it lacks what is before {seq:,}")
            kept = {name: value for name, value in said.items() if not name.startswith(OF_SERVER)}
            kept[headers.EXPECTED_LAST] = str(last)
            write = Write(subject, base64.b64decode(data), kept, key=subject)
            last = (await publisher.store(write)).seq

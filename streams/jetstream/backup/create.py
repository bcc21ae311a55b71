"""Makes a backup of a stack while it runs, and of what came since another one."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import IO, Final, Protocol

import msgspec

from streams.errors import Incompatible
from streams.jetstream.backup import snapshot
from streams.jetstream.backup.files import (
    BackupFile,
    BackupManifest,
    BackupWriter,
    StoredBackup,
    StreamBackup,
    backups_in,
    by_part,
    read_backup,
    verify,
)
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import stored
from streams.jetstream.ports.configs import bucket_stream, kinds_of, names_of
from streams.jetstream.setup import setup
from streams.json import JsonObject
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.model.losses import CLAIMS, GATES, OBJECTS, REGISTRY
from streams.subjects import Stack

KEYS: Final = "keys"
"""The bucket of the keys of subjects, within the stack."""

APPENDED: Final = frozenset({each.value for each in AGGREGATE_STREAMS})
"""Streams to which messages are only added: what came since is all that an increment has."""

_BEFORE: Final = (GATES, CLAIMS, REGISTRY, Stream.WORK, Stream.EVENTS)
_AFTER: Final = (Stream.JOURNAL, Stream.STATE, Stream.DEAD, Stream.REFUSALS, KEYS, OBJECTS)
"""In which order streams are read. A finding is written after the episode has decided on it, so the
state comes after the journal; an object is put before the commit that names it."""


class Tell(Protocol):
    """Is told how far a backup, or a restore, has come."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """`done` bytes of about `total` of a stream, `stage`, are through."""


def parts_of(stack: Stack) -> Mapping[str, str]:
    """Return the names of all streams of a stack by those within it, in the order of reading."""
    names = {
        **names_of(stack),
        Stream.REFUSALS.value: stack.stream(Stream.REFUSALS),
        KEYS: bucket_stream(stack.keys_bucket()),
    }
    order = [str(each) for each in (*_BEFORE, *_AFTER)]
    return dict(sorted(names.items(), key=lambda each: order.index(each[0].partition("-")[0])))


async def create_backup(
    url: str,
    *,
    stack: Stack,
    folder: Path,
    is_incremental: bool,
    tell: Tell,
    settings: LinkSettings | None = None,
) -> StoredBackup:
    """Write a backup of `stack` below `folder`, and read it back.

    Raises:
        Incompatible: it should be incremental, and there is none before it; or it is damaged.
        Unavailable: a server stopped sending.
        OSError: the files cannot be written.
    """
    base = _base(folder, stack) if is_incremental else None
    async with Link(url, settings or LinkSettings()) as link:
        stack, configs = await setup.prepare(link, stack, creates=False)
        at = link.clock.now()
        writer = BackupWriter(folder, at.strftime("%Y-%m-%dT%H-%M-%S.%fZ"))
        try:
            saving = _Saving(link, writer, base, tell)
            streams = [
                await saving.save(part, stream)
                for part, stream in parts_of(stack).items()
                if part != KEYS or kinds_of(stack, configs)
            ]
            manifest = BackupManifest(
                stack=stack.name,
                partitions=stack.partitions,
                at=at,
                server_version=link.session.server_version,
                streams=tuple(streams),
                base=base.folder.name if base is not None else "",
            )
            return writer.finish(manifest)
        finally:
            writer.clear()


def _base(folder: Path, stack: Stack) -> StoredBackup:
    if not backups_in(folder):
        raise Incompatible(
            f"{folder} has no backup to add to",
            remedy="Make a full one first: leave --incremental.",
        )
    base = read_backup(folder)
    if base.manifest.stack != stack.name:
        raise Incompatible(
            f"{base.folder} is a backup of stack {base.manifest.stack}",
            remedy="Use a folder for each stack.",
        )
    verify(base)  # guard: increment-on-whole-backup
    return base


class _Saving:
    def __init__(
        self, link: Link, writer: BackupWriter, base: StoredBackup | None, tell: Tell
    ) -> None:
        self._link, self._writer, self._base, self._tell = link, writer, base, tell

    async def save(self, part: str, stream: str) -> StreamBackup:
        """Save one stream; what the backup before has of it is shared."""
        before = by_part(self._base.manifest).get(part) if self._base is not None else None
        info = await setup.info_of(self._link, stream)
        if info is None:
            raise Incompatible(f"there is no stream {stream}", remedy="Start a node once.")
        # guard: increment-of-the-same-stream
        if before is not None and before.created == info["created"]:
            if _is_same(before, info):
                return self._shared(before)
            has_all_since = int(info["state"]["first_seq"]) <= before.last_seq + 1
            # guard: increment-without-a-gap
            if part.partition("-")[0] in APPENDED and has_all_since:
                return await self._increment(before, info)
        return await self._whole(part, stream, info)

    async def _whole(self, part: str, stream: str, info: JsonObject) -> StreamBackup:
        name = f"{part}.snapshot"
        total = int(info["state"]["bytes"])
        with self._writer.writing(name) as file:
            tell = partial(self._told, part, total)
            about = await snapshot.save(self._link, stream, file, tell)
        state = about["state"]
        return StreamBackup(
            part=part,
            stream=stream,
            created=info["created"],
            last_seq=state["last_seq"],
            messages=state["messages"],
            deleted=state.get("num_deleted", 0),
            config=about["config"],
            state=state,
            snapshot=self._writer.read_back(name),
        )

    def _told(self, part: str, total: int, done: int) -> None:
        self._tell(part, done, max(done, total))

    def _shared(self, before: StreamBackup) -> StreamBackup:
        assert self._base is not None, "it has that stream"
        for each in before.files:
            self._writer.share(each, self._base.folder)
        return before

    async def _increment(self, before: StreamBackup, info: JsonObject) -> StreamBackup:
        self._shared(before)
        name, last = f"{before.part}.{len(before.commits) + 1}.commits", before.last_seq
        with self._writer.writing(name) as file:
            head = int(info["state"]["last_seq"])
            messages = stored.every_after(self._link, before.stream, ">", seq=before.last_seq)
            async with aclosing(messages) as found:
                async for each in found:
                    if each.seq > head:
                        break
                    _write(file, each)
                    last = each.seq
        self._tell(before.part, 1, 1)
        added: BackupFile = self._writer.read_back(name)
        return msgspec.structs.replace(
            before,
            last_seq=last,
            messages=before.messages + last - before.last_seq,
            commits=(*before.commits, added),
        )


def _is_same(before: StreamBackup, info: JsonObject) -> bool:
    """Return whether nothing came to a stream, and nobody has read on who remembers how far."""
    state = info["state"]
    now = (state["last_seq"], state["messages"], state.get("num_deleted", 0))
    # guard: read-stream-is-saved-again
    has_readers = state.get("consumer_count", 0) and before.part.partition("-")[0] not in APPENDED
    return now == (before.last_seq, before.messages, before.deleted) and not has_readers


def _write(file: IO[bytes], message: stored.Stored) -> None:
    said: Sequence[object] = (
        message.seq,
        message.subject,
        message.headers,
        base64.b64encode(message.data).decode(),
    )
    file.write(msgspec.json.encode(said) + b"\n")

"""An archive in an object store of JetStream: files in chunks, as in `ports/objects.py`.

What is known of a file is stored last, and expects that its subject has nothing: so a file is there
whole or not at all, and of two writers one is refused. It also says where each chunk is, so a part
of a file is read without the rest. Chunks of a writer that died stay, and belong to no file.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from streams.errors import DamagedObject, RevisionConflict
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import api, stored
from streams.jetstream.messages.grouping import Groups, store_checked, store_surely
from streams.jetstream.messages.publish import Write
from streams.jetstream.ports.configs import archive, chunk_subject, info_subject, object_stream
from streams.jetstream.ports.objects import CHUNK_BYTES
from streams.jetstream.setup.setup import ensure_stream
from streams.json import UNDECODABLE
from streams.ports.archive import checked_name
from streams.ports.objects import digest_of
from streams.subjects import Stack
from streams.wire.messages import MESSAGE_ID_HEADER

_UPLOAD = "Vigil-Upload"


class ArchiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is, as JSON that the clients of NATS understand."""

    name: str
    bucket: str
    nuid: str
    """Which upload has it."""
    size: int
    mtime: str
    chunks: int
    digest: str
    options: dict[str, int]
    seqs: tuple[int, ...]
    """Where the chunks are in the stream."""


_decoder: msgspec.json.Decoder[ArchiveFile] = msgspec.json.Decoder(ArchiveFile)


@asynccontextmanager
async def jetstream_archive(
    url: str, *, stack: Stack, settings: LinkSettings | None = None
) -> AsyncIterator[JetStreamArchive]:
    """Yield the archive of a stack in the object store of its servers, which is made if missing.

    Raises as `connect` does.
    """
    async with Link(url, settings or LinkSettings()) as link:
        yield JetStreamArchive(link, stack)


class JetStreamArchive:
    """See `ArchiveStore`."""

    def __init__(self, link: Link, stack: Stack) -> None:
        self._link, self._name = link, stack.archive_store()
        self._stream, self._stack = object_stream(self._name), stack
        self._groups = Groups(link)
        self._is_there = False

    @property
    def address(self) -> str:
        """See `ArchiveStore.address`."""
        return f"nats ({self._stream})"

    async def create(self, name: str, data: bytes) -> bool:
        """See `ArchiveStore.create`."""
        await self._make()
        subject = self._subject(name)
        if await stored.last(self._link, self._stream, subject) is not None:
            return False
        upload = self._link.unique()
        info = ArchiveFile(
            name=name,
            bucket=self._name,
            nuid=upload,
            size=len(data),
            mtime=self._link.clock.now().isoformat(),
            chunks=-(-len(data) // CHUNK_BYTES),
            digest=f"SHA-256={_encoded(bytes.fromhex(digest_of(data)))}",
            options={"max_chunk_size": CHUNK_BYTES},
            seqs=await self._upload(upload, data),
        )
        more = {headers.EXPECTED_SEQ: "0", _UPLOAD: upload}
        try:
            await store_checked(
                self._link,
                self._groups.to(self._stream),
                Write(subject, msgspec.json.encode(info), more, key=subject),
                find=partial(stored.last, self._link, self._stream, subject),
                mark=_UPLOAD,
                conflict=partial(RevisionConflict, name, expected=0),
            )
        except RevisionConflict:
            return False
        return True

    async def read(self, name: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """See `ArchiveStore.read`."""
        info = await self._info(name)
        if info is None:
            return None
        begin = max(0, info.size + start) if start < 0 else min(start, info.size)
        end = info.size if length is None else min(info.size, begin + length)
        chunks = range(begin // CHUNK_BYTES, -(-end // CHUNK_BYTES))
        data = bytearray()
        for number in chunks:  # One after the other: as many as memory was asked for.
            data += await self._chunk(info, number)
        offset = chunks.start * CHUNK_BYTES
        return bytes(data[begin - offset : end - offset])

    async def delete(self, name: str) -> None:
        """See `ArchiveStore.delete`. What is known of the file goes last: it names the chunks."""
        info = await self._info(name)
        if info is None:
            return
        for subject in (chunk_subject(self._name, info.nuid), self._subject(name)):
            what = {"filter": subject}
            await api.ask(self._link, f"STREAM.PURGE.{self._stream}", what, about=subject)

    async def names(self, under: str) -> Sequence[str]:
        """See `ArchiveStore.names`. Of 100,000 files at most: the server lists no more."""
        await self._make()
        beginning = f"{checked_name(under)}/"
        every = info_subject(self._name, ">")
        subjects = await stored.counts(self._link, self._stream, every)
        prefix = every.removesuffix(">")
        names = [urlsafe_b64decode(each.removeprefix(prefix)).decode() for each in subjects]
        return sorted(each for each in names if each.startswith(beginning))

    async def _make(self) -> None:
        if not self._is_there:
            await ensure_stream(self._link, archive(self._stack, self._link.settings))
            self._is_there = True

    async def _upload(self, upload: str, data: bytes) -> tuple[int, ...]:
        """Store the chunks, and return where they are."""
        subject = chunk_subject(self._name, upload)
        seqs = []
        for number, begin in enumerate(range(0, len(data), CHUNK_BYTES)):
            id_ = f"{upload}.{number}"
            chunk = data[begin : begin + CHUNK_BYTES]
            write = Write(subject, chunk, {MESSAGE_ID_HEADER: id_}, key=id_)
            ack = await store_surely(self._link, self._groups.to(self._stream), write)
            seqs.append(ack.seq)
        return tuple(seqs)

    async def _chunk(self, info: ArchiveFile, number: int) -> bytes:
        found = await stored.at(self._link, self._stream, info.seqs[number])
        if found is None or found.subject != chunk_subject(self._name, info.nuid):
            raise DamagedObject(info.name)
        return found.data

    async def _info(self, name: str) -> ArchiveFile | None:
        await self._make()
        found = await stored.last(self._link, self._stream, self._subject(name))
        if found is None:
            return None
        try:
            return _decoder.decode(found.data)
        except UNDECODABLE as error:
            raise DamagedObject(name) from error

    def _subject(self, name: str) -> str:
        return info_subject(self._name, _encoded(checked_name(name).encode()))


def _encoded(octets: bytes) -> str:
    return urlsafe_b64encode(octets).decode()

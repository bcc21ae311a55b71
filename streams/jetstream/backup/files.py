"""The files of a backup: written so that nothing half looks whole, and verified by reading."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import IO, Any, Final

import msgspec

from streams.errors import Incompatible
from streams.json import UNDECODABLE, JsonObject

VERSION: Final = 1
"""Of the format. It goes up when an older Vigil could not restore a backup."""

MANIFEST: Final = "manifest.json"

PARTIAL: Final = ".partial-"
"""Begins the name of a folder that is being made. One that a crash left is of no use."""

CHUNK_BYTES: Final = 1024 * 1024
"""How much of a file is read at a time."""

MANIFEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest manifest that is read."""


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup."""

    name: str
    sha256: str
    size_bytes: int


class StreamBackup(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a stack."""

    part: str
    """Its name within the stack."""
    stream: str
    created: str
    """When it was made, as the server writes it."""
    last_seq: int
    """Up to which sequence it is there, at least."""
    messages: int
    deleted: int
    config: JsonObject
    state: JsonObject
    snapshot: BackupFile
    commits: tuple[BackupFile, ...] = ()
    """What came since the snapshot, the oldest first."""

    @property
    def files(self) -> Sequence[BackupFile]:
        """All its files."""
        return (self.snapshot, *self.commits)


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup is."""

    version: int = VERSION
    stack: str
    partitions: int
    at: datetime
    """When it was begun."""
    server_version: str
    streams: tuple[StreamBackup, ...]
    base: str = ""
    """The name of the backup whose files it shares; empty: it is full."""

    @property
    def size_bytes(self) -> int:
        """How large all files are."""
        return sum(each.size_bytes for stream in self.streams for each in stream.files)


@dataclass(frozen=True)
class StoredBackup:
    """A backup that is whole."""

    folder: Path
    manifest: BackupManifest


def backups_in(folder: Path) -> list[Path]:
    """Return the backups in a folder, the oldest first."""
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if is_backup(each))


def is_backup(folder: Path) -> bool:
    """Return whether a folder is a backup that was finished."""
    return not folder.name.startswith(PARTIAL) and (folder / MANIFEST).is_file()


def read_backup(folder: Path) -> StoredBackup:
    """Return the backup in a folder, or the newest of those that the folder has.

    Raises:
        Incompatible: there is none, or a newer version has made it, or its manifest is damaged.
    """
    if not is_backup(folder):
        found = backups_in(folder)
        if not found:
            raise Incompatible(
                f"{folder} has no finished backup",
                remedy="`vigil backup create` makes one; what begins with .partial is none.",
            )
        folder = found[-1]
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
        if len(data) > MANIFEST_BYTES_MAX:
            raise ValueError(f"{len(data):,} bytes")
        manifest = msgspec.json.decode(data, type=BackupManifest)
    except UNDECODABLE as error:
        raise damaged(path, str(error)) from error
    if manifest.version > VERSION:
        raise Incompatible(
            f"{path} has format {manifest.version}, and this version reads {VERSION}",
            remedy="Restore it with the version of Vigil that made it, or a newer one.",
        )
    return StoredBackup(folder, manifest)


def verify(backup: StoredBackup) -> None:
    """Read all files of a backup; raise `Incompatible` unless each is as it was written."""
    for stream in backup.manifest.streams:
        for each in stream.files:
            path = backup.folder / each.name
            if Path(each.name).name != each.name:  # guard: backup-names-no-other-folder
                raise damaged(path, "a name that leads elsewhere")
            try:
                found = digest_of(path)
            except FileNotFoundError as error:
                raise damaged(path, "it is missing") from error
            if found != (each.sha256, each.size_bytes):  # guard: backup-digest-compared
                raise damaged(path, "it is not as it was written")


def damaged(path: Path, why: str) -> Incompatible:
    """Return that a file of a backup cannot be used."""
    return Incompatible(f"{path} is damaged: {why}", remedy="Use another backup.")


def digest_of(path: Path) -> tuple[str, int]:
    """Return the SHA-256 of a file, in hex, and its size."""
    digest, size = sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


class BackupWriter:
    """Writes one backup; `finish` makes it one."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.partial = folder / f"{PARTIAL}{name}"
        self.partial.mkdir(mode=0o700)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Yield a file that only its owner may read; afterwards it is on the disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(self.partial / name, flags, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def read_back(self, name: str) -> BackupFile:
        """Return a file that was written, as it is read."""
        digest, size = digest_of(self.partial / name)
        return BackupFile(name=name, sha256=digest, size_bytes=size)

    def share(self, file: BackupFile, other: Path) -> BackupFile:
        """Have a file of another backup in this one, too."""
        os.link(other / file.name, self.partial / file.name)
        return file

    def finish(self, manifest: BackupManifest) -> StoredBackup:
        """Make what was written a backup."""
        with self.writing(MANIFEST) as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest)))
        _sync(self.partial)
        target = self._folder / self._name
        self.partial.rename(target)
        _sync(self._folder)
        return StoredBackup(target, manifest)

    def clear(self) -> None:
        """Remove what was written and is no backup."""
        rmtree(self.partial, ignore_errors=True)


def lines(path: Path) -> Iterator[Any]:
    """Yield the JSON values of a file, a line each."""
    with path.open("rb") as file:
        for line in file:
            yield msgspec.json.decode(line)


def by_part(manifest: BackupManifest) -> Mapping[str, StreamBackup]:
    """Return the streams of a backup by their names within the stack."""
    return {each.part: each for each in manifest.streams}


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)

"""An archive in a folder, on a disk of this machine or one that is mounted.

A file is written under a passing name, synced, and then linked to its own: the link fails if there
is one already. What a writer that died has left under a passing name goes when the file is created.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, TypeVar

from streams.errors import Unavailable
from streams.ports.archive import checked_name

T = TypeVar("T")

PASSING: Final = ".part"
"""Ends the name of a file that is being written."""


class FolderArchive:
    """See `ArchiveStore`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def address(self) -> str:
        """See `ArchiveStore.address`."""
        return str(self._folder)

    async def create(self, name: str, data: bytes) -> bool:
        """See `ArchiveStore.create`."""
        path = self._folder / checked_name(name)
        return await self._done(lambda: _create(self._folder, path, data))

    async def read(self, name: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """See `ArchiveStore.read`."""
        path = self._folder / checked_name(name)
        return await self._done(lambda: _read(path, start, length))

    async def delete(self, name: str) -> None:
        """See `ArchiveStore.delete`."""
        path = self._folder / checked_name(name)
        await self._done(lambda: _delete(path))

    async def names(self, under: str) -> Sequence[str]:
        """See `ArchiveStore.names`."""
        return await self._done(lambda: _names(self._folder, self._folder / checked_name(under)))

    async def _done(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, in a thread: disks that are mounted may take seconds."""
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise Unavailable(f"archive {self._folder}", detail=str(error)) from error


def _create(root: Path, path: Path, data: bytes) -> bool:
    root.mkdir(parents=True, exist_ok=True)
    _make_folders(root, path.parent)
    if path.exists():
        return False
    with NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", suffix=PASSING, delete=False
    ) as file:
        passing = Path(file.name)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(passing, path)  # guard: archive-file-created-once
    except FileExistsError:
        return False
    except FileNotFoundError:  # Who was faster has cleared it away.
        if not path.exists():
            raise
        return False
    finally:
        passing.unlink(missing_ok=True)
    _sync(path.parent)
    for left in path.parent.glob(f".{path.name}.*{PASSING}"):
        left.unlink(missing_ok=True)
    return True


def _make_folders(root: Path, folder: Path) -> None:
    """Make what is missing between them, so that it is there after a loss of power."""
    if folder != root and not folder.is_dir():
        _make_folders(root, folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read(path: Path, start: int, length: int | None) -> bytes | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size + start) if start < 0 else start)
            return file.read(-1 if length is None else length)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _delete(path: Path) -> None:
    try:
        path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    _sync(path.parent)


def _names(root: Path, under: Path) -> Sequence[str]:
    found = []
    for folder, _, files in os.walk(under, onerror=_raise):
        found += [
            (Path(folder) / each).relative_to(root).as_posix()
            for each in files
            if not each.endswith(PASSING)
        ]
    return sorted(found)


def _raise(error: OSError) -> None:
    with suppress(FileNotFoundError):  # Nothing was archived yet.
        raise error

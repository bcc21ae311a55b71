"""The port to where an archive is kept: files that are written once, whole, and never changed.

They may be deleted. Whoever does so has noted that in the archive before, so nobody asks for them.

What is created under a name is there whole or not at all, whenever the writer dies, and of two that
create the same name one wins. That is the fence of an archive: who comes second learns it.

Whatever awaits it may raise `Unavailable`: the store is away, or refuses for now.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from streams.errors import BadName

NAME_CHARS_MAX: Final = 400
"""Longest name of a file."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")


class ArchiveStore(Protocol):
    """Files by name. A name has words of A-Z a-z 0-9 _ - . with / between."""

    @property
    def address(self) -> str:
        """Where it is, for people, without secrets."""

    async def create(self, name: str, data: bytes) -> bool:
        """Write a file, durably and whole; return False if there is one of that name already."""

    async def read(self, name: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """Return a file's bytes from `start` on, `length` of them or all; None: there is none.

        A negative `start` counts from the end, and begins at the first byte if there are fewer.
        """

    async def delete(self, name: str) -> None:
        """Delete a file for good; if there is none, that is as well. Repeating it is safe.

        Whoever reads the file meanwhile may find a part of it: `DamagedObject`, or too few bytes.
        """

    async def names(self, under: str) -> Sequence[str]:
        """Return the names of all files that begin with `under` and a /, in order."""


def checked_name(name: str) -> str:
    """Return `name`, or raise `BadName` if it is not one of a file."""
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise BadName(f"file of an archive: {name!r}")
    return name

"""The port to the registry: small shared settings that every node watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One key's value, or the fact that it is gone."""

    key: str
    value: bytes | None
    """None: the key was deleted."""
    revision: int


class RegistryWatch(Protocol):
    """A position in the registry's history."""

    async def receive(self, *, most: int, wait_s: float) -> Sequence[Entry]:
        """Return the next changes in order: up to `most`, none after `wait_s` of silence."""


class Registry(Protocol):
    """Keys with values and revisions. Keys are tokens joined by dots, such as `mode.n1`."""

    async def put(self, key: str, value: bytes, *, after: int | None = None) -> int:
        """Set `key` and return its new revision.

        With `after`, only if the key is still at that revision; 0: only if it does not exist.

        Raises:
            RegistryConflict: the key is at another revision.
            Unavailable: no answer from the server.
        """

    async def get(self, key: str) -> Entry | None:
        """Return the key's entry, or None if it does not exist.

        Raises:
            Unavailable: no answer from the server.
        """

    async def delete(self, key: str) -> None:
        """Remove `key`. Removing one that does not exist does nothing.

        Raises:
            Unavailable: no answer from the server.
        """

    async def entries(self) -> Mapping[str, Entry]:
        """Return every key's entry.

        Raises:
            Unavailable: no answer from the server.
        """

    def watch(self) -> AbstractAsyncContextManager[RegistryWatch]:
        """Return a watch: first every entry that stands now, then each change as it happens."""

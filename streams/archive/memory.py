"""An archive in a dict."""

from __future__ import annotations

from collections.abc import Sequence

from streams.ports.archive import checked_name


class MemoryArchive:
    """See `ArchiveStore`."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        """For who damages them, as disks do."""

    @property
    def address(self) -> str:
        """See `ArchiveStore.address`."""
        return "memory"

    async def create(self, name: str, data: bytes) -> bool:
        """See `ArchiveStore.create`."""
        return self.files.setdefault(checked_name(name), data) is data

    async def read(self, name: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """See `ArchiveStore.read`."""
        data = self.files.get(checked_name(name))
        if data is None:
            return None
        begin = max(0, len(data) + start) if start < 0 else start
        return data[begin : None if length is None else begin + length]

    async def delete(self, name: str) -> None:
        """See `ArchiveStore.delete`."""
        self.files.pop(checked_name(name), None)

    async def names(self, under: str) -> Sequence[str]:
        """See `ArchiveStore.names`."""
        return sorted(name for name in self.files if name.startswith(f"{checked_name(under)}/"))

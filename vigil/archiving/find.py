"""Finds the archive of a stack when somebody needs it, which is seldom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from vigil.settings import Config

if TYPE_CHECKING:
    from streams.archive.archive import Archive
    from streams.archive.history import FindArchive
    from streams.jetstream import LinkSettings


@asynccontextmanager
async def finding_archive(config: Config, link: LinkSettings) -> AsyncIterator[FindArchive]:
    """Yield what opens the archive that the settings name, once; it is closed at the end.

    `link`: how the stack's servers are reached.
    """
    turn = asyncio.Lock()
    found: list[Archive | None] = []
    async with AsyncExitStack() as opened:

        async def find() -> Archive | None:
            from streams.archive.archive import Archive
            from vigil.archiving.settings import archive_in, opened_store

            async with turn:
                if not found:
                    spec = archive_in()
                    store = (
                        await opened.enter_async_context(opened_store(config, spec, link))
                        if spec is not None
                        else None
                    )
                    found.append(Archive(store, config.stack) if store is not None else None)
            return found[0]

        yield find

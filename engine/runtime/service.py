"""A service: what a node does for as long as it may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from engine.runtime.permits import Permit
from engine.runtime.tasks import wait_first


@dataclass(frozen=True)
class Service:
    """Takes work, mostly from a queue, whenever its permit is given."""

    run: Callable[[], Awaitable[None]]
    """Takes work until the permit is withdrawn. What was taken goes on."""
    permit: Permit
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once whatever is published is taken, here or elsewhere."""

    async def serve(self) -> None:
        """Run whenever it may, until it never may again."""
        while await self.permit.wait_given():
            await self.run()

    async def wait_open(self) -> None:
        """Wait until it is open, or may not be."""
        await wait_first(self.is_open.wait(), self.permit.withdrawn.wait())

"""What people have ordered of the running stack: modes, pauses, resets, and moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from projections.postgres import reader
from projections.records import OrderSummary
from vigil.asking.rows import why_none_of
from vigil.client.connections import Connections
from vigil.client.page import Page, check_asked, page_of

if TYPE_CHECKING:
    from engine.orders.store import OrderDrift


class OrderOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What an order has done."""

    is_new: bool
    """False: all was so already, and nothing was noted."""
    says: str
    """What counts now, and why it has no effect yet if it has none, in words."""


@dataclass(frozen=True)
class OrderCalls:
    """Calls about orders: `client.orders`."""

    _connections: Connections

    async def list(
        self, *, node: str | None = None, actor: str | None = None, limit: int = 50
    ) -> Page[OrderSummary]:
        """Return what people ordered, the latest first: with who, when and why."""
        check_asked(limit=limit)
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            rows = await reader.list_orders(pool, stack, node=node, actor=actor, limit=limit)
            return page_of(rows, OrderSummary, why_none=await why_none_of(pool, stack, rows))

    async def rebuild(self, *, dry_run: bool = False) -> Sequence[OrderDrift]:
        """Make the modes and pauses that nodes see what people have ordered.

        Returns what was not so; with `dry_run` nothing is changed.
        """
        from engine.orders.store import rebuild_copies

        async with self._connections.log() as ports:
            return await rebuild_copies(ports, dry_run=dry_run)

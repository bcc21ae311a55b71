"""What people have ordered of the running stack: modes, pauses, resets, and moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from projections.postgres import reader
from projections.records import OrderSummary
from vigil.client.connections import Connections
from vigil.client.page import Page, PagedList, check_past

if TYPE_CHECKING:
    from engine.orders.store import OrderDrift

ORDERS: Final = PagedList(
    "orders",
    OrderSummary,
    reader.list_orders,
    {"at": datetime, "journal_seq": int, "event_no": int, "order_key": str},
)


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
        self,
        *,
        node: str | None = None,
        actor: str | None = None,
        at: datetime | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[OrderSummary]:
        """Return what people ordered, the latest first: with who, when and why.

        Args:
            at: only what was ordered by then; None: all.
            after: the `next` of a page: only what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`, or `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        return await ORDERS.page(
            self._connections,
            after=after,
            limit=limit,
            node=node,
            actor=actor,
            at=at,
            reverse=reverse,
        )

    async def count(
        self,
        *,
        node: str | None = None,
        actor: str | None = None,
        at: datetime | None = None,
    ) -> Mapping[str, int]:
        """Return change → how many of the orders that fit are of it, such as `actor_paused`.

        With `at`, only those that were given by then.

        Raises:
            Mistake: `at` has no time zone or is yet to come.
        """
        check_past(at, self._connections.clock.now())
        async with self._connections.rows() as pool:
            stack = self._connections.stack
            return await reader.count_orders(pool, stack, node=node, actor=actor, at=at)

    async def rebuild(self, *, dry_run: bool = False) -> Sequence[OrderDrift]:
        """Make the modes and pauses that nodes see what people have ordered.

        Returns what was not so; with `dry_run` nothing is changed.
        """
        from engine.orders.store import rebuild_copies

        async with self._connections.log() as ports:
            return await rebuild_copies(ports, dry_run=dry_run)

"""Queues whose deliveries are decrypted when they are received."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from streams.ports.delivery import Delivery, OrderedSource, QueuePosition, Source

T = TypeVar("T")


@dataclass(frozen=True)
class SealedDelivery(Generic[T]):
    """`Delivery` with other contents."""

    delivery: Delivery[T]
    content: T

    @property
    def seq(self) -> int:
        """See `Delivery.seq`."""
        return self.delivery.seq

    @property
    def deliveries(self) -> int:
        """See `Delivery.deliveries`."""
        return self.delivery.deliveries

    @property
    def nth(self) -> int:
        """See `Delivery.nth`."""
        return self.delivery.nth

    @property
    def at(self) -> datetime:
        """See `Delivery.at`."""
        return self.delivery.at

    @property
    def trace(self) -> str:
        """See `Delivery.trace`."""
        return self.delivery.trace

    async def ack(self) -> None:
        """See `Delivery.ack`."""
        await self.delivery.ack()

    async def nak(self, *, delay_s: float = 0.0) -> None:
        """See `Delivery.nak`."""
        await self.delivery.nak(delay_s=delay_s)

    async def term(self, reason: str) -> None:
        """See `Delivery.term`."""
        await self.delivery.term(reason)


class SealedSource(Generic[T]):
    """`Source` on another one."""

    def __init__(self, source: Source[T], unseal: Callable[[T], Awaitable[T]]) -> None:
        self._inner, self._unseal = source, unseal

    @property
    def pending(self) -> int:
        """See `Source.pending`."""
        return self._inner.pending

    async def receive(self, *, room: int, wait_s: float) -> Sequence[Delivery[T]]:
        """See `Source.receive`."""
        return await self._opened(await self._inner.receive(room=room, wait_s=wait_s))

    async def pause(self) -> None:
        """See `Source.pause`."""
        await self._inner.pause()

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        """See `Source.hand_back`."""
        return await self._inner.hand_back(is_whole=is_whole)

    async def close(self) -> None:
        """See `Source.close`."""
        await self._inner.close()

    async def _opened(self, deliveries: Sequence[Delivery[T]]) -> Sequence[Delivery[T]]:
        """Return deliveries as they are handed on; should a key be out of reach, all come again."""
        return [SealedDelivery(each, await self._unseal(each.content)) for each in deliveries]


class SealedOrderedSource(SealedSource[T]):
    """`OrderedSource` on another one."""

    def __init__(self, source: OrderedSource[T], unseal: Callable[[T], Awaitable[T]]) -> None:
        super().__init__(source, unseal)
        self._ordered = source

    async def receive(
        self, *, room: int, wait_s: float, check: Callable[[], None] | None = None
    ) -> Sequence[Delivery[T]]:
        """See `OrderedSource.receive`."""
        found = await self._ordered.receive(room=room, wait_s=wait_s, check=check)
        return await self._opened(found)

    async def position(self) -> QueuePosition:
        """See `OrderedSource.position`."""
        return await self._ordered.position()

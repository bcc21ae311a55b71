"""Answers for one event, once every episode that it opens is in good hands."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from engine.runtime.slots import Slots
from streams.clock import Clock
from streams.delivery import ACK_WAIT_S, Delivery


class Receipt:
    """The answer that an event waits for. It holds a place in the gate's room until then.

    It is entered once for each part. When all have left without an answer, none will come: the
    place is free, and the event comes again.
    """

    def __init__(
        self, delivery: Delivery[Any], *, parts: int, room: Slots, clock: Clock, since_s: float
    ) -> None:
        """Wait for `parts` episodes; the place in `room` has been taken.

        Args:
            delivery: of the event.
            parts: how many episodes must be durable.
            room: the gate's.
            clock: the node's.
            since_s: when the event was asked for, on the monotonic clock. It cannot have come
                before, and who stands still between that and now must not believe it to be new.
        """
        self.delivery = delivery
        self._clock, self._since_s = clock, since_s
        self._parts_left = self._parts_at_work = parts
        self._room, self._is_answered = room, False

    @property
    def is_overdue(self) -> bool:
        """Whether the event may have been given to others by now, as nobody has answered for it."""
        return self._clock.monotonic_s() - self._since_s >= ACK_WAIT_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._parts_at_work -= 1
        if not self._parts_at_work:
            self._answered()

    async def part_done(self) -> None:
        """Take note that one more episode is durable; the last one acknowledges the event."""
        self._parts_left -= 1
        if not self._parts_left and self._answered():
            await self.delivery.ack()

    async def hand_back(self, *, delay_s: float) -> None:
        """Let the event come again after `delay_s`, whatever becomes of the other episodes."""
        if self._answered():
            await self.delivery.nak(delay_s=delay_s)

    def _answered(self) -> bool:
        """Free the place in the room; return whether this is the first answer."""
        is_first, self._is_answered = not self._is_answered, True
        if is_first:
            self._room.give_back()
        return is_first

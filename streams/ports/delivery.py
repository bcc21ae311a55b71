"""What a consumer delivers: one message, and how to acknowledge it.

An unacknowledged delivery comes again. So the order is always: do the work, make it durable, then
acknowledge; and work that is done twice must find itself done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)

ACK_WAIT_S: Final = 10
"""How long a delivery may stay unacknowledged before it comes again, in seconds.

A frozen node's deliveries wait this long for another one. Commands are acknowledged in
milliseconds, and doing one twice is harmless, so short is right. Measured: with 30 s a chaos run
ended 19 to 26 s after its last fault, waiting for nothing else."""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A message that does not parse, as it came."""

    reason: str
    detail: str
    stream: str
    seq: int
    subject: str
    headers: dict[str, str]
    data: bytes


class Delivery(Protocol[T_co]):
    """One message, delivered to this consumer and to no other until it is acknowledged."""

    @property
    def content(self) -> T_co:
        """The message, parsed."""

    @property
    def seq(self) -> int:
        """Stream sequence, from 1."""

    @property
    def deliveries(self) -> int:
        """1 for the first delivery, +1 for every repeat, whoever handed it back and why."""

    @property
    def nth(self) -> int:
        """Counts the deliveries of its queue to anyone, from 1 and without gaps.

        So a gap is a delivery that went to somebody else, or was lost on the way.
        """

    @property
    def at(self) -> datetime:
        """When the message was stored, by the server's clock."""

    @property
    def trace(self) -> str:
        """W3C `traceparent` of the sender; empty when it did not trace."""

    async def ack(self) -> None:
        """Acknowledge: the work is durable. Best effort: if it is lost, the message comes again."""

    async def nak(self, *, delay_s: float = 0.0) -> None:
        """Hand the message back, to come again to any node after `delay_s`. Best effort."""

    async def term(self, reason: str) -> None:
        """Never deliver this message again, to anyone. Best effort."""


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a queue was delivered, by all that pull it together."""

    delivered: int = 0
    """How many deliveries there were: `Delivery.nth` of the newest."""
    delivered_seq: int = 0
    """Up to which stream sequence each message was delivered to somebody."""
    acknowledged_seq: int = 0
    """Up to which stream sequence each message is acknowledged."""
    unacknowledged: int = 0
    """How many of those that were delivered are not acknowledged, and come again."""


class Source(Protocol[T_co]):
    """A shared, durable queue of deliveries, pulled by any node that has room."""

    @property
    def pending(self) -> int:
        """How many messages waited for the consumer, when the server last reported it."""

    async def receive(self, *, room: int, wait_s: float) -> Sequence[Delivery[T_co]]:
        """Return 1 to `room` deliveries as soon as there are any, or none after `wait_s`.

        What `room` leaves stays for other nodes. What it did not use up may still fill while the
        caller works, for at most `wait_s`, and is returned by the next `receive`, unless the caller
        calls `pause`. Survives restarts and reconnects; without a server it returns nothing.

        Raises:
            NoSuchStream: the stream is one of others, and was deleted. Open it again. What came
                from it needs no acknowledgement any more.
        """

    async def pause(self) -> None:
        """Ask for nothing until the next `receive`, and leave what nobody received to others.

        What has arrived, and what still does, is handed back at once. To be called between two
        receives. Best effort: what the server never hears of comes again to others later.
        """

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        """Do as `pause`, and hand back whatever was received here and is not acknowledged, too.

        All of it comes again in the order of the stream, at once and before what is new. Returns
        False if that is not sure; then it comes again, in order, once `ACK_WAIT_S` is over. So it
        does if not `is_whole`: a delivery was lost, and newer ones must not come again before it.
        """

    async def close(self) -> None:
        """Stop pulling; a waiting `receive` returns at once. What it never returned comes again."""


class OrderedSource(Source[T_co], Protocol[T_co]):
    """A `Source` of one stream, which comes in its order if one node alone pulls it."""

    async def receive(
        self, *, room: int, wait_s: float, check: Callable[[], None] | None = None
    ) -> Sequence[Delivery[T_co]]:
        """See `Source.receive`.

        `check` is called right before each request to the server, also after a pause of this
        process; what it raises is raised here, and nothing is requested.
        """

    async def position(self) -> QueuePosition:
        """Return how far the queue is, as its server knows it; that of a new one if there is none.

        Raises:
            Unavailable: there is no answer.
        """

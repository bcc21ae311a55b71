"""The order in which signals arrived, on one of the nodes that share their queue.

Whoever is about to give a signal gives those first that came before it for the same reference. A
node sees by the count of the queue's deliveries whether others were delivered any. If so, it asks
the server how far everything is acknowledged, and reads the events after that. So the order holds,
whichever node has which signal and whichever dies: nobody waits for another one, because giving a
signal twice does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import msgspec

from engine.errors import BadRequest
from engine.runtime.store import Turn, Turns
from engine.waits.signal import RESOLVED, Signal, signal_in
from streams.errors import Unavailable
from streams.ports.delivery import Delivery, OrderedSource, Unreadable
from streams.ports.domain_events import DomainEvent, DomainEvents

EARLIER_MAX: Final = 10_000
"""Signals that may not be given yet, on one node: as many as may be unacknowledged."""

SignalQueue: TypeAlias = OrderedSource[DomainEvent | Unreadable]


class KeptSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that came at some time, by the server's clock."""

    signal: Signal = msgspec.field(name="word")
    at: datetime


@dataclass
class SignalArrivals:
    """Which signals have arrived, as far as one node has to know."""

    owner: str
    """Of the queue."""
    events: DomainEvents
    _source: SignalQueue | None = None
    _newest: int = 0
    """The newest delivery to this node, by the count of the queue."""
    _may_lack_some: bool = True
    """Whether others were delivered signals that this node has not read."""
    _read_seq: int = 0
    """Up to which sequence this node has read what others were delivered."""
    _ungiven: dict[int, KeptSignal] = field(default_factory=dict)
    """By sequence: those that may not be on the journals of their references."""
    _reading: Turn = field(default_factory=Turn)
    _turns: Turns = field(default_factory=Turns)

    async def open(self) -> SignalQueue:
        """Return the queue of signals that all nodes share."""
        self._source = await self.events.open(self.owner, [RESOLVED])
        self._may_lack_some = True
        return self._source

    def note(self, delivery: Delivery[DomainEvent | Unreadable]) -> None:
        """Note that a delivery has come to this node, before anything is done with it."""
        self._may_lack_some |= delivery.nth != self._newest + 1
        self._newest = delivery.nth
        self._add(delivery.content)

    def turn(self, ref: str) -> Turn:
        """Return the lock for giving signals of a reference; take it in the order of `note`."""
        return self._turns.of(ref)

    async def before(self, seq: int, ref: str) -> dict[int, KeptSignal]:
        """Return the signals that arrived before the one at `seq`, and may not be given yet.

        By sequence, oldest first. Raises `Unavailable` if that cannot be known now.
        """
        async with self._reading:
            if self._may_lack_some:
                await self._read()
        earlier = [each for each, kept in self._ungiven.items() if kept.signal.ref == ref]
        return {each: self._ungiven[each] for each in sorted(earlier) if each < seq}

    def is_given(self, seq: int) -> None:
        """Note that a signal is on the journal of its reference, or never will be."""
        self._ungiven.pop(seq, None)

    async def _read(self) -> None:
        assert self._source is not None, "what was noted came from the queue"
        is_done, self._may_lack_some = False, False
        try:
            position = await self._source.position()
            if position.delivered_seq < self._read_seq:  # The stream was made anew.
                self._read_seq, self._ungiven = 0, {}
            floor, up_to = position.acknowledged_seq, position.delivered_seq
            self._ungiven = {seq: kept for seq, kept in self._ungiven.items() if seq > floor}
            after = max(floor, self._read_seq)
            if after < up_to:
                for each in await self.events.stored(RESOLVED, after=after, up_to=up_to):
                    self._add(each)
            self._read_seq = max(after, up_to)
            if len(self._ungiven) > EARLIER_MAX:
                raise Unavailable(RESOLVED, detail="too many earlier ones are not acknowledged")
            is_done = True
        finally:
            self._may_lack_some |= not is_done

    def _add(self, event: DomainEvent | Unreadable) -> None:
        if isinstance(event, Unreadable):
            return
        try:
            kept = KeptSignal(signal=signal_in(event), at=event.at)
        except BadRequest:  # Whoever it is delivered to makes it a dead letter.
            return
        self._ungiven[event.seq] = kept

"""The order in which signals arrived, on one of the nodes that share their queue.

Whoever is about to give a signal gives those first that came before it for the same reference. A
node sees by the count of the queue's deliveries whether others were delivered any; if so, it reads
the events in between. So the order holds, whichever node has which signal and whichever dies:
nobody waits for another one, because giving a signal twice does nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from engine.runtime.store import Turn, Turns
from engine.waits.signal import RESOLVED
from streams.errors import Unavailable
from streams.ports.delivery import Delivery, OrderedSource, Unreadable
from streams.ports.domain_events import DomainEvent, DomainEvents

FORGET_AT: Final = 256
"""Signals that may not be given, from which on a node asks which are acknowledged, and so given."""

EARLIER_MAX: Final = 10_000
"""Most of those that are not: as many as may be unacknowledged."""

SignalQueue: TypeAlias = OrderedSource[DomainEvent | Unreadable]


@dataclass
class SignalArrivals:
    """Which signals have arrived, as far as one node has to know."""

    owner: str
    """Of the queue."""
    events: DomainEvents
    _source: SignalQueue | None = None
    _has_begun: bool = False
    """Whether it is known from where on signals may not be given."""
    _newest: int = -1
    """The newest delivery to this node, by the count of the queue."""
    _newest_new: int = 0
    """The newest one that was its message's first."""
    _gap: int = 0
    """The newest one before which another node had one."""
    _closed: int = 0
    """Up to which delivery it was read what other nodes had."""
    _newest_seq: int = 0
    _read_seq: int = 0
    """Up to which sequence this node knows all signals."""
    _ungiven: dict[int, DomainEvent] = field(default_factory=dict)
    """By sequence: those that may not be on the journals of their references."""
    _of_ref: defaultdict[str, set[int]] = field(default_factory=partial(defaultdict, set))
    """Their sequences, by reference."""
    _reading: Turn = field(default_factory=Turn)
    _turns: Turns = field(default_factory=Turns)

    async def open(self) -> SignalQueue:
        """Return the queue of signals that all nodes share."""
        self._source = await self.events.open(self.owner, [RESOLVED])
        self._has_begun, self._newest = False, -1
        return self._source

    def note(self, delivery: Delivery[DomainEvent | Unreadable]) -> None:
        """Note that a delivery has come to this node, before anything is done with it."""
        if delivery.nth != self._newest + 1:
            self._gap = delivery.nth  # guard: arrival-looks-at-others
        self._newest = delivery.nth
        if delivery.deliveries == 1:
            self._note_new(delivery)
        self._newest_seq = max(self._newest_seq, delivery.seq)
        self._add(delivery.content)

    def turn(self, ref: str) -> Turn:
        """Return the lock for giving signals of a reference; take it in the order of `note`."""
        return self._turns.of(ref)

    async def before(self, seq: int, ref: str) -> list[DomainEvent]:
        """Return the signals that arrived before the one at `seq`, and may not be given yet.

        Oldest first, as they came: some may be no signals. Raises `Unavailable` if that cannot be
        known now.
        """
        async with self._reading:
            if self._lacks_some:
                await self._read()
        # guard: arrival-others-first
        return [self._ungiven[each] for each in sorted(self._of_ref.get(ref, ())) if each < seq]

    def is_given(self, seq: int) -> None:
        """Note that a signal is on the journal of its reference, or never will be."""
        event = self._ungiven.pop(seq, None)
        if event is None:
            return
        ref = _ref_of(event)
        self._of_ref[ref].discard(seq)
        if not self._of_ref[ref]:
            del self._of_ref[ref]

    @property
    def _lacks_some(self) -> bool:
        """Whether others were delivered signals that this node has not read."""
        return self._gap > self._closed  # guard: arrival-sole-node-asks-nothing

    def _note_new(self, delivery: Delivery[DomainEvent | Unreadable]) -> None:
        # guard: arrival-remade-read-anew
        if delivery.seq <= self._read_seq:  # The stream, or its queue, was made anew.
            self._has_begun, self._newest_seq, self._closed = False, 0, 0
            self._gap = delivery.nth
            self._forget(up_to=max(self._ungiven, default=0))
        self._newest_new = delivery.nth
        if not self._lacks_some:
            self._read_seq = delivery.seq

    async def _read(self) -> None:
        # New messages are delivered in their order. So all that others had before one that came
        # here is older than that, except what came here again: others may have newer ones by then.
        closes, up_to = self._newest_new, self._newest_seq  # guard: arrival-read-to-delivered
        if not self._has_begun:
            self._read_seq = await self._acknowledged_seq()  # guard: arrival-acknowledged-given
            self._has_begun = True
        if self._read_seq < up_to:
            for each in await self.events.stored(RESOLVED, after=self._read_seq, up_to=up_to):
                self._add(each)
            self._read_seq = up_to
        if len(self._ungiven) > FORGET_AT:  # guard: arrival-acknowledged-forgotten
            self._forget(up_to=await self._acknowledged_seq())
        if len(self._ungiven) > EARLIER_MAX:  # guard: arrival-kept-bounded
            raise Unavailable(RESOLVED, detail="too many earlier ones are not acknowledged")
        self._closed = max(self._closed, closes)

    async def _acknowledged_seq(self) -> int:
        assert self._source is not None, "what was noted came from the queue"
        return (await self._source.position()).acknowledged_seq

    def _forget(self, *, up_to: int) -> None:
        for seq in [each for each in self._ungiven if each <= up_to]:
            self.is_given(seq)

    def _add(self, event: DomainEvent | Unreadable) -> None:
        if isinstance(event, DomainEvent):
            self._ungiven[event.seq] = event
            self._of_ref[_ref_of(event)].add(event.seq)


def _ref_of(event: DomainEvent) -> str:
    """Return the reference of a signal; of what is no signal, any text."""
    return str(event.payload.get("ref"))

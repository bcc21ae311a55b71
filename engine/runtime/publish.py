"""Publishes public events, at least once, under stable ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.runtime.gather import gather_bounded
from streams.json import JsonObject
from streams.ports.domain_events import DomainEvents
from streams.tracing import traceparent

EVENTS_IN_FLIGHT_MAX: Final = 32
"""Public events of one episode that are published at a time."""


class PublicEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event that the engine itself publishes."""

    name: str
    id: str
    payload: JsonObject
    hops: int


@dataclass(frozen=True)
class EventPublisher:
    """Publishes for one node."""

    domain_events: DomainEvents

    async def publish(self, events: Sequence[PublicEvent]) -> None:
        """Publish `events`. The server drops those that it had within the last two minutes."""
        trace = traceparent()

        async def send(event: PublicEvent) -> None:
            await self.domain_events.publish(
                event.name, event.payload, id=event.id, hops=event.hops, trace=trace
            )

        await gather_bounded(send, events, in_flight_max=EVENTS_IN_FLIGHT_MAX)

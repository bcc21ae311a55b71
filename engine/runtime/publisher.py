"""The engine's own tool: it publishes domain events for strategies.

An event is one hop further from the outside world than what fired the episode, whatever the
strategy says, so that a chain of actors which wake each other ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.publishing import PUBLISH, Announcement
from engine.tools import CallContext, Tool, ToolFailed
from streams.errors import BadName, TooLarge, Unavailable
from streams.json import JsonObject
from streams.tracing import traceparent
from streams.world import World

IN_FLIGHT_MAX: Final = 32
"""Events of one step that are published at a time."""

EVENTS_MAX: Final = 1_000
"""Most events of one step."""


class _Request(msgspec.Struct, frozen=True):
    """What a step asks for."""

    name: str
    events: list[Announcement]


@dataclass(frozen=True)
class Publisher(Tool):
    """Publishes on the stack that the node is in."""

    world: World
    side_effect = True
    idempotent = True

    async def call(self, action: str, args: JsonObject, ctx: CallContext) -> object:
        """Publish the events; return how many there are."""
        if action != PUBLISH:
            raise ToolFailed("no_such_action", f"{action!r}; known: {PUBLISH}")
        request = _request(args)
        room, trace = asyncio.Semaphore(IN_FLIGHT_MAX), traceparent()

        async def publish(event: Announcement) -> None:
            async with room:
                await self.world.publish(
                    request.name, event.payload, id=event.id, hops=ctx.hops + 1, trace=trace
                )

        try:
            await asyncio.gather(*map(publish, request.events))
        except (BadName, TooLarge, TypeError, ValueError) as error:
            raise ToolFailed("invalid_event", str(error)) from error
        except Unavailable as error:
            raise ToolFailed("tool_unavailable", str(error)) from error
        return {"published": len(request.events)}

    def redact(self, args: JsonObject) -> object:
        """Return how many events there are of what name: the stream has them whole."""
        events = args.get("events")
        count = len(events) if isinstance(events, list) else 0
        return {"name": args.get("name"), "events": count}


def _request(args: Mapping[str, object]) -> _Request:
    try:
        request = msgspec.convert(args, _Request)
    except msgspec.ValidationError as error:
        raise ToolFailed("invalid_event", str(error)) from error
    if len(request.events) > EVENTS_MAX:
        raise ToolFailed("invalid_event", f"{len(request.events):,} events, most: {EVENTS_MAX:,}")
    return request

"""Finds out who uses a stack now: holders of claims, and nodes that wait at a queue.

An idle node has no claim, but waits for events and commands, and the server counts those that wait.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from streams.errors import Incompatible, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.keys import KeyMessage, Keys, is_gone
from streams.json import UNDECODABLE, JsonObject
from streams.keys import LAYOUT_CLAIM
from streams.layout import Stream
from streams.ports.leases import Claim
from streams.subjects import Stack

NAMED_MAX: Final = 5
"""Users that a refusal names; it counts the others."""

PAGES_MAX: Final = 1_000
"""Pages of consumers, 256 each, that one stream may have."""


async def require_unused(link: Link, stack: Stack) -> None:
    """Raise `Incompatible` if others than the holder of the layout's lease use `stack`."""
    users = [*await _holders(link, stack), *await _waiting(link, stack)]
    if users:
        more = f" and {len(users) - NAMED_MAX} more" if len(users) > NAMED_MAX else ""
        raise Incompatible(
            f"stack {stack.name} is in use: {'; '.join(users[:NAMED_MAX])}{more}",
            remedy="Stop every node and projector; what a crashed one held lapses by itself.",
        )


async def _holders(link: Link, stack: Stack) -> list[str]:
    claims = Keys(link, stack.claims_bucket())
    return [
        f"{_holder(message)} holds {claims.key_of(message)}"
        async for message in claims.every()
        if not is_gone(message) and claims.key_of(message) != LAYOUT_CLAIM
    ]


def _holder(message: KeyMessage) -> str:
    try:
        return msgspec.json.decode(message.data, type=Claim).owner_node
    except UNDECODABLE:
        return "somebody"


async def _waiting(link: Link, stack: Stack) -> list[str]:
    work = [stack.stream(Stream.WORK, each) for each in stack.partitions_of(Stream.WORK)]
    return [
        f"a node waits at {consumer['name']} of {name}"
        for name in (stack.stream(Stream.EVENTS), *work)
        async for consumer in _consumers(link, name)
        if consumer["num_waiting"]
    ]


async def _consumers(link: Link, name: str) -> AsyncGenerator[JsonObject, None]:
    seen = 0
    for _ in range(PAGES_MAX):
        page = await api.ask(link, f"CONSUMER.LIST.{name}", {"offset": seen}, about=name)
        for consumer in page["consumers"] or []:
            seen += 1
            yield consumer
        if seen >= page["total"]:
            return
    raise Unavailable(name, detail=f"more than {PAGES_MAX} pages of consumers")

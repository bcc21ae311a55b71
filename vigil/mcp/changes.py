"""Tells who listens which resources have changed, as the public events of the stack say.

The stack's events are followed only while somebody listens. A change that comes while nobody
follows is not told later: who begins to listen reads anew what it shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

import structlog
from mcp.server.subscriptions import ResourceUpdated, ServerEvent

from streams.json import JsonObject
from vigil.client.client import Client
from vigil.errors import EventsMissed, VigilError, in_words

FOLLOWED: Final = ("finding.>", "episode.>", "output.>", "definition.>")
"""The events that tell of changes."""

AGAIN_S: Final = 2.0
"""How long to wait before the events are followed again, in seconds, after an error."""

log = structlog.get_logger("vigil.mcp")


class ChangesBus:
    """The bus of the SDK, on the events of a stack."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._listeners: dict[object, Callable[[ServerEvent], None]] = {}
        self._following: asyncio.Task[None] | None = None

    async def publish(self, event: ServerEvent) -> None:
        """Tell every listener of this process."""
        for listener in list(self._listeners.values()):
            listener(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Have `listener` called with each change; return what ends that."""
        token = object()
        self._listeners[token] = listener
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="mcp changes")

        def unsubscribe() -> None:
            self._listeners.pop(token, None)
            following = None if self._listeners else self._following
            if following is not None:  # guard: unheard-follows-nothing
                following.cancel()
                self._following = None

        return unsubscribe

    async def _follow(self) -> None:
        after: int | None = None
        while True:
            try:
                async for each in self._client.events.tail(*FOLLOWED, after=after):
                    after = each.seq
                    for uri in changed(each.name, each.payload):
                        await self.publish(ResourceUpdated(uri=uri))
            except EventsMissed as missed:
                after = missed.last_seq
            except VigilError as error:
                log.warning("changes are not followed", error=in_words(error), again_s=AGAIN_S)
                after = None
            await self._client.connections.clock.sleep(AGAIN_S)


def changed(name: str, payload: JsonObject) -> Iterator[str]:
    """Yield the addresses of the resources that an event of the engine has changed."""
    episode, finding, output = (
        payload.get(key) for key in ("episode_id", "finding_key", "output_key")
    )
    match name.partition(".")[0]:
        case "finding" if isinstance(finding, str):
            yield f"vigil://findings/{_part(finding)}"
        case "episode" if isinstance(episode, str):
            yield f"vigil://episodes/{episode}"
            yield f"vigil://approvals/{episode}"
        case "output" if isinstance(output, str):
            yield f"vigil://approvals/output:{_part(output)}"
        case "definition" if isinstance(payload.get("id"), str):
            yield f"vigil://definitions/{payload['id']}@{payload.get('revision')}"
        case _:
            pass


def _part(text: str) -> str:
    return quote(text, safe=":")

"""A client that publishes domain events and sees episodes end; it knows nothing but NATS."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

import nats
from nats.aio.msg import Msg


@dataclass
class Load:
    """Publishes events one after another, with so many in flight, and times each to its end."""

    url: str
    stack: str
    ended_s: dict[str, float] = field(default_factory=dict)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, *, name: str, events: int, in_flight: int, prefix: str) -> list[float]:
        """Publish `events` events called `name` and return seconds from publish to end of each."""
        client = await nats.connect(self.url)
        try:
            ends = await client.subscribe(f"{self.stack}.event.episode.*", cb=self._ended)
            room = asyncio.Semaphore(in_flight)
            started_s: dict[str, float] = {}

            async def one(number: int) -> None:
                async with room:
                    key = f"{prefix}-{number}"
                    started_s[key] = time.perf_counter()
                    await client.jetstream().publish(
                        f"{self.stack}.event.{name}",
                        json.dumps({"key": key}).encode(),
                        headers={"Nats-Msg-Id": key},
                    )
                    await self._wait_ended(key)

            await asyncio.gather(*(one(number) for number in range(events)))
            await ends.unsubscribe()
            return [self.ended_s[key] - at_s for key, at_s in started_s.items()]
        finally:
            await client.close()

    async def _ended(self, message: Msg) -> None:
        body = json.loads(message.data)
        if "summary" in body:
            self.ended_s[body["summary"]] = time.perf_counter()
            self._arrived.set()

    async def _wait_ended(self, key: str) -> None:
        while key not in self.ended_s:
            self._arrived.clear()
            await self._arrived.wait()

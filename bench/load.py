"""A client that publishes domain events and sees episodes end; it knows nothing but NATS.

    python -m bench.load URL STACK NAME…

It keeps so many episodes in flight: whenever one ends, it publishes the next event. Or it publishes
so many a second, whatever ends; then the time of each runs from the moment when it was due. There
is one subscription, no task per episode and no acknowledgement to wait for (the end of an episode
proves that its event was stored), so that a core is enough for thousands of them a second.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import nats
import uvloop
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.program import Request, answer_requests

END_S_MAX: Final = 60.0
"""Longest wait for the last episodes to end, in seconds."""

HEARD_S_MAX: Final = 30.0
"""Longest wait for a node to listen, in seconds."""

PROBE_S: Final = 1.0
"""Between two events that ask whether a node listens yet, in seconds: one that is busy answers
late."""

IDLE: Final = "trigger"
"""The case that finds the node idle: one at a time, with a pause in between."""

IDLE_S: Final = 0.05
"""That pause, in seconds: long enough for everything to come to rest, the projector too."""

NS_PER_S: Final = 1_000_000_000


class _End(msgspec.Struct):
    """What we read of `episode.completed`: the key that we gave, and perhaps a moment."""

    summary: str


_decoder: Final = msgspec.json.Decoder(_End)


class Loop:
    """One request: it begins with so many events, and goes on until its time is over."""

    def __init__(self, client: Client, stack: str, request: Request) -> None:
        """Publish on `client`, in `stack`."""
        self._client, self._request = client, request
        self._subject = f"{stack}.event.bench.{request.case}"
        self._until_s = time.monotonic() + request.seconds
        self._begun_max = len(request.moments_s()) if request.per_s else request.count
        self._began_s: dict[str, float] = {}
        self._begun = 0
        self._over = asyncio.Event()
        self.took_s: list[float] = []

    async def run(self) -> Sequence[float]:
        """Return how long each episode took, from its event until it was seen to end.

        Raises:
            TimeoutError: some did not end for `END_S_MAX`.
        """
        if self._request.per_s:
            await self._begin_in_time()
        else:
            for _ in range(min(self._request.in_flight, self._begun_max or sys.maxsize)):
                await self.begin(time.monotonic())
        await asyncio.wait_for(self._over.wait(), self._request.seconds + END_S_MAX)
        return self.took_s

    async def _begin_in_time(self) -> None:
        for at_s in self._request.moments_s():
            await asyncio.sleep(at_s - time.monotonic())
            await self.begin(at_s)

    async def begin(self, at_s: float) -> None:
        """Publish one event, which was due at `at_s`."""
        self._begun += 1
        key = f"{self._request.tag}-{self._begun}"
        self._began_s[key] = at_s
        await self._client.publish(
            self._subject, b'{"key":"%b"}' % key.encode(), headers={"Nats-Msg-Id": key}
        )

    async def on_end(self, message: Msg) -> None:
        """Count an episode of ours, and begin another."""
        now_s = time.monotonic()
        key, _, at_ns = _decoder.decode(message.data).summary.partition(" ")
        began_s = self._began_s.pop(key, None)
        if began_s is None:
            return
        self.took_s.append((int(at_ns) / NS_PER_S if at_ns else now_s) - began_s)
        if self._are_all_begun(now_s):
            if not self._began_s:
                self._over.set()
        elif not self._request.per_s:
            if self._request.case == IDLE:
                await asyncio.sleep(IDLE_S)
            await self.begin(time.monotonic())

    def _are_all_begun(self, now_s: float) -> bool:
        if self._begun_max:
            return self._begun >= self._begun_max
        return now_s >= self._until_s


async def load(url: str, stack: str, request: Request) -> Sequence[float]:
    """Run `request` over a connection of its own."""
    client = await nats.connect(url.split(","))
    try:
        loop = Loop(client, stack, request)
        await client.subscribe(f"{stack}.event.episode.completed", cb=loop.on_end)
        await client.flush()
        return await loop.run()
    finally:
        await client.close()


async def wait_heard(url: str, stack: str, names: Sequence[str]) -> None:
    """Return once a node turns each of `names` into episodes: until then, nobody hears us.

    Raises:
        TimeoutError: nobody does after `HEARD_S_MAX`.
    """
    async with asyncio.timeout(HEARD_S_MAX):
        for name in names:
            is_heard = False
            while not is_heard:
                probe = Request(name, in_flight=1, seconds=0, tag=f"probe-{time.monotonic_ns()}")
                try:
                    is_heard = bool(await asyncio.wait_for(load(url, stack, probe), PROBE_S))
                except TimeoutError:
                    continue


def main() -> None:
    """Wait until we are heard, and answer requests."""
    url, stack, *names = sys.argv[1:]
    uvloop.run(wait_heard(url, stack, names))
    answer_requests(lambda request: uvloop.run(load(url, stack, request)))


if __name__ == "__main__":
    main()

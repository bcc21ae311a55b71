"""A client of Restate: it calls the handler over HTTP and waits for each answer.

.bench-peers/restate/bin/python -m bench.peers.restate_load URL SERVICE…

`steps` calls the first SERVICE, `steps_processes` all of them in turns: each is a process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from typing import Final

import aiohttp
import uvloop

from bench.program import Request, answer_requests

CALL_S_MAX: Final = 100.0
"""Longest that one call may take, in seconds."""


async def load(url: str, services: Sequence[str], request: Request) -> Sequence[float]:
    """Return how long each call took: from as many clients as shall be in flight, or in time."""
    until_s = time.monotonic() + request.seconds
    took_s: list[float] = []
    called = cycle(services if request.case == "steps_processes" else services[:1])

    async def call(session: aiohttp.ClientSession, began_s: float) -> None:
        async with session.post(f"{url}/{next(called)}/steps", json=1) as answer:
            answer.raise_for_status()
            await answer.read()
        took_s.append(time.monotonic() - began_s)

    async def call_again(session: aiohttp.ClientSession) -> None:
        while (began_s := time.monotonic()) < until_s:
            await call(session, began_s)

    async def call_at(session: aiohttp.ClientSession, at_s: float) -> None:
        await asyncio.sleep(at_s - time.monotonic())
        await call(session, at_s)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=CALL_S_MAX)
    ) as session:
        if request.per_s:
            await asyncio.gather(*(call_at(session, at_s) for at_s in request.moments_s()))
        else:
            await asyncio.gather(*(call_again(session) for _ in range(request.in_flight)))
    return took_s


def main() -> None:
    """Answer requests."""
    url, *services = sys.argv[1:]
    answer_requests(lambda request: uvloop.run(load(url, services, request)))


if __name__ == "__main__":
    main()

"""A client of Restate: it calls the handler over HTTP and waits for each answer.

.bench-peers/restate/bin/python -m bench.peers.restate_load URL
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import aiohttp
import uvloop

from bench.program import Request, answer_requests


async def load(url: str, request: Request) -> Sequence[float]:
    """Return how long each call took, from as many clients as shall be in flight."""
    until_s = time.monotonic() + request.seconds
    took_s: list[float] = []

    async def call_again(session: aiohttp.ClientSession) -> None:
        while (began_s := time.monotonic()) < until_s:
            async with session.post(f"{url}/bench/{request.case}", json=1) as answer:
                answer.raise_for_status()
                await answer.read()
            took_s.append(time.monotonic() - began_s)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(call_again(session) for _ in range(request.in_flight)))
    return took_s


def main() -> None:
    """Answer requests."""
    answer_requests(lambda request: uvloop.run(load(sys.argv[1], request)))


if __name__ == "__main__":
    main()

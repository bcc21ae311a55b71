"""The handlers that Restate calls: five trivial steps, each recorded by its server.

.bench-peers/restate/bin/python -m bench.peers.restate_handlers PORT SERVICE
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import restate
import uvloop
from hypercorn.asyncio import serve
from hypercorn.config import Config

STEPS: Final = 5

STREAMS_MAX: Final = 2**20
"""Invocations at once over one connection of the server: more than any case has in flight."""

REQUESTS_MAX: Final = 10**9
"""Hypercorn ends a connection after so many; by default 1,000, a second's worth."""


async def step(turn: int) -> dict[str, int]:
    """Return what came."""
    return {"turn": turn}


async def steps(ctx: restate.Context, _: int) -> None:
    """Take the steps."""
    for turn in range(1, STEPS + 1):
        await ctx.run_typed(f"step {turn}", step, turn=turn)


def main() -> None:
    """Serve SERVICE on PORT of the loopback interface."""
    logging.disable(logging.WARNING)
    port, name = sys.argv[1:]
    service = restate.Service(name)
    service.handler()(steps)
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = None
    config.h2_max_concurrent_streams = STREAMS_MAX
    config.keep_alive_max_requests = REQUESTS_MAX
    uvloop.run(serve(restate.app([service]), config))


if __name__ == "__main__":
    main()

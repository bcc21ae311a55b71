"""Workflows of DBOS with five trivial steps, in this very process: DBOS is a library.

    .bench-peers/dbos/bin/python -m bench.peers.dbos_load DSN

`steps_threads` calls them from so many threads, `steps_async` from so many tasks, and
`steps_processes` from threads of this process and of others like it. Every step is a transaction,
synced to disk as Postgres does by default.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import uvloop
from dbos import DBOS, DBOSConfig

from bench.program import Request, answer_requests

STEPS: Final = 5

POOL_SIZE: Final = 40
"""Connections to Postgres of one process: more than are ever in flight, and two processes fit into
the 100 that Postgres takes."""


@DBOS.step()
def step(turn: int) -> dict[str, int]:
    """Return what came."""
    return {"turn": turn}


@DBOS.workflow()
def workflow() -> None:
    """Take the steps."""
    for turn in range(1, STEPS + 1):
        step(turn)


@DBOS.step()
async def step_async(turn: int) -> dict[str, int]:
    """Return what came."""
    return {"turn": turn}


@DBOS.workflow()
async def workflow_async() -> None:
    """Take the steps."""
    for turn in range(1, STEPS + 1):
        await step_async(turn)


def in_threads(request: Request) -> Sequence[float]:
    """Return how long each workflow took, called from threads."""
    until_s = time.monotonic() + request.seconds

    def call_again(_: int) -> list[float]:
        took_s = []
        while (began_s := time.monotonic()) < until_s:
            workflow()
            took_s.append(time.monotonic() - began_s)
        return took_s

    def call_at(at_s: float) -> list[float]:
        time.sleep(max(0.0, at_s - time.monotonic()))
        workflow()
        return [time.monotonic() - at_s]

    with ThreadPoolExecutor(request.in_flight) as threads:
        if request.per_s:
            found = list(threads.map(call_at, request.moments_s()))
        else:
            found = list(threads.map(call_again, range(request.in_flight)))
    return [each for took_s in found for each in took_s]


async def in_tasks(request: Request) -> Sequence[float]:
    """Return how long each workflow took, awaited by tasks."""
    until_s = time.monotonic() + request.seconds
    took_s: list[float] = []

    async def call_again() -> None:
        while (began_s := time.monotonic()) < until_s:
            await workflow_async()
            took_s.append(time.monotonic() - began_s)

    async def call_at(at_s: float) -> None:
        await asyncio.sleep(at_s - time.monotonic())
        await workflow_async()
        took_s.append(time.monotonic() - at_s)

    if request.per_s:
        await asyncio.gather(*(call_at(at_s) for at_s in request.moments_s()))
    else:
        await asyncio.gather(*(call_again() for _ in range(request.in_flight)))
    return took_s


def run(request: Request) -> Sequence[float]:
    """Run `request`."""
    if request.case == "steps_async":
        return uvloop.run(in_tasks(request))
    return in_threads(request)


def main() -> None:
    """Launch DBOS on the Postgres at DSN and answer requests."""
    database = sys.argv[1].replace("postgresql://", "postgresql+psycopg://")
    config = DBOSConfig(
        name="bench",
        system_database_url=database,
        sys_db_pool_size=POOL_SIZE,
        log_level="ERROR",
        enable_otlp=False,
    )
    DBOS(config=config)
    DBOS.launch()
    try:
        answer_requests(run)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main()

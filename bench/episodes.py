"""Episodes per second and how long one takes, servers and projection included.

    python bench/episodes.py [--runs 5]

Starts a NATS server that syncs every message and a Postgres, one node (with its projector) in
a process of its own, and publishes domain events with a plain NATS client. A case's time runs
from the first publish until every episode has ended *and* its rows are in Postgres; `p50_ms`
and `p99_ms` are from an event's publish to its episode's public end. One JSON line per case, the
median of its runs by `per_s`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.app import app
from bench.load import Load
from engine.runtime.node import Node
from projections.embedded import EmbeddedPostgres
from projections.postgres.pool import connect as connect_postgres
from projections.postgres.pool import open_pool
from projections.postgres.progress import caught_up
from projections.postgres.projector import project
from streams.clock import SystemClock
from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.subjects import Stack

SYNC: Final = "always"
STACK: Final = Stack("bench")
CASES: Final = (  # name, episodes per run at 1 in flight, and at 64
    ("converge_only", 300, 3_000),
    ("steps_strict", 200, 1_500),
    ("steps_pipelined", 200, 1_500),
)
READY_S_MAX: Final = 30.0
CASE_S_MAX: Final = 120.0


async def serve(url: str, dsn: str) -> None:
    """Be the node."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    clock = SystemClock()
    async with connect(url, stack=STACK) as ports, open_pool(dsn) as pool:
        node = Node(app, ports, name="bench")
        projecting = project(ports, pool, node="bench", clock=clock, stop=asyncio.Event())
        async with asyncio.TaskGroup() as group:
            group.create_task(projecting)
            group.create_task(node.run())


@contextmanager
def node_process(url: str, dsn: str) -> Iterator[None]:
    """Run the node beside us."""
    process = subprocess.Popen([sys.executable, __file__, "--serve", url, dsn])
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def measure(url: str, dsn: str, *, runs: int) -> None:
    """Run every case and print its line."""
    pool = await connect_postgres(dsn)
    async with pool, connect(url, stack=STACK) as ports:
        await _warm_up(url)
        for name, *episodes in CASES:
            for in_flight, count in zip((1, 64), episodes, strict=True):
                rows = []
                for run in range(runs):
                    started_s = time.perf_counter()
                    prefix = f"{name}-{in_flight}-{run}"
                    took_s = await asyncio.wait_for(
                        Load(url, STACK.name).run(
                            name=f"bench.{name}", events=count, in_flight=in_flight, prefix=prefix
                        ),
                        CASE_S_MAX,
                    )
                    await caught_up(pool, STACK, await ports.log.head(), timeout_s=CASE_S_MAX)
                    rows.append((count / (time.perf_counter() - started_s), took_s))
                print(json.dumps(_line(name, in_flight, rows)), flush=True)


async def _warm_up(url: str) -> None:
    for name, *_ in CASES:
        first = Load(url, STACK.name)
        async with asyncio.timeout(READY_S_MAX):
            while not first.ended_s:  # Until the node's gates are open, nobody hears us.
                probe = f"warm-{name}-{time.monotonic_ns()}"
                work = first.run(name=f"bench.{name}", events=1, in_flight=1, prefix=probe)
                try:
                    await asyncio.wait_for(work, 1.0)
                except TimeoutError:
                    continue


def _line(name: str, in_flight: int, rows: list[tuple[float, list[float]]]) -> dict[str, object]:
    rows = sorted(rows)
    per_s, took_s = rows[len(rows) // 2]
    ranked = sorted(took_s)
    return {
        "case": name,
        "per_s": round(per_s, 1),
        "per_s_min": round(rows[0][0], 1),
        "per_s_max": round(rows[-1][0], 1),
        "p50_ms": round(statistics.median(ranked) * 1_000, 2),
        "p99_ms": round(ranked[int(len(ranked) * 0.99)] * 1_000, 2),
        "in_flight": in_flight,
        "runs": len(rows),
        "sync": SYNC,
    }


def main() -> None:
    """Read the arguments; be the node or the measurer."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--serve", nargs=2, metavar=("URL", "DSN"))
    chosen = arguments.parse_args()
    if chosen.serve:
        uvloop.run(serve(*chosen.serve))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedNats(Path(directory) / "nats", sync=SYNC) as nats,
        EmbeddedPostgres(Path(directory) / "postgres") as postgres,
        node_process(nats.url, postgres.dsn),
    ):
        asyncio.run(measure(nats.url, postgres.dsn, runs=chosen.runs))


if __name__ == "__main__":
    main()

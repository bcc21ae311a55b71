"""Writes per second to one stream: each alone, and grouped in atomic batches where that pays.

    python bench/appends.py [--runs 5] [--sync always] [--writes append]
    python bench/appends.py --url nats://… --replicas 3

Starts a NATS server that syncs every message, unless `--url` names others. So many writers run
at once, each with an aggregate, an event or a claim after the other; every case runs in turns
with and without grouping, so that whatever else the machine does meets both. One JSON line per
case, the median of its runs by `per_s`; `cpu_us` is this process's own time per write.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from streams.embedded import EmbeddedNats
from streams.jetstream import GroupSettings, LinkSettings, connect
from streams.model.events import StepAnnounced
from streams.ports.all import Ports
from streams.ports.log import START, Commit
from streams.subjects import Stack

IN_FLIGHT: Final = (1, 16, 64, 256)
WARM_S: Final = 0.3
"""Before each run: the timings that grouping decides by belong to a connection."""

RUN_S: Final = 1.0
GROUPINGS: Final = {"single": GroupSettings(most=1), "grouped": GroupSettings()}

Write: TypeAlias = Callable[[], Awaitable[object]]
_numbers = count(1)


class Run(NamedTuple):
    """What one run came to."""

    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


def appends(ports: Ports) -> Write:
    """Return what appends the next commit to an aggregate of its own."""
    subject, version = ports.stack.episode(f"e{next(_numbers)}"), START

    async def write() -> None:
        nonlocal version
        number = next(_numbers)
        event = StepAnnounced(
            step_no=number, fingerprint="f" * 64, tool_name="disk.read", idempotency_key="k" * 64
        )
        commit = Commit(id=f"c{number}", at=datetime.now(UTC), events=(event,))
        version = await ports.log.append(subject, commit, after=version)

    return write


def publishes(ports: Ports) -> Write:
    """Return what publishes the next domain event."""
    payload = {"host": "h" * 100, "disk_used": 0.5}
    return lambda: ports.domain_events.publish("bench.event", payload, id=f"ev{next(_numbers)}")


def claims(ports: Ports) -> Write:
    """Return what acquires a lease and gives it up: two writes, counted as one."""

    async def write() -> None:
        lease = await ports.leases.acquire(f"episode.bench.{next(_numbers)}", holder="bench")
        assert lease is not None
        await ports.leases.complete(lease)

    return write


WRITES: Final = {"append": appends, "publish": publishes, "claim": claims}


async def run(ports: Ports, kind: str, *, in_flight: int, seconds: float) -> Run:
    """Write for `seconds` with `in_flight` writers."""
    took_s: list[float] = []
    began_s, cpu_s = time.perf_counter(), time.process_time()

    async def writer(write: Write) -> None:
        while (at_s := time.perf_counter()) < began_s + seconds:
            await write()
            took_s.append(time.perf_counter() - at_s)

    await asyncio.gather(*(writer(WRITES[kind](ports)) for _ in range(in_flight)))
    ran_s, worked_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    ranked = sorted(took_s)
    return Run(
        per_s=len(ranked) / ran_s,
        p50_ms=statistics.median(ranked) * 1_000,
        p99_ms=ranked[int(len(ranked) * 0.99)] * 1_000,
        cpu_us=worked_s / len(ranked) * 1_000_000,
    )


async def measure(
    url: str, *, kind: str, replicas: int, runs: int, told: dict[str, object]
) -> None:
    """Run every case and print its line, with `told` in it."""
    stack = Stack(f"bench{time.time_ns()}")
    for in_flight in IN_FLIGHT:
        found: dict[str, list[Run]] = {name: [] for name in GROUPINGS}
        for name, group in [*GROUPINGS.items()] * runs:
            settings = LinkSettings(replicas=replicas, group=group)
            async with connect(url, stack=stack, settings=settings) as ports:
                await run(ports, kind, in_flight=in_flight, seconds=WARM_S)
                found[name].append(await run(ports, kind, in_flight=in_flight, seconds=RUN_S))
        for name, results in found.items():
            line = {
                "system": "vigil",
                "case": f"{kind}_{name}",
                "in_flight": in_flight,
                **_summary(results),
            }
            print(json.dumps({**line, **told}), flush=True)


def _summary(results: list[Run]) -> dict[str, object]:
    ranked = sorted(results)
    median = ranked[len(ranked) // 2]
    return {
        "per_s": round(median.per_s),
        "per_s_min": round(ranked[0].per_s),
        "per_s_max": round(ranked[-1].per_s),
        "p50_ms": round(median.p50_ms, 2),
        "p99_ms": round(median.p99_ms, 2),
        "cpu_us": round(median.cpu_us),
        "runs": len(ranked),
    }


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--sync", default="always")
    arguments.add_argument("--writes", choices=[*WRITES], default="append")
    arguments.add_argument("--url")
    arguments.add_argument("--replicas", type=int, default=1)
    chosen = arguments.parse_args()
    with ExitStack() as running:
        url = chosen.url or _own_server(running, sync=chosen.sync)
        told = {"sync": chosen.sync, "replicas": chosen.replicas}
        uvloop.run(
            measure(url, kind=chosen.writes, replicas=chosen.replicas, runs=chosen.runs, told=told)
        )


def _own_server(running: ExitStack, *, sync: str) -> str:
    directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
    return running.enter_context(EmbeddedNats(directory / "nats", sync=json.dumps(sync))).url


if __name__ == "__main__":
    main()

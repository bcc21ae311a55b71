"""How fast tables are made anew from a journal on a server, and what each stage takes.

    python bench/rebuild.py [--episodes 250000] [--quick]

Episodes of four events each are written to a journal on a real NATS server. Nobody projects them.
The first rebuild therefore puts every row; a verification then holds all of them against the
journal; and the last rebuild finds that each summary was changed, and replaces those rows. One JSON
line for each. `events_per_s` is of the whole run, `read_events_per_s` until the tables beside were
full. `processor_us` is the processor time of an event while they were filled: ours, Postgres's and
the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.filling import fill
from projections.embedded import EmbeddedPostgres
from projections.postgres.migrator import migrate
from projections.postgres.pool import Pool, connect
from projections.postgres.rebuild.pace import RebuildProgress
from projections.postgres.rebuild.rebuild import RebuildOptions, rebuild, verify
from streams import jetstream
from streams.clock import SystemClock
from streams.embedded import EmbeddedNats
from streams.ports.all import Ports
from streams.subjects import Stack

EPISODES: Final = 250_000
"""A million events."""

QUICK: Final = 2_000
STACK: Final = Stack("rebuild")
CLOCK: Final = SystemClock()


class Stages:
    """When each stage of a run began, and what the processes had used by then."""

    def __init__(self, *processes: psutil.Process) -> None:
        self._processes = processes
        self._began_s = CLOCK.monotonic_s()
        self._used_s = self._now_used_s()
        self.line: dict[str, float] = {}

    def __call__(self, progress: RebuildProgress) -> None:
        """Note the first moment of a stage."""
        name = f"{progress.stage}_at_s"
        if name not in self.line:
            self.line[name] = round(CLOCK.monotonic_s() - self._began_s, 2)
            if progress.stage == "comparing":
                took_s = CLOCK.monotonic_s() - self._began_s
                used_s = self._now_used_s() - self._used_s
                self.line["read_events_per_s"] = round(progress.events / took_s)
                self.line["processor_us"] = round(used_s / max(1, progress.events) * 1e6, 1)

    def _now_used_s(self) -> float:
        used_s = time.process_time()
        for parent in self._processes:
            for process in (parent, *parent.children()):
                times = process.cpu_times()
                used_s += times.user + times.system + times.children_user + times.children_system
        return used_s


async def measure(episodes: int) -> None:
    """Fill a journal, and print a line for each case."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with EmbeddedNats(place / "nats") as nats, EmbeddedPostgres(place / "postgres") as postgres:
            servers = psutil.Process(nats.pid), psutil.Process(postgres.pid)
            async with jetstream.connect(nats.url, stack=STACK) as ports:
                await fill(nats.url, STACK, episodes=episodes)
                async with await connect(postgres.dsn) as pool:
                    await migrate(pool)
                    await _cases(ports, pool, servers, episodes)


async def _cases(
    ports: Ports, pool: Pool, servers: tuple[psutil.Process, ...], episodes: int
) -> None:
    history, options = ports.log, RebuildOptions()

    async def rebuilt(stages: Stages) -> None:
        report = await rebuild(history, pool, STACK, clock=CLOCK, options=options, tell=stages)
        stages.line["rows_changed"] = sum(
            each.missing + each.needless + each.wrong for each in report.changes
        )

    async def verified(stages: Stages) -> None:
        report = await verify(history, pool, STACK, clock=CLOCK, options=options, tell=stages)
        assert report.difference is None, report.difference

    async def spoiled(stages: Stages) -> None:
        await rebuilt(stages)

    cases: dict[str, Callable[[Stages], Awaitable[None]]] = {
        "rebuild_of_nothing": rebuilt,
        "verify": verified,
        "rebuild_of_wrong_rows": spoiled,
    }
    for name, work in cases.items():
        if work is spoiled:
            await pool.execute("UPDATE episodes SET summary = 'wrong'", timeout=600)
        stages = Stages(*servers)
        began_s = CLOCK.monotonic_s()
        await work(stages)
        took_s = CLOCK.monotonic_s() - began_s
        events = episodes * 4
        line = {
            "case": name,
            "events": events,
            "seconds": round(took_s, 1),
            "events_per_s": round(events / took_s),
            **stages.line,
        }
        print(json.dumps(line), flush=True)


def main() -> None:
    """Read the arguments and measure."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--episodes", type=int, default=EPISODES)
    arguments.add_argument("--quick", action="store_true")
    chosen = arguments.parse_args()
    asyncio.run(measure(QUICK if chosen.quick else chosen.episodes))


if __name__ == "__main__":
    main()

"""What it costs to archive and purge a journal while others write to it, and what it gives back.

    python bench/archive.py [--episodes 100000] [--quick]

One server that syncs every message, filled with episodes that ended long ago. A publisher appends
first commits of other episodes at a fixed rate, and its latency counts from when each was due: what
waits behind a purge shows in full. Beside it, `vigil archive run` works in a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Final

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.filling import fill
from bench.program import ROOT
from engine.orders.store import give_order
from streams.clock import SystemClock
from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.keys import published_key
from streams.layout import FOLLOWED
from streams.model.events import RetentionDeclared, StepAnnounced
from streams.ports.all import Ports
from streams.ports.log import START, Commit
from streams.subjects import Stack

EPISODES: Final = 100_000
EPISODES_QUICK: Final = 2_000
RATE: Final = 200
"""Appends a second beside it."""

BASELINE_S: Final = 10.0
SETTLE_S: Final = 2.0
MB: Final = 1_000_000
STACK: Final = Stack("bench")

SETTINGS: Final = """\
[archive]
store = "archive"
waits_for_rows = false
"""


@dataclass
class Publisher:
    """Appends at a fixed rate, and notes how late each was acknowledged."""

    ports: Ports
    late_s: list[float] = field(default_factory=list)
    errors: int = 0
    _numbers: count[int] = field(default_factory=count)

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Publish meanwhile; what was measured before is forgotten."""
        self.late_s.clear()
        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(self._publish(group))
            yield
            publishing.cancel()

    async def _publish(self, group: asyncio.TaskGroup) -> None:
        due_s = time.monotonic()
        while True:
            due_s += 1 / RATE
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            group.create_task(self._append(due_s))

    async def _append(self, due_s: float) -> None:
        number = next(self._numbers)
        event = StepAnnounced(
            step_no=number, fingerprint="f" * 64, tool_name="disk.read", idempotency_key="k" * 64
        )
        commit = Commit(id=f"beside-{number}", at=datetime.now(UTC), events=(event,))
        await self.ports.log.append(STACK.episode(f"beside-{number}"), commit, after=START)
        self.late_s.append(time.monotonic() - due_s)

    def figures(self, name: str) -> Mapping[str, float]:
        """Return percentiles, in milliseconds."""
        late = sorted(self.late_s)
        at = {"p50": len(late) // 2, "p99": len(late) * 99 // 100, "max": len(late) - 1}
        return {f"{name}_{each}_ms": round(late[place] * 1000, 1) for each, place in at.items()}


async def measure(place: Path, episodes: int) -> Mapping[str, object]:
    """Return what it took and gave back."""
    store = place / "nats"
    with EmbeddedNats(store, sync="always") as server:
        async with connect(server.url, stack=STACK) as ports:
            await fill(server.url, STACK, episodes=episodes)
            for each in FOLLOWED:
                await ports.gates.put(published_key(each.value), str(2**60).encode())
            kept = RetentionDeclared(kept_s={"journal": 0}, by="bench")
            await give_order(ports, kept, clock=SystemClock())
            publisher = Publisher(ports)
            async with publisher.beside():
                await asyncio.sleep(BASELINE_S)
            before = {**publisher.figures("before"), **_taken(server, store, "before")}
            began_s = time.monotonic()
            async with publisher.beside():
                report = await _archive(place, server.url)
                took_s = time.monotonic() - began_s
            await asyncio.sleep(SETTLE_S)
            after = {**publisher.figures("during"), **_taken(server, store, "after")}
        server.restart()
        again = _taken(server, store, "restarted")
    (part,) = report["parts"]
    return {
        "name": "archive",
        "episodes": episodes,
        "took_s": round(took_s, 1),
        **before,
        **after,
        **again,
        "messages": part["messages"],
        "segments": part["segments"],
        "raw_mb": round(part["raw_bytes"] / MB, 1),
        "archive_mb": round(part["stored_bytes"] / MB, 1),
        "purged": part["purged"]["messages"],
        "slices": part["purged"]["slices"],
        "slowest_slice_ms": round(part["purged"]["slowest_s"] * 1000),
    }


async def _archive(place: Path, url: str) -> Mapping[str, list[Mapping[str, object]]]:
    """Run the command, and return what it reports."""
    (place / "vigil.toml").write_text(SETTINGS)
    environ = {
        **os.environ,
        "VIGIL_NATS_URL": url,
        "VIGIL_STACK": STACK.name,
        "PYTHONPATH": str(ROOT),
    }
    command = (sys.executable, "-m", "vigil", "archive", "run", "--json")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=place, env=environ, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said
    report: Mapping[str, list[Mapping[str, object]]] = json.loads(said)
    return report


def _taken(server: EmbeddedNats, store: Path, name: str) -> Mapping[str, float]:
    octets = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    memory = psutil.Process(server.pid).memory_info().rss
    return {f"disk_{name}_mb": round(octets / MB, 1), f"memory_{name}_mb": round(memory / MB)}


def main() -> None:
    """Print one line of JSON."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--episodes", type=int, default=EPISODES)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    chosen = arguments.parse_args()
    episodes = EPISODES_QUICK if chosen.quick else chosen.episodes
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(asyncio.run(measure(Path(place), episodes))))


if __name__ == "__main__":
    main()

"""How long an episode stands still when its node goes: killed, or told to stop.

    python bench/takeover.py [--lease 2] [--samples 20]

Two `vigil node` processes and a NATS server that syncs every message. An episode counts in
steps of 20 ms, each durable before the next. Its node gets SIGKILL or SIGTERM, and a follower
of the journal waits for the next step that another node records. One JSON line per case. An old
episode goes on through all samples, under a claim of its own; a young one is killed in its first
half second, while the lease of its node covers it. A killed node's lease runs out between two
thirds of its length and all of it after the signal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from engine.runtime.leases import BEATS_PER_TTL
from streams.child import die_with
from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.model.events import EpisodeFinished, EpisodeStarted, StepRecorded
from streams.ports.log import Follower, Recorded
from streams.subjects import Stack

ROOT: Final = Path(__file__).parents[1]
STACK: Final = Stack("takeover")
CASES: Final = {
    "takeover_after_kill": (signal.SIGKILL, False),
    "takeover_of_young_after_kill": (signal.SIGKILL, True),
    "takeover_after_term": (signal.SIGTERM, False),
}
"""The signal of each case, and whether each sample has an episode of its own."""

APP: Final = "bench.takeover_app:app"
STEPS: Final = 1_000_000
"""More than all samples wait for."""

SETTLE_STEPS: Final = 10
"""Steps that the episode takes in peace before its node gets the signal."""

YOUNG_STEPS: Final = 60
"""Steps of an episode that is killed young. The next one begins when it has ended."""

YOUNG_S: Final = 0.3
"""Most that a young episode waits for the signal after it has settled: with a lease of 2 s, one
gets a claim of its own 0.67 s after its start at the earliest."""

SILENCE_S_MAX: Final = 60.0
"""Longest wait for any step."""

NODE_STOPS_S_MAX: Final = 40.0


class Nodes:
    """Two node processes; one that was ended is started again under its own name."""

    def __init__(self, url: str, *, lease_s: int) -> None:
        """Run nodes on the server at `url`."""
        self._environ = {
            **os.environ,
            "VIGIL_NATS_URL": url,
            "VIGIL_STACK": STACK.name,
            "VIGIL_LEASE_S": str(lease_s),
            "VIGIL_LOG_LEVEL": "error",
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start both."""
        for name in ("n1", "n2"):
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        """End both."""
        for name in self._running:
            self.signal(name, signal.SIGKILL)
            self.wait_ended(name)

    def start(self, name: str) -> None:
        """Start a node, and wait until it greets: then it is connected."""
        command = [sys.executable, "-m", "vigil", "node", "--app", APP, "--no-project"]
        process = self._running[name] = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**self._environ, "VIGIL_NODE": name},
            stdout=subprocess.PIPE,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
        )
        assert process.stdout is not None
        process.stdout.readline()

    def signal(self, name: str, number: int) -> None:
        """Send a signal."""
        self._running[name].send_signal(number)

    def wait_ended(self, name: str) -> None:
        """Wait until a node that got a signal has ended."""
        process = self._running[name]
        process.wait(NODE_STOPS_S_MAX)
        assert process.stdout is not None
        process.stdout.close()


class Journal:
    """What the nodes record, as it comes."""

    def __init__(self, follower: Follower) -> None:
        """Read from `follower`."""
        self._follower = follower
        self.node = ""
        """Whoever has the episode."""
        self.ended = 0
        """Episodes that have ended."""

    async def wait_steps(self, steps: int, *, not_by: str = "") -> None:
        """Wait until so many steps were recorded, not counting those of one node.

        Raises:
            TimeoutError: there was nothing for `SILENCE_S_MAX`.
        """
        while steps > 0:
            steps -= await self._receive(not_by)

    async def wait_ended(self, episodes: int) -> None:
        """Wait until so many episodes have ended in all; raises like `wait_steps`."""
        while self.ended < episodes:
            await self._receive("")

    async def _receive(self, not_by: str) -> int:
        records = await self._follower.receive(most=500, wait_s=SILENCE_S_MAX)
        if not records:
            raise TimeoutError(f"nothing was recorded for {SILENCE_S_MAX:g} s")
        return sum(self._steps(record, not_by) for record in records)

    def _steps(self, record: Recorded, not_by: str) -> int:
        steps = 0
        for event in record.commit.events:
            if isinstance(event, EpisodeStarted):
                self.node = event.node
            self.ended += isinstance(event, EpisodeFinished)
            steps += isinstance(event, StepRecorded) and self.node != not_by
        return steps


async def takeovers(number: int, *, young: bool, lease_s: int, samples: int) -> list[float]:
    """Return the seconds from signal `number` to the next step elsewhere, `samples` times."""
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedNats(Path(directory) / "nats") as nats,
    ):
        async with connect(nats.url, stack=STACK) as ports, ports.log.follow() as follower:
            journal = Journal(follower)
            took_s: list[float] = []
            with Nodes(nats.url, lease_s=lease_s) as nodes:
                for sample in range(samples):
                    if young or not sample:
                        to = {"to": YOUNG_STEPS if young else STEPS}
                        await ports.domain_events.publish("takeover.begun", to, id=f"{sample}")
                    await journal.wait_steps(SETTLE_STEPS)
                    await asyncio.sleep(_pause_s(number, young=young, lease_s=lease_s))
                    took_s.append(await _takeover(nodes, journal, number))
                    if young:
                        await journal.wait_ended(sample + 1)
            return took_s


def _pause_s(number: int, *, young: bool, lease_s: int) -> float:
    """Return how long to wait: the younger a heartbeat is, the longer a lease has to run."""
    if young:
        return random.uniform(0, YOUNG_S)
    return random.uniform(0, lease_s / BEATS_PER_TTL) if number == signal.SIGKILL else 0.0


async def _takeover(nodes: Nodes, journal: Journal, number: int) -> float:
    went = journal.node
    begun_s = time.perf_counter()
    nodes.signal(went, number)
    await journal.wait_steps(1, not_by=went)
    took_s = time.perf_counter() - begun_s
    nodes.wait_ended(went)
    nodes.start(went)
    return took_s


def main() -> None:
    """Measure each case and print a line for it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--lease", type=int, default=2, help="in whole seconds")
    arguments.add_argument("--samples", type=int, default=20)
    chosen = arguments.parse_args()
    for name, (number, young) in CASES.items():
        took_s = asyncio.run(
            takeovers(number, young=young, lease_s=chosen.lease, samples=chosen.samples)
        )
        line = {
            "case": name,
            "lease_s": chosen.lease,
            "samples": len(took_s),
            "p50_s": round(statistics.median(took_s), 3),
            "max_s": round(max(took_s), 3),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

"""What a node costs that has nothing to do, and the NATS server with it.

    python bench/idle.py [--seconds 10] [--runs 5]

Starts a NATS server that syncs every message, a Postgres, and `vigil node` with its projector, and
watches the processes while nothing happens, several times in a row, with one actor and with ten.
`cpu_percent` is of one core, of the node; `server_cpu_percent` is of the NATS server;
`messages_per_s` are those that it got and sent, the reading of its own counters left out. One JSON
line per case, the medians of its runs.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.node import node
from projections.embedded import EmbeddedPostgres
from streams.embedded import EmbeddedNats

ROOT: Final = Path(__file__).parents[1]

SECONDS: Final = 10.0
"""How long the processes are watched at a time: twice the longest wait of a node, 5 s."""

SETTLE_S: Final = 5.0
"""What starting costs is over by then."""

HTTP_S_MAX: Final = 5.0

APPS: Final = {1: "bench.idle_app:one", 10: "bench.idle_app:ten"}


@dataclass(frozen=True)
class Reading:
    """What had been used by a moment."""

    at_s: float
    node_cpu_s: float
    server_cpu_s: float
    messages: int

    @classmethod
    def now(cls, node_pid: int, server_pid: int, http_port: int) -> Self:
        """Read the processes' and the server's counters."""
        url = f"http://127.0.0.1:{http_port}/varz"
        with urllib.request.urlopen(url, timeout=HTTP_S_MAX) as answer:
            counted = json.load(answer)
        return cls(
            at_s=time.monotonic(),
            node_cpu_s=_cpu_s(node_pid),
            server_cpu_s=_cpu_s(server_pid),
            messages=counted["in_msgs"] + counted["out_msgs"],
        )

    def since(self, before: Self) -> dict[str, float]:
        """Return what was used from one moment to this one, for each second of it."""
        took_s = self.at_s - before.at_s
        return {
            "cpu_percent": 100 * (self.node_cpu_s - before.node_cpu_s) / took_s,
            "server_cpu_percent": 100 * (self.server_cpu_s - before.server_cpu_s) / took_s,
            "messages_per_s": (self.messages - before.messages) / took_s,
        }


def measure(actors: int, *, seconds: float, runs: int) -> dict[str, object]:
    """Return the line of the case with so many actors."""
    port = _free_port()
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedNats(
            Path(directory) / "nats", sync="always", extra_config=f'http: "127.0.0.1:{port}"'
        ) as nats,
        EmbeddedPostgres(Path(directory) / "postgres") as postgres,
        node(nats.url, postgres.dsn, app=APPS[actors], stack="bench") as node_pid,
    ):
        time.sleep(SETTLE_S)
        readings = [Reading.now(node_pid, nats.pid, port)]
        for _ in range(runs):
            time.sleep(seconds)
            readings.append(Reading.now(node_pid, nats.pid, port))
        return _line(actors, readings)


def _line(actors: int, readings: Sequence[Reading]) -> dict[str, object]:
    used = [after.since(before) for before, after in pairwise(readings)]
    return {
        "system": "vigil",
        "case": "idle",
        "actors": actors,
        **{name: round(statistics.median(each[name] for each in used), 2) for name in used[0]},
        "runs": len(used),
    }


def _cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Read the arguments, and print a line for each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=SECONDS)
    arguments.add_argument("--runs", type=int, default=5)
    chosen = arguments.parse_args()
    for actors in APPS:
        line = measure(actors, seconds=chosen.seconds, runs=chosen.runs)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

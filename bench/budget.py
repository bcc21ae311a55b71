"""What an episode costs: messages, bytes, and processor time of each part, over a fixed number.

    python bench/budget.py [--quick] [--runs 5] [--episodes 500]

Processor time is read from the counters of the processes, children included, before and after, so
it needs no quiet machine; what shares caches and cores with us makes it more all the same. Each
case runs on two stacks that take turns: `together` has one node, as operators run it; on `apart`,
one process triggers and runs episodes, another is the reactor, and a third the projector, so that
each is measured by itself. Messages are those that the NATS server got and sent, the client's two
for each episode included; stored are those that it put on a stream or into a bucket.

A stage is the difference between two cases (`bench/report.py`): episodes with no, one and five
steps, with and without findings, and events that fire nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import nats

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import CLIENT, US_PER_S, Line
from bench.node import node
from bench.processes import Used
from bench.program import Program, Request
from bench.vigil import APP, NAME, STACK, SYNC
from projections.embedded import EmbeddedPostgres
from projections.postgres.pool import open_pool
from projections.postgres.progress import caught_up, heads
from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.ports.all import Ports

REFUSED: Final = "refused"
"""The case whose events fire nothing."""

REFUSED_TIMES: Final = 4
"""As many times as episodes: one takes little, and the kernel counts in hundredths of a second."""

CASES: Final = (
    *(REFUSED, "converge_only", "step_strict", "steps_strict"),
    *("steps_pipelined", "findings"),
)

IN_FLIGHT: Final = 64
EPISODES: Final = 500
WARM_UP: Final = 16
"""Episodes of each case before it is measured."""

RUNS: Final = 5

NO_ACTORS: Final = "bench.app:no_actors"

HTTP_S_MAX: Final = 5.0
DRAINED_S_MAX: Final = 30.0
POLL_S: Final = 0.02
KIB: Final = 1024


@dataclass(frozen=True)
class Stack:
    """A stack that runs."""

    name: str
    ports: Ports
    load: Program
    url: str
    dsn: str
    http_port: int
    parts: Mapping[str, Sequence[int]]

    async def cost(self, case: str, episodes: int, tag: str) -> Mapping[str, float]:
        """Return what each of `episodes` took, by what it was."""
        before, used = self._counted(), Used.now(self.parts)
        if case == REFUSED:
            await self._refuse(episodes)
        else:
            await self.load.ask(Request(case, IN_FLIGHT, 0.0, tag, count=episodes))
        newest = await heads(self.ports)
        async with open_pool(self.dsn) as pool:
            await caught_up(pool, self.ports.stack, newest, timeout_s=DRAINED_S_MAX)
        after, used = self._counted(), Used.now(self.parts).since(used)
        spent = {f"{part}_us": cpu_s * US_PER_S for part, cpu_s in used.parts_s.items()}
        counted = {name: after[name] - before[name] for name in before}
        each = {name: value / episodes for name, value in (spent | counted).items()}
        return {**each, "other_cores": used.other_cores}

    def _counted(self) -> Mapping[str, float]:
        """Return the server's counters: messages, bytes and what is stored."""
        server, stored = self._ask("varz"), self._streams("streams=true")
        return {
            "messages": server["in_msgs"] + server["out_msgs"],
            "kib": (server["in_bytes"] + server["out_bytes"]) / KIB,
            "stored": sum(each["state"]["last_seq"] for each in stored),
            "commits": sum(
                each["state"]["last_seq"]
                for each in stored
                if each["name"] in {f"{STACK.name}-journal", f"{STACK.name}-state"}
            ),
        }

    async def _refuse(self, count: int) -> None:
        """Publish events that fire nothing, and wait until the gate has answered them."""
        client = await nats.connect(self.url)
        try:
            for begun in range(0, count, IN_FLIGHT):
                for _ in range(min(IN_FLIGHT, count - begun)):
                    await client.publish(f"{STACK.name}.event.bench.{REFUSED}", b'{"key":"none"}')
                await client.flush()
                await self._wait_drained()
        finally:
            await client.close()

    async def _wait_drained(self) -> None:
        async with asyncio.timeout(DRAINED_S_MAX):
            while any(map(_waits, self._streams("consumers=true"))):  # noqa: ASYNC110 - by HTTP
                await asyncio.sleep(POLL_S)

    def _streams(self, asked: str) -> Sequence[Any]:
        accounts = self._ask(f"jsz?{asked}")["account_details"]
        return [stream for account in accounts for stream in account["stream_detail"]]

    def _ask(self, what: str) -> Any:  # noqa: ANN401 - JSON of the server
        url = f"http://127.0.0.1:{self.http_port}/{what}"
        with urllib.request.urlopen(url, timeout=HTTP_S_MAX) as answer:
            return json.load(answer)


def _waits(stream: Mapping[str, Any]) -> bool:
    """Return whether events wait on `stream`."""
    if stream["name"] != f"{STACK.name}-events":
        return False
    consumers = stream.get("consumer_detail") or ()
    return any(each["num_pending"] + each["num_ack_pending"] for each in consumers)


@contextmanager
def together(url: str, dsn: str) -> Iterator[Mapping[str, int]]:
    """Run one node that does everything; yield its process id by what it is."""
    with node(url, dsn, app=APP, stack=STACK.name, settings={NAME: "n1"}) as pid:
        yield {"node": pid}


@contextmanager
def apart(url: str, dsn: str) -> Iterator[Mapping[str, int]]:
    """Run a process for each part of a node; yield their process ids by what they are."""
    with (
        _part(url, dsn, "reactor", NO_ACTORS, "--no-project") as reactor,
        _part(url, dsn, "projector", NO_ACTORS, "--no-react") as projector,
        _part(url, dsn, "node", APP, "--no-react", "--no-project") as runner,
    ):
        yield {"node": runner, "reactor": reactor, "projector": projector}


@contextmanager
def _part(url: str, dsn: str, name: str, app: str, *options: str) -> Iterator[int]:
    said = {NAME: name}
    with node(url, dsn, app=app, stack=STACK.name, settings=said, options=options) as pid:
        yield pid


LAYOUTS: Final = {"together": together, "apart": apart}


@asynccontextmanager
async def started(place: Path, layout: str) -> AsyncIterator[Stack]:
    """Start a stack in the folder `place`, and yield it once its node hears events."""
    port = _free_port()
    async with AsyncExitStack() as running:
        server = running.enter_context(
            EmbeddedNats(place / "nats", sync=SYNC, extra_config=f'http: "127.0.0.1:{port}"')
        )
        postgres = running.enter_context(EmbeddedPostgres(place / "postgres"))
        pids = running.enter_context(LAYOUTS[layout](server.url, postgres.dsn))
        ports = await running.enter_async_context(connect(server.url, stack=STACK))
        heard = [case for case in CASES if case != REFUSED]
        command = [sys.executable, "-m", "bench.load", server.url, STACK.name, *heard]
        load = await running.enter_async_context(Program(command))
        for case in heard:  # So that what asked whether it is heard has ended, too.
            await load.ask(Request(case, WARM_UP, 0.0, f"warm-{case}", count=WARM_UP))
        parts = {
            **{name: [pid] for name, pid in pids.items()},
            "nats": [server.pid],
            "postgres": [postgres.pid],
            CLIENT: [load.pid],
        }
        yield Stack(layout, ports, load, server.url, postgres.dsn, port, parts)


async def measure(*, runs: int, episodes: int) -> Sequence[Line]:
    """Return a line for each case on each stack, all run in turns."""
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    async with AsyncExitStack() as running:
        place = Path(running.enter_context(tempfile.TemporaryDirectory()))
        stacks = [
            await running.enter_async_context(started(place / layout, layout)) for layout in LAYOUTS
        ]
        for run in range(runs):
            for case in CASES:
                for stack in stacks:
                    tag = f"{time.monotonic_ns()}-{run}"
                    count = episodes * (REFUSED_TIMES if case == REFUSED else 1)
                    cost = {"episodes": count, **await stack.cost(case, count, tag)}
                    found.setdefault((stack.name, case), []).append(cost)
                    _say(f"{run + 1}/{runs}  {stack.name:10} {case:18}", cost)
    return [
        {
            "system": layout,
            "case": case,
            "in_flight": IN_FLIGHT,
            **{name: round(_median(costs, name), 2) for name in costs[0]},
            "runs": len(costs),
        }
        for (layout, case), costs in found.items()
    ]


def _median(costs: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.median(each[name] for each in costs)


def _say(what: str, cost: Mapping[str, float]) -> None:
    said = "  ".join(f"{name} {value:,.1f}" for name, value in cost.items())
    print(f"{what} {said}", file=sys.stderr)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Read the arguments, measure, and print a line for each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    arguments.add_argument("--runs", type=int, default=RUNS)
    arguments.add_argument("--episodes", type=int, default=EPISODES, help="of one run")
    chosen = arguments.parse_args()
    runs, episodes = (1, IN_FLIGHT) if chosen.quick else (chosen.runs, chosen.episodes)
    for line in asyncio.run(measure(runs=runs, episodes=episodes)):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

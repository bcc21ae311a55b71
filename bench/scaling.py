"""Episodes per second on one, two and four nodes, and on a cluster of three NATS servers.

    python bench/scaling.py [--quick]

As `bench/episodes.py`, on four stacks that take turns: all are up, one works. The cluster keeps
every stream on all three servers, which sync every message, on the same disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import Case, Result
from bench.rounds import QUICK, Pace, take_turns
from bench.vigil import vigil

NODES: Final = {"vigil": 1, "vigil-2-nodes": 2, "vigil-4-nodes": 4}
CLUSTER: Final = "vigil-replicas-3"
REPLICAS: Final = 3
NAMES: Final = ("converge_only", "steps_strict")
IN_FLIGHT: Final = 256


def cases() -> Sequence[Case]:
    """Return what there is to measure."""
    busy = [Case(system, name, IN_FLIGHT) for name in NAMES for system in (*NODES, CLUSTER)]
    return [*busy, *(Case(CLUSTER, name, 1) for name in NAMES)]


async def measure(pace: Pace) -> Sequence[Result]:
    """Return the results of all stacks."""
    async with AsyncExitStack() as running:
        place = Path(running.enter_context(tempfile.TemporaryDirectory()))
        stacks = [
            *(vigil(place / name, cases=NAMES, name=name, nodes=n) for name, n in NODES.items()),
            vigil(place / CLUSTER, cases=NAMES, name=CLUSTER, replicas=REPLICAS),
        ]
        systems = [await running.enter_async_context(each) for each in stacks]
        return await take_turns(systems, cases(), pace)


def main() -> None:
    """Measure and print a line for each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    pace = QUICK if arguments.parse_args().quick else Pace()
    for result in asyncio.run(measure(pace)):
        print(json.dumps(result.line), flush=True)


if __name__ == "__main__":
    main()

"""Vigil beside DBOS and Restate: five durable steps, on one machine, in turns.

    python bench/comparison.py [--quick]

The peers must be installed: `make bench-peers` does it. All systems are up all the time, and
only the one whose turn it is has anything to do.
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
from bench.peers.systems import dbos, restate
from bench.rounds import QUICK, Pace, System, take_turns
from bench.vigil import vigil

PACE: Final = Pace(runs=5, seconds=4.0)

CASES: Final = (
    Case("vigil", "steps_strict", 1),
    Case("vigil", "steps_strict", 64),
    Case("vigil", "steps_strict", 256),
    Case("vigil", "steps_pipelined", 1),
    Case("vigil", "steps_pipelined", 64),
    Case("dbos", "steps_threads", 1),
    Case("dbos", "steps_threads", 4),
    Case("dbos", "steps_async", 1),
    Case("dbos", "steps_async", 4),
    Case("restate", "steps", 1),
    Case("restate", "steps", 64),
)
"""Each peer one at a time, and at what it does best with."""


async def measure(pace: Pace = PACE) -> Sequence[Result]:
    """Return the results of all three."""
    async with AsyncExitStack() as running:
        place = Path(running.enter_context(tempfile.TemporaryDirectory()))
        ours = vigil(place / "vigil", cases=("steps_strict", "steps_pipelined"))
        systems: list[System] = [
            await running.enter_async_context(ours),
            await running.enter_async_context(dbos(place / "dbos")),
            await running.enter_async_context(restate(place)),
        ]
        return await take_turns(systems, CASES, pace)


def main() -> None:
    """Measure and print a line for each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    pace = QUICK if arguments.parse_args().quick else PACE
    for result in asyncio.run(measure(pace)):
        print(json.dumps(result.line), flush=True)


if __name__ == "__main__":
    main()

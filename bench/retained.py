"""What a long history costs: the same cases on an empty stack and on ones that retain episodes.

    python bench/retained.py [--quick]

Each stack has servers and a node of its own. Two of them are filled with episodes that ended
long ago, projected like all others; then all take turns. Behind the results comes a line for
each stack that says what its processes have in memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import Case, Line
from bench.rounds import QUICK, Pace, take_turns
from bench.vigil import MIB, Vigil, vigil

RETAINED: Final = (0, 100_000, 1_000_000)
RETAINED_QUICK: Final = (0, 500, 1_000)
NAMES: Final = ("converge_only", "steps_strict")
IN_FLIGHT: Final = 64


async def measure(retained: Sequence[int], pace: Pace) -> Sequence[Line]:
    """Return the results, and what is in memory."""
    async with AsyncExitStack() as running:
        place = Path(running.enter_context(tempfile.TemporaryDirectory()))
        stacks = {}
        for count in retained:
            began_s = time.monotonic()
            name = f"vigil-retained-{count}"
            stacks[count] = await running.enter_async_context(
                vigil(place / str(count), cases=NAMES, name=name, retained=count)
            )
            print(
                f"{name}: filled, with rows, in {time.monotonic() - began_s:.0f} s", file=sys.stderr
            )
        cases = [Case(each.name, name, IN_FLIGHT) for name in NAMES for each in stacks.values()]
        results = await take_turns(list(stacks.values()), cases, pace)
        return [*(result.line for result in results), *_memory(stacks)]


def _memory(stacks: dict[int, Vigil]) -> Sequence[Line]:
    """Return a line for each stack; the empty one is what the others are compared with."""
    empty_mib = stacks[0].server_mib()
    return [
        {
            "system": stack.name,
            "case": "memory",
            "retained": count,
            "server_mib": round(stack.server_mib()),
            "server_bytes_per_episode": round(_each(stack.server_mib() - empty_mib, count)),
            "node_mib": round(stack.node_mib()),
        }
        for count, stack in stacks.items()
    ]


def _each(mib: float, count: int) -> float:
    return mib * MIB / count if count else 0.0


def main() -> None:
    """Measure and print the lines."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    quick = arguments.parse_args().quick
    pace = QUICK if quick else Pace()
    for line in asyncio.run(measure(RETAINED_QUICK if quick else RETAINED, pace)):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

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

from bench.filling import COMMITS, fill
from bench.measure import Case, Line
from bench.rounds import QUICK, Pace, take_turns
from bench.vigil import MIB, STACK, Vigil, vigil
from engine.reactor.position import NOTE_S, Position
from projections.postgres.progress import heads
from streams.layout import Stream
from streams.ports.all import Ports

RETAINED: Final = (0, 100_000, 1_000_000)
RETAINED_QUICK: Final = (0, 500, 1_000)
NAMES: Final = ("converge_only", "steps_strict")
IN_FLIGHT: Final = 64

PROJECTED_S_MAX: Final = 1_800.0
"""Longest wait for the rows of a history, in seconds: 3 million commits at 2,000 a second."""

NOTED_S_MAX: Final = 10.0
"""Longest wait until the reactor has noted how far it is, in seconds: it does every `NOTE_S`."""


async def measure(retained: Sequence[int], pace: Pace) -> Sequence[Line]:
    """Return the results, and what is in memory."""
    async with AsyncExitStack() as running:
        place = Path(running.enter_context(tempfile.TemporaryDirectory()))
        stacks = {
            count: await running.enter_async_context(
                vigil(place / str(count), cases=NAMES, name=f"vigil-retained-{count}")
            )
            for count in retained
        }
        for count, stack in stacks.items():
            await _retain(stack, count)
        cases = [Case(each.name, name, IN_FLIGHT) for name in NAMES for each in stacks.values()]
        results = await take_turns(list(stacks.values()), cases, pace)
        return [*(result.line for result in results), *_memory(stacks)]


async def _retain(stack: Vigil, count: int) -> None:
    began_s = time.monotonic()
    await _publish_none(stack.ports, count * COMMITS)
    await fill(stack.url, STACK, episodes=count)
    filled_s = time.monotonic()
    await stack.wait_rows(PROJECTED_S_MAX)
    took = f"filled in {filled_s - began_s:.0f} s, rows {time.monotonic() - filled_s:.0f} s later"
    print(f"{stack.name}: {took}", file=sys.stderr)


async def _publish_none(ports: Ports, commits: int) -> None:
    """Have the reactor pass over the next so many commits: what follows from them is long past."""
    (part, head), *_ = (await heads(ports, [Stream.JOURNAL])).items()
    async with asyncio.timeout(NOTED_S_MAX):
        while (position := await Position.read(ports, part)).seq < head:  # noqa: ASYNC110 - a key
            await asyncio.sleep(NOTE_S)
        position.seq = head + commits
        await position.write(time.monotonic())


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

"""Vigil beside DBOS and Restate: five durable steps, on one machine, in turns.

    python bench/comparison.py [--quick]

The peers must be installed: `make bench-peers` does it. All systems are up all the time, and
only the one whose turn it is has anything to do.

    climb        more and more in flight, for each system until that brings nothing more
    comparison   then each one at a time, with as many as all others have, and at its best
    half         and how long one takes that begins when it is due, at half of that rate
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import Case, Line, Result, still_gains
from bench.peers.systems import SPREAD, dbos, restate
from bench.rounds import Pace, System, take_turns
from bench.vigil import vigil

PACE: Final = Pace(runs=5, seconds=1.5, seconds_max=3.0)
CLIMB: Final = Pace(runs=2, seconds=1.0, seconds_max=3.0)
QUICK: Final = Pace(runs=1, seconds=0.3, seconds_max=0.3)

ALIKE: Final = 64
"""In flight where systems are compared with the same number."""

MANY: Final = (1, 16, ALIKE, 256, 512, 1_024, 2_048)
FEW: Final = (1, 4, 8, 16, 32)
"""What is in flight, from one try to the next. DBOS takes a thread for each, or a task with a
connection to Postgres of its own."""

IN_FLIGHT: Final = {"vigil": MANY, "restate": MANY, "dbos": FEW}

CONTENDERS: Final[Sequence[tuple[str, Sequence[str]]]] = (
    ("vigil", ("steps_strict",)),
    ("vigil", ("steps_pipelined",)),
    ("restate", ("steps", SPREAD)),
    ("dbos", ("steps_threads", "steps_async", SPREAD)),
)
"""A system, and the ways in which it can do the same: the best of them stands for it."""


async def measure(*, is_quick: bool = False) -> Sequence[Line]:
    """Return the lines of all three."""
    climb_pace, pace = (QUICK, QUICK) if is_quick else (CLIMB, PACE)
    async with AsyncExitStack() as running:
        place = Path(running.enter_context(tempfile.TemporaryDirectory()))
        ours = vigil(place / "vigil", cases=("steps_strict", "steps_pipelined"))
        systems: list[System] = [
            await running.enter_async_context(ours),
            await running.enter_async_context(dbos(place / "dbos")),
            await running.enter_async_context(restate(place)),
        ]
        climbed = await climb(systems, climb_pace)
        expected = {Case(each.system, each.case, each.in_flight): each.per_s for each in climbed}
        cases = list(dict.fromkeys(compared(climbed)))
        found = await take_turns(systems, cases, pace, is_warm=True, expected_per_s=expected)
        halves = await take_turns(systems, list(halved(found)), pace, is_warm=True)
    suites = {"climb": climbed, "comparison": found, "half": halves}
    return [{"suite": suite, **each.line} for suite, results in suites.items() for each in results]


async def climb(systems: Sequence[System], pace: Pace) -> Sequence[Result]:
    """Return what each way of each system does, with more and more in flight."""
    found: dict[tuple[str, str], list[Result]] = {
        (system, way): [] for system, ways in CONTENDERS for way in ways
    }
    await take_turns(systems, [Case(*each, in_flight=FEW[1]) for each in found], QUICK)
    for step in range(len(MANY)):
        cases = [
            Case(system, way, IN_FLIGHT[system][step])
            for (system, way), results in found.items()
            if step < len(IN_FLIGHT[system]) and still_gains(list(map(_fastest, results)))
        ]
        expected = {case: _most(found[case.system, case.name]) for case in cases}
        tried = await take_turns(systems, cases, pace, is_warm=True, expected_per_s=expected)
        for each in tried:
            found[each.system, each.case].append(each)
    return [each for results in found.values() for each in results]


def compared(climbed: Sequence[Result]) -> Iterator[Case]:
    """Yield what is compared: each contender alone, with as many as others, and at its best."""
    for system, ways in CONTENDERS:
        found = [each for each in climbed if each.system == system and each.case in ways]
        for in_flight in (1, ALIKE):
            with_so_many = [each for each in found if each.in_flight == in_flight]
            if with_so_many:
                yield _case(max(with_so_many, key=_fastest))
        yield _case(max(found, key=_fastest))


def halved(found: Sequence[Result]) -> Iterator[Case]:
    """Yield each contender with half of what it does at its best."""
    for system, ways in CONTENDERS:
        each = max((x for x in found if x.system == system and x.case in ways), key=_per_s)
        yield replace(_case(each), per_s=max(1.0, round(each.per_s / 2)))


def _case(result: Result) -> Case:
    return Case(result.system, result.case, result.in_flight)


def _per_s(result: Result) -> float:
    return result.per_s


def _fastest(result: Result) -> float:
    """Return what its fastest run did: whatever disturbs one makes it slower."""
    return result.per_s_max


def _most(results: Sequence[Result]) -> float:
    return max(map(_fastest, results), default=0.0)


def main() -> None:
    """Measure and print a line for each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    for line in asyncio.run(measure(is_quick=arguments.parse_args().quick)):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

"""Episodes per second and how long one takes, servers and projection included.

    python bench/episodes.py [--quick] [--runs 5] [--seconds 2] [--case steps_strict]…

One NATS server that syncs every message, one Postgres and one node (with its projector), each a
process of its own; domain events come from a plain NATS client. A case's time runs from the
first publish until every episode has ended *and* its rows are in Postgres; `p50_ms` and `p99_ms`
are from an event's publish to its episode's public end, or, for `trigger`, to its first step.
One JSON line per case: medians over its runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.load import IDLE
from bench.measure import Case, Result
from bench.rounds import QUICK, Pace, take_turns
from bench.vigil import vigil

IN_FLIGHT: Final = {
    "converge_only": (1, 64, 256),
    "steps_strict": (1, 64, 256),
    "steps_pipelined": (1, 64, 256),
    "steps_function": (1, 64, 256),
    "steps_alone": (1, 64, 256),
    "steps_side_effect": (1, 64),
    "findings": (1, 64),
    "trigger": (1,),
    "converge_in_lane": (1, 64, 256),
    "steps_in_lane": (1, 64, 256),
}
"""Case → how many episodes are kept going at once."""

IDLE_LONGER: Final = 10
"""How many times as long as others a run of `IDLE` is: 400 events, most of it pauses."""


def cases(names: Sequence[str], *, system: str = "vigil") -> Sequence[Case]:
    """Return what there is to measure of `names`."""
    return [
        Case(system, name, in_flight, longer=IDLE_LONGER if name == IDLE else 1)
        for name in names
        for in_flight in IN_FLIGHT[name]
    ]


async def measure(names: Sequence[str], pace: Pace) -> Sequence[Result]:
    """Return the results of the cases called `names`, on one node."""
    with tempfile.TemporaryDirectory() as place:
        async with vigil(Path(place), cases=names) as system:
            return await take_turns([system], cases(names), pace)


def main() -> None:
    """Read the arguments, measure, and print a line for each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="only see that it works")
    arguments.add_argument("--runs", type=int)
    arguments.add_argument("--seconds", type=float, help="of one run")
    arguments.add_argument("--case", action="append", choices=IN_FLIGHT, help="all by default")
    chosen = arguments.parse_args()
    pace = QUICK if chosen.quick else Pace()
    pace = replace(pace, runs=chosen.runs or pace.runs, seconds=chosen.seconds or pace.seconds)
    for result in asyncio.run(measure(chosen.case or list(IN_FLIGHT), pace)):
        print(json.dumps(result.line), flush=True)


if __name__ == "__main__":
    main()

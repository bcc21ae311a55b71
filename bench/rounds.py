"""Runs cases in turns on systems that are up, and says on stderr how it goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bench.measure import Case, Result, Run, in_turns, summarise
from bench.program import Request

WARM_UP_S: Final = 0.5
"""Each case runs for so long before it counts, in seconds: code is imported, tables are made."""


class System(Protocol):
    """Something that can be measured, started already."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    @property
    def sync(self) -> str:
        """How it makes things durable."""
        ...

    async def run(self, request: Request) -> Run:
        """Run a case once."""
        ...


@dataclass(frozen=True)
class Pace:
    """How long to measure."""

    runs: int = 5
    seconds: float = 2.0
    """Of one run."""


QUICK: Final = Pace(runs=1, seconds=0.3)
"""Shows that everything works, and nothing else."""


async def take_turns(
    systems: Sequence[System], cases: Sequence[Case], pace: Pace
) -> Sequence[Result]:
    """Return the result of each case, all of them run in turns on `systems`."""
    named = {system.name: system for system in systems}
    tag = str(time.monotonic_ns())
    for case in cases:
        await named[case.system].run(_request(case, min(WARM_UP_S, pace.seconds), f"warm-{tag}"))
    runs: Mapping[Case, list[Run]] = {case: [] for case in cases}
    for number, case in in_turns(cases, runs=pace.runs):
        run = await named[case.system].run(_request(case, pace.seconds, f"{tag}-{number}"))
        runs[case].append(run)
        _say(f"{number}/{pace.runs}  {case.system:24} {case.name:18} x{case.in_flight:<4}", run)
    return [summarise(case, runs[case], sync=named[case.system].sync) for case in cases]


def _request(case: Case, seconds: float, tag: str) -> Request:
    return Request(case.name, case.in_flight, seconds, f"{tag}-{case.name}-{case.in_flight}")


def _say(what: str, run: Run) -> None:
    print(f"{what} {run.per_s:8.1f}/s  load {run.load_cores:.2f} cores", file=sys.stderr)

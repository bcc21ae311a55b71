"""Runs cases in turns on systems that are up, and says on stderr how it goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bench.measure import Case, Result, Run, in_turns, summarise
from bench.processes import Used
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

    @property
    def parts(self) -> Mapping[str, Sequence[int]]:
        """Its parts by name, and their process ids. `CLIENT` only asks."""
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
    seconds_max: float = 2.0
    """Of one run with so much in flight that its clients would begin nothing a second time."""


QUICK: Final = Pace(runs=1, seconds=0.3)
"""Shows that everything works, and nothing else."""


async def take_turns(
    systems: Sequence[System],
    cases: Sequence[Case],
    pace: Pace,
    *,
    is_warm: bool = False,
    expected_per_s: Mapping[Case, float] | None = None,
) -> Sequence[Result]:
    """Return the result of each case, all of them run in turns on `systems`.

    Where it is expected how many are finished in a second, a run lasts until as many could be
    finished as are in flight, if that is longer than the pace says.
    """
    named = {system.name: system for system in systems}
    tag = str(time.monotonic_ns())
    for case in () if is_warm else cases:
        await named[case.system].run(_request(case, min(WARM_UP_S, pace.seconds), f"warm-{tag}"))
    runs: Mapping[Case, list[Run]] = {case: [] for case in cases}
    for number, case in in_turns(cases, runs=pace.runs):
        seconds = _seconds(case, (expected_per_s or {}).get(case, 0.0), pace)
        run = await _run(named[case.system], _request(case, seconds, f"{tag}-{number}"))
        runs[case].append(run)
        _say(f"{number}/{pace.runs}  {case.system:24} {case.name:18} x{case.in_flight:<4}", run)
    return [summarise(case, runs[case], sync=named[case.system].sync) for case in cases]


async def _run(system: System, request: Request) -> Run:
    before = Used.now(system.parts)
    run = await system.run(request)
    used = Used.now(system.parts).since(before)
    return replace(run, cpu_s=used.parts_s, other_cores=used.other_cores)


def _seconds(case: Case, per_s: float, pace: Pace) -> float:
    if case.per_s or not per_s:
        return pace.seconds * case.longer
    return max(pace.seconds, min(pace.seconds_max, case.in_flight / per_s))


def _request(case: Case, seconds: float, tag: str) -> Request:
    tag = f"{tag}-{case.name}-{case.in_flight}"
    return Request(case.name, case.in_flight, seconds, tag, case.per_s)


def _say(what: str, run: Run) -> None:
    said = f"{run.per_s:8.1f}/s  {run.cpu_us_each:8.0f} us each"
    cores = f"client {run.load_cores:.2f} cores, others {run.other_cores:.2f}"
    print(f"{what} {said}  {cores}", file=sys.stderr)

"""What a measurement is: cases, their runs taken in turns, and what the runs say together.

Pure, and of the standard library only: programs in the peers' environments import it too.

    Case ──a System runs it, again and again──▶ Run, Run, … ──summarise──▶ Result
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, TypeAlias

Line: TypeAlias = dict[str, object]
"""One JSON object of a results file."""

MS_PER_S: Final = 1_000
US_PER_S: Final = 1_000_000

CLIENT: Final = "client"
"""The part of a system that only asks: what it uses is not counted for the system."""

GAIN_MIN: Final = 1.05
"""What more in flight has to bring, so that still more is tried."""

GAINLESS_MAX: Final = 2
"""So many times in a row it may bring less, as its runs can be slow ones."""


@dataclass(frozen=True)
class Case:
    """One thing to measure, on one system."""

    system: str
    name: str
    in_flight: int
    """How many are kept going at once, by a client that begins one whenever one ends."""
    per_s: float = 0.0
    """If not 0: the client begins so many a second, however many are still going."""
    longer: int = 1
    """How many times as long its runs are, since it begins few: of 40, the p99 is the slowest."""


@dataclass(frozen=True)
class Run:
    """What one run of a case showed."""

    count: int
    seconds: float
    """From the first beginning until the last was finished, and could be queried."""
    took_ms: Sequence[float]
    """How long each took, from the client's point of view."""
    load_cores: float
    """What the client itself used of the machine: 1.0 is one core. Near that, it is the limit."""
    commits: int = 0
    """How many messages the journal has more than before."""
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    """Part of the system → processor time that its processes used, in seconds."""
    other_cores: float = 0.0
    """What everything else on the machine used of it meanwhile, the kernel's own threads too."""

    @property
    def per_s(self) -> float:
        """Return how many were finished in a second."""
        return self.count / self.seconds

    @property
    def cpu_us_each(self) -> float:
        """Return the processor time for each, in microseconds, without the client's."""
        used_s = sum(used for part, used in self.cpu_s.items() if part != CLIENT)
        return used_s / self.count * US_PER_S


@dataclass(frozen=True)
class Result:
    """What the runs of a case say together."""

    system: str
    case: str
    per_s: float
    per_s_min: float
    per_s_max: float
    p50_ms: float
    p99_ms: float
    in_flight: int
    runs: int
    sync: str
    """How the system makes things durable."""
    load_cores: float
    """What the client used of the machine, at its busiest."""
    commits_each: float
    """Commits that one of them made, of whatever aggregate; 0 for systems that have none."""
    cpu_us_each: float
    """Processor time of the system for each, in microseconds."""
    other_cores: float
    """What everything else used of the machine, at its busiest."""

    @property
    def line(self) -> Line:
        """Return the result as it stands in a file."""
        return asdict(self)


def in_turns(cases: Sequence[Case], *, runs: int) -> Iterator[tuple[int, Case]]:
    """Yield run 1 of every case, then run 2 of every case, and so on.

    A machine that slows down for a while then slows all of them down alike.
    """
    for run in range(1, runs + 1):
        for case in cases:
            yield run, case


def summarise(case: Case, runs: Sequence[Run], *, sync: str) -> Result:
    """Return the medians over `runs`, with the slowest and the fastest of them."""
    per_s = [run.per_s for run in runs]
    return Result(
        system=case.system,
        case=case.name,
        per_s=round(statistics.median(per_s), 1),
        per_s_min=round(min(per_s), 1),
        per_s_max=round(max(per_s), 1),
        p50_ms=round(statistics.median(percentile(run.took_ms, 50) for run in runs), 2),
        p99_ms=round(statistics.median(percentile(run.took_ms, 99) for run in runs), 2),
        in_flight=case.in_flight,
        runs=len(runs),
        sync=sync,
        load_cores=round(max(run.load_cores for run in runs), 2),
        commits_each=round(statistics.median(run.commits / run.count for run in runs), 2),
        cpu_us_each=round(statistics.median(run.cpu_us_each for run in runs)),
        other_cores=round(max(run.other_cores for run in runs), 2),
    )


def still_gains(per_s: Sequence[float]) -> bool:
    """Return whether more in flight is worth trying, after each try brought so many per second."""
    best, gainless = 0.0, 0
    for each in per_s:
        gainless = 0 if each >= best * GAIN_MIN else gainless + 1  # guard: slow-try-no-end
        best = max(best, each)
    return gainless < GAINLESS_MAX


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest of `values` that at least `percent` of a hundred do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * percent // 100) - 1)]


def ratio(ours: float, theirs: float) -> str:
    """Return how often `theirs` fits into `ours`; nothing to divide by gives a question mark."""
    if not theirs:
        return "?"
    times = ours / theirs
    return f"{times:.2f}x" if times < 1 else f"{times:.1f}x"

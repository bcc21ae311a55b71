"""How much processor time processes have used, with their children, and the whole machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True)
class Used:
    """What had been used by a moment, in seconds."""

    at_s: float
    machine_s: float
    """By all processes, the kernel and other machines on the same hardware."""
    parts_s: Mapping[str, float]
    """Part of a system → by its processes."""

    @classmethod
    def now(cls, parts: Mapping[str, Iterable[int]]) -> Self:
        """Read the counters of the machine, and of `parts`: a name → process ids."""
        parts_s = {name: sum(map(cpu_s, pids)) for name, pids in parts.items()}
        times = psutil.cpu_times()
        busy_s = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
        return cls(time.monotonic(), busy_s, parts_s)

    def since(self, before: Self) -> Self:
        """Return what was used from one moment to this one."""
        return type(self)(
            at_s=self.at_s - before.at_s,
            machine_s=self.machine_s - before.machine_s,
            parts_s={name: used - before.parts_s[name] for name, used in self.parts_s.items()},
        )

    @property
    def other_cores(self) -> float:
        """Return how many cores were busy with anything else, if this is a difference."""
        return max(0.0, self.machine_s - sum(self.parts_s.values())) / self.at_s


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and its descendants, ended ones too, in seconds."""
    process = psutil.Process(pid)
    # guard: children-processor-time
    used_s = sum(process.cpu_times()[:4])  # user, system, and both of children that have ended
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            used_s += sum(child.cpu_times()[:4])
    return used_s

"""What is worth a finding: one strategy, three gauges. Each episode takes one step.

Raising and clearing are safe to repeat, so the strategy never asks what it found before.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.app.actions import Converge
from vigil import (
    Context,
    ConvergeResult,
    EpisodeView,
    FindingIntent,
    Strategy,
    Trigger,
    clear_finding,
    converge,
    raise_finding,
)


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is measured, and how much of it is how bad."""

    name: str
    """The beginning of the findings' keys."""
    class_: str
    reads: str
    """Key of the number in the event's payload."""
    says: str
    """A reading as text; `{about}` and `{value}` stand for what was read."""
    levels: tuple[tuple[float, str], ...]
    """Thresholds and the severities from there on, highest first."""


NOTICED_FRACTION: Final = 0.05
"""In use at all: a low finding, which shows on nearly every machine that it is watched."""

DISK: Final = Gauge(
    name="disk",
    class_="disk_filling",
    reads="used_fraction",
    says="{about} is {value:.0%} full",
    # Many file systems slow down past 90 %, and keep the last 5 % for root.
    levels=((0.95, "critical"), (0.90, "high"), (0.80, "medium"), (NOTICED_FRACTION, "low")),
)
MEMORY: Final = Gauge(
    name="memory",
    class_="memory_filling",
    reads="used_fraction",
    says="{about}: {value:.0%} of memory is in use",
    # Linux counts caches as available, so what is in use here cannot simply be dropped.
    levels=((0.97, "critical"), (0.90, "high"), (0.80, "medium"), (NOTICED_FRACTION, "low")),
)
LOAD: Final = Gauge(
    name="load",
    class_="processor_busy",
    reads="load_per_cpu",
    says="{about}: {value:.2f} programs want each processor",
    # At 1 every processor is busy; from there on somebody waits.
    levels=((4.0, "critical"), (2.0, "high"), (1.0, "medium"), (0.5, "low")),
)


class GaugeReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a gauge showed. This is the strategy's state."""

    kind: str
    """`mount` or `host`: what `about` names."""
    about: str
    """The host, or `<host>:<mount>`."""
    value: float


class CheckGauge(Strategy[GaugeReading]):
    """Compares one reading with the gauge's levels."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge

    def init(self, episode: EpisodeView, trigger: Trigger) -> GaugeReading:
        """Read the number off the event."""
        host, mount = str(trigger.payload["host"]), trigger.payload.get("mount")
        return GaugeReading(
            kind="mount" if mount else "host",
            about=f"{host}:{mount}" if mount else host,
            value=float(trigger.payload[self._gauge.reads]),
        )

    def next_step(self, state: GaugeReading, ctx: Context) -> Converge:
        """Decide at once: all there is to know came with the event."""
        return converge()

    def converge(self, state: GaugeReading, ctx: Context) -> ConvergeResult:
        """Raise, refresh or clear the finding about this reading."""
        return judge(self._gauge, state)


def severity(gauge: Gauge, value: float) -> str | None:
    """Return how bad `value` is, or None if it is healthy."""
    return next((severity for level, severity in gauge.levels if value >= level), None)


def judge(gauge: Gauge, reading: GaugeReading) -> ConvergeResult:
    """Return what `reading` means: a finding, or the end of one."""
    bad, key = severity(gauge, reading.value), f"{gauge.name}:{reading.about}"
    words = gauge.says.format(about=reading.about, value=reading.value)
    if bad is None:
        change: FindingIntent = clear_finding(key, reason=words)
    else:
        change = raise_finding(
            key,
            class_=gauge.class_,
            severity=bad,
            summary=words,
            subject=(reading.kind, reading.about),
            evidence={
                "value": reading.value,
                "levels": {name: level for level, name in gauge.levels},
            },
        )
    return ConvergeResult(
        classification={"primary": gauge.class_ if bad else "healthy", "severity": bad},
        confidence=1.0,
        summary=words,
        findings=[change],
    )

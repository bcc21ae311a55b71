"""What the lines of a results file say: of which suite, how much, and who was best. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.measure import Line


def read(file: Path) -> Sequence[Line]:
    """Return the lines of a results file, without those that later ones replace."""
    newest: dict[tuple[object, ...], Line] = {}
    for text in file.read_text().splitlines():
        line: Line = json.loads(text)
        newest[key(line)] = line
    return list(newest.values())


def key(line: Line) -> tuple[object, ...]:
    """Return what `line` is a measurement of."""
    names = ("suite", "system", "case", "in_flight", "events", "retained", "actors")
    return tuple(line.get(name) for name in names)


def of(lines: Sequence[Line], suite: str) -> Sequence[Line]:
    """Return the lines of one suite."""
    return [line for line in lines if line["suite"] == suite]


def number(line: Line | None, name: str) -> float:
    """Return a number of `line`, or 0 if it is not there."""
    value = (line or {}).get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def runs(line: Line) -> int:
    """Return how often that was measured whose median `line` holds."""
    return round(number(line, "runs") or number(line, "samples")) or 1


def best(lines: Sequence[Line], system: str, *, case: str = "") -> Line | None:
    """Return the line of `system` with the most per second."""
    found = [line for line in lines if line["system"] == system and case in ("", line["case"])]
    return max(found, key=lambda line: number(line, "per_s"), default=None)


def quickest(lines: Sequence[Line], system: str, *, case: str = "") -> Line | None:
    """Return the line of `system` with the lowest median, one at a time."""
    found = [line for line in lines if line["system"] == system and line["in_flight"] == 1]
    wanted = [line for line in found if case in ("", line["case"])]
    return min(wanted, key=lambda line: number(line, "p50_ms"), default=None)

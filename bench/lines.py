"""What the lines of a results file say: of which suite, how much, and who was best. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from bench.measure import Line

MEASURED: Final = ("at", "commit")
"""What a line of a file says of where it comes from: when, and of which source."""


def read(*files: Path) -> Sequence[Line]:
    """Return the lines of results files, the oldest first, without those that later ones replace.

    A suite that was measured again replaces all that it said before. Each line says when that was,
    and of which commit, as the line about the machine above it does.
    """
    newest: dict[tuple[object, ...], Line] = {}
    origin: Line = {}
    for text in (text for file in files for text in file.read_text().splitlines()):
        line: Line = json.loads(text)
        if line["suite"] == "machine":
            origin = {name: line.get(name) for name in MEASURED}
        line |= origin
        newest = {known: old for known, old in newest.items() if not _is_replaced(old, line)}
        newest[key(line)] = line
    return list(newest.values())


def _is_replaced(old: Line, by: Line) -> bool:
    # guard: older-lines-give-way
    return old["suite"] == by["suite"] and (key(old) == key(by) or old.get("at") != by.get("at"))


def of_origin(lines: Iterable[Line]) -> Sequence[str]:
    """Return when `lines` were measured, each with its commit, where they say so."""
    known = {(str(line["at"])[:10], line["commit"]) for line in lines if "at" in line}
    return [f"{day} at `{commit}`" for day, commit in sorted(known)]


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


def best(
    lines: Sequence[Line], system: str, *, case: str = "", in_flight: int | None = None
) -> Line | None:
    """Return the line of `system` with the most per second, of all or with so many in flight."""
    found = [
        line
        for line in lines
        if line["system"] == system
        and case in ("", line["case"])
        and in_flight in (None, line["in_flight"])
    ]
    return max(found, key=lambda line: number(line, "per_s"), default=None)


def quickest(lines: Sequence[Line], system: str, *, case: str = "") -> Line | None:
    """Return the line of `system` with the lowest median, one at a time."""
    found = [line for line in lines if line["system"] == system and line["in_flight"] == 1]
    wanted = [line for line in found if case in ("", line["case"])]
    return min(wanted, key=lambda line: number(line, "p50_ms"), default=None)

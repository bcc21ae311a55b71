"""Durations as people write them: a number of seconds, a text such as `1h30m`, a timedelta. Pure.

A text is whole numbers with units, the largest unit first and each at most once:
`w`, `d`, `h`, `m`, `s`, `ms`. A text without a unit is refused, for nobody could tell what it
means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TypeAlias

Duration: TypeAlias = float | str | timedelta
"""How a duration may be written."""

_UNITS_MS: Final[Mapping[str, int]] = {
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}

_TEXT: Final = re.compile("".join(rf"(?:([0-9]{{1,12}}){unit})?" for unit in _UNITS_MS))


def seconds_of(value: object, *, least_s: float, most_s: float) -> float:
    """Return the seconds that a `Duration` means, from `least_s` to `most_s`.

    Raises:
        ValueError: it is no duration, or too short or too long; what to write instead.
    """
    seconds = _seconds(value)
    if seconds is None:
        raise ValueError(f"{value!r} is not a duration; write 90, '15m' or '1h30m'")
    if not least_s <= seconds <= most_s:
        raise ValueError(f"{value!r} is not from {_spelled(least_s)} to {_spelled(most_s)} long")
    return float(seconds)


def _seconds(value: object) -> float | None:
    match value:
        case bool():
            return None
        case float() if not math.isfinite(value):
            return None
        case int() | float():
            return value
        case timedelta():
            return value.total_seconds()
        case str() if value and (match := _TEXT.fullmatch(value)):
            numbers = zip(match.groups("0"), _UNITS_MS.values(), strict=True)
            return sum(int(number) * unit_ms for number, unit_ms in numbers) / 1000
        case _:
            return None


def _spelled(seconds: float) -> str:
    """Return `seconds` in the largest unit that leaves no remainder, as a text to be read."""
    ms = round(seconds * 1000)
    unit = next(unit for unit, unit_ms in _UNITS_MS.items() if ms % unit_ms == 0)
    return f"{ms // _UNITS_MS[unit]:,}{unit}"

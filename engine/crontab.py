"""Cron expressions, and the times at which the clock of a zone fits one. Pure, on `cronsim`.

When clocks are changed, cron does what Debian's does (measured with cronsim 2.8):

    neither minutes nor hours begin with `*`
        a time that is skipped comes once, at the end of the gap; one that comes twice counts
        the first time only
    one of them does
        whenever the clock shows such a time: not in what is skipped, and both times in what
        comes twice; but where a clock is set back by half an hour (Lord Howe Island), the half
        hour after that is left out

The same library knows `L`, `LW` and `#`. If neither the day of the month nor the day of the week
begins with `*`, either of them is enough; else both must fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

EXPRESSION_CHARS_MAX: Final = 200
"""Longest cron expression. Every minute of an hour, spelled out, takes 169; and a timer's key has
room for this many."""

MACROS: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Words for common expressions, and what they stand for."""

_FIELDS: Final = 5

_HINT: Final = (
    "write minute, hour, day of month, month and day of week, such as '*/5 9-17 * * MON-FRI',"
    f" or one of {', '.join(MACROS)}"
)

_JUDGED_FROM: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""Whether an expression ever matches is judged on four fixed years, one of them a leap year, so
that it is accepted by every node on every day or by none."""

_JUDGED_FOR: Final = timedelta(days=4 * 365 + 1)

_TURNED_BACK_MINUTES_MAX: Final = 24 * 60
"""Most minutes that a clock is set back by: a day, where the date line moves."""


def is_zone(tz: object) -> bool:
    """Return whether `tz` is the name of a time zone, such as `Europe/Berlin`."""
    return isinstance(tz, str) and tz in _zones()


def spelled_out(expression: object, *, tz: str) -> str:
    """Return an expression in five fields of capitals, one space between them.

    Raises:
        ValueError: it is none, or fits no day of four years in the zone `tz`; and what to write.
    """
    try:
        spelled = _in_fields(expression)
        first = time_after(spelled, _JUDGED_FROM, tz=tz)
    except (ValueError, CronSimError) as error:
        raise ValueError(f"{expression!r}: {error}; {_HINT}") from error
    if first is None or first > _JUDGED_FROM + _JUDGED_FOR:
        raise ValueError(f"{expression!r} fits no day of four years")
    return spelled


def time_after(expression: str, after: datetime, *, tz: str) -> datetime | None:
    """Return the first time past `after` that fits, in UTC; None if there is none in fifty years.

    Args:
        expression: as `spelled_out` gives it.
        after: with a zone, whichever.
        tz: the zone whose clock is to fit.
    """
    zone = UTC if tz == "UTC" else ZoneInfo(tz)
    shown = CronSim(expression, after.astimezone(zone))
    # The second time that a clock shows an hour, the library offers what was due the first time.
    for offered in islice(shown, 1 + _TURNED_BACK_MINUTES_MAX):
        found = offered.astimezone(UTC)
        if found > after:
            return found
    return None


def _in_fields(expression: object) -> str:
    if not isinstance(expression, str):
        raise ValueError("not a text")  # noqa: TRY004 - as for its value
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ValueError(f"{len(expression):,} characters, the limit is {EXPRESSION_CHARS_MAX}")
    fields = MACROS.get(expression.strip().lower(), expression).upper().split()
    if len(fields) != _FIELDS:
        raise ValueError(f"{len(fields)} fields, not {_FIELDS}")
    return " ".join(fields)


@cache
def _zones() -> frozenset[str]:
    """Return the names of all time zones: of the package, so that all machines know the same."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())

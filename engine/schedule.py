"""When a schedule ticks, and which of the ticks that were missed are made up for. Pure.

A tick is an instant that follows from the schedule alone, so every node knows the same ticks and
gives each the same dedupe key: however many nodes open one, it is one episode. Ticks of `every`
are multiples of the interval since `FIRST_WINDOW`; ticks of `cron` are what the clock of its time
zone says, and are known in UTC.

When clocks are changed, cron does what Debian's does (measured with cronsim 2.8):

    neither minutes nor hours begin with `*`
        a time that is skipped ticks once, at the end of the gap; one that comes twice ticks
        the first time only
    one of them does
        ticks whenever the clock shows such a time: not in what is skipped, and both times in
        what comes twice; but where a clock is set back by half an hour (Lord Howe Island), the
        half hour after that is left out

The same library knows `L`, `LW` and `#`. If neither the day of the month nor the day of the week
begins with `*`, either of them is enough; else both must fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import islice
from typing import Final, Literal, TypeAlias, assert_never, get_args
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from engine.dedupe import FIRST_WINDOW, WINDOWS, Window
from engine.durations import Duration, seconds_of

CatchUp: TypeAlias = Literal["skip", "one", "all"]
"""What becomes of ticks that came due while nobody was there. `skip`: nothing. `one`: one episode,
for the newest. `all`: one episode for each."""

CATCH_UPS: Final[tuple[str, ...]] = get_args(CatchUp)
"""All of them."""

TICKS_MAX: Final = 100
"""Most ticks that are made up for in one go; the next go follows at once."""

TICK_LATE_S: Final = 60.0
"""How late a tick may come and not count as missed, in seconds. A server takes 0.25 s to fire a
timer; the rest is for nodes that are busy or being replaced."""

EVERY_S_MIN: Final = 1.0
"""Shortest interval, in seconds."""

EVERY_S_MAX: Final = 366 * 86_400.0
"""Longest interval, in seconds: a leap year."""

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

_MINUTE: Final = timedelta(minutes=1)


class Every(msgspec.Struct, frozen=True):
    """Ticks at multiples of an interval."""

    interval_s: int
    catch_up: CatchUp = "one"
    window: Window | None = None


class Cron(msgspec.Struct, frozen=True):
    """Ticks when the clock of a time zone shows a time that fits an expression."""

    expression: str
    """Five fields in capitals, one space between them; macros are spelled out."""
    tz: str = "UTC"
    """A name of the IANA database."""
    catch_up: CatchUp = "one"
    window: Window | None = None


Schedule: TypeAlias = Every | Cron


class Catch(msgspec.Struct, frozen=True):
    """What is to be done about a tick that came due."""

    opens: tuple[datetime, ...]
    """The ticks that open an episode, oldest first."""
    arms: datetime
    """The tick to arm next. It may be due already."""


def every(interval: Duration, *, catch_up: CatchUp = "one", window: Window | None = None) -> Every:
    """Return a trigger that fires again and again, at multiples of `interval`.

    `every("15m")` fires on the quarters of an hour, UTC. Days begin at midnight and weeks on
    Monday, UTC.

    Args:
        interval: whole seconds, from 1 to 366 days: 900, "15m" or timedelta(minutes=15).
        catch_up: what becomes of ticks that came due while no node ran: "skip" them all, fire
            for "one" (the newest), or for "all".
        window: with one, such as "h1", ticks in the same window open one episode.

    Raises:
        ValueError: an argument cannot work; which one, and why.
    """
    try:
        seconds = seconds_of(interval, least_s=EVERY_S_MIN, most_s=EVERY_S_MAX)
    except ValueError as error:
        raise ValueError(f"every(): interval: {error}") from error
    if not seconds.is_integer():
        raise ValueError(f"every(): interval: {interval!r} is not whole seconds")
    if problem := _problem_of_options(catch_up, window):
        raise ValueError(f"every(): {problem}")
    return Every(int(seconds), catch_up, window)


def cron(
    expression: str, *, tz: str = "UTC", catch_up: CatchUp = "one", window: Window | None = None
) -> Cron:
    """Return a trigger that fires when the clock in `tz` fits `expression`.

    Args:
        expression: minute, hour, day of month, month, day of week, such as "*/5 9-17 * * MON-FRI";
            or one of `MACROS`, such as "@hourly". Days of the week are 0-7, and 0 and 7 are Sunday.
        tz: a name of the IANA database, such as "Europe/Berlin".
        catch_up: what becomes of ticks that came due while no node ran: "skip" them all, fire
            for "one" (the newest), or for "all".
        window: with one, such as "h1", ticks in the same window open one episode.

    Raises:
        ValueError: an argument cannot work, or the expression fits no day of four years; which
            one, and why.
    """
    zone: object = tz
    if not isinstance(zone, str) or zone not in _zones():
        raise ValueError(f"cron(): tz: {tz!r} is not a time zone; write one such as Europe/Berlin")
    if problem := _problem_of_options(catch_up, window):
        raise ValueError(f"cron(): {problem}")
    try:
        schedule = Cron(_spelled_out(expression), tz, catch_up, window)
        tick = _tick_after(schedule, _JUDGED_FROM)
    except (ValueError, CronSimError) as error:
        raise ValueError(f"cron(): expression: {expression!r}: {error}; {_HINT}") from error
    if tick is None or tick > _JUDGED_FROM + _JUDGED_FOR:
        raise ValueError(f"cron(): expression: {expression!r} fits no day of four years")
    return schedule


def checked_schedule(schedule: Schedule) -> Schedule:
    """Return `schedule` as `every` or `cron` would have made it.

    Raises:
        ValueError: neither of them would have; which field is wrong, and why.
    """
    catch_up, window = schedule.catch_up, schedule.window
    match schedule:
        case Every(interval_s=interval_s):
            return every(interval_s, catch_up=catch_up, window=window)
        case Cron(expression=expression, tz=tz):
            return cron(expression, tz=tz, catch_up=catch_up, window=window)
        case _:
            assert_never(schedule)


def spec_of(schedule: Schedule) -> str:
    """Return the text that names a schedule and its timer: two that tick alike have the same."""
    match schedule:
        case Every(interval_s=interval_s):
            return f"every {interval_s}s"
        case Cron(expression=expression, tz=tz):
            return f"cron {expression} {tz}"
        case _:
            assert_never(schedule)


def next_tick(schedule: Schedule, after: datetime) -> datetime:
    """Return the first tick later than `after`, in UTC.

    Raises:
        ValueError: there is none. What `cron` returned always has one.
    """
    match schedule:
        case Every(interval_s=interval_s):
            return _multiple(schedule, after) + timedelta(seconds=interval_s)
        case Cron():
            tick = _tick_after(schedule, after)
            if tick is None:
                raise ValueError(f"{spec_of(schedule)} never ticks after {after}")
            return tick
        case _:
            assert_never(schedule)


def due_ticks(schedule: Schedule, tick: datetime, now: datetime) -> Catch:
    """Return which ticks open an episode now that `tick` has come due, and which to arm next.

    Args:
        schedule: the one that `tick` is of.
        tick: the oldest that nobody has answered for.
        now: if before `tick`, the clocks differ, and it is `tick`.
    """
    tick, now = tick.astimezone(UTC), max(now, tick).astimezone(UTC)
    if schedule.catch_up == "all":
        return _in_turn(schedule, tick, now)
    newest = _newest(schedule, tick, now)
    is_missed = (now - newest).total_seconds() > TICK_LATE_S
    opens = () if is_missed and schedule.catch_up == "skip" else (newest,)
    return Catch(opens, next_tick(schedule, newest))


def tick_key(schedule: Schedule, tick: datetime) -> str:
    """Return the dedupe key of the episode that `tick` opens."""
    tick = tick.astimezone(UTC)
    if schedule.window is None:
        return f"schedule:{_iso(tick)}"
    start = tick - (tick - FIRST_WINDOW) % WINDOWS[schedule.window]
    return f"schedule:{_iso(start)}@{schedule.window}"


def _in_turn(schedule: Schedule, tick: datetime, now: datetime) -> Catch:
    """Return every tick from `tick` to `now`, as many as one go may hold."""
    opens, following = [tick], next_tick(schedule, tick)
    while following <= now and len(opens) < TICKS_MAX:
        opens.append(following)
        following = next_tick(schedule, following)
    return Catch(tuple(opens), following)


def _newest(schedule: Schedule, tick: datetime, now: datetime) -> datetime:
    """Return the newest tick up to `now`; `tick` is one.

    Of cron it is found by halving: 27 looks for a century. Walking backwards with cronsim would be
    one look, but in the second pass of an hour that comes twice it does not see the first.
    """
    if isinstance(schedule, Every):
        return max(tick, _multiple(schedule, now))
    newest, until = tick, now
    while until - newest >= _MINUTE:
        middle = newest + (until - newest) / 2
        found = next_tick(schedule, middle)
        if found <= now:
            newest = found
        else:
            until = middle
    return newest


def _multiple(schedule: Every, at: datetime) -> datetime:
    """Return the newest tick up to `at`."""
    at = at.astimezone(UTC)
    return at - (at - FIRST_WINDOW) % timedelta(seconds=schedule.interval_s)


def _tick_after(schedule: Cron, after: datetime) -> datetime | None:
    """Return the first tick later than `after`; None if there is none within fifty years."""
    zone = UTC if schedule.tz == "UTC" else ZoneInfo(schedule.tz)
    shown = CronSim(schedule.expression, after.astimezone(zone))
    # The second time that a clock shows an hour, the library offers what was due the first time.
    for offered in islice(shown, 1 + _TURNED_BACK_MINUTES_MAX):
        tick = offered.astimezone(UTC)
        if tick > after:
            return tick
    return None


def _spelled_out(expression: object) -> str:
    """Return a cron expression as `Cron` holds it.

    Raises:
        ValueError: it is not five fields of text, or too long.
    """
    if not isinstance(expression, str):
        raise ValueError("not a text")  # noqa: TRY004 - as for its value
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ValueError(f"{len(expression):,} characters, the limit is {EXPRESSION_CHARS_MAX}")
    fields = MACROS.get(expression.strip().lower(), expression).upper().split()
    if len(fields) != _FIELDS:
        raise ValueError(f"{len(fields)} fields, not {_FIELDS}")
    return " ".join(fields)


def _problem_of_options(catch_up: object, window: object) -> str | None:
    if catch_up not in CATCH_UPS:
        return f"catch_up: {catch_up!r} is not one of {', '.join(CATCH_UPS)}"
    if window is not None and window not in tuple(WINDOWS):
        return f"window: {window!r} is not one of {', '.join(WINDOWS)}"
    return None


@cache
def _zones() -> frozenset[str]:
    """Return the names of all time zones: of the package, so that all machines know the same."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


def _iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"

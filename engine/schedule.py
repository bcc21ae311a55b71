"""When a schedule ticks, and which of the ticks that were missed are made up for. Pure.

A tick is an instant that follows from the schedule alone, so every node knows the same ticks and
gives each the same dedupe key: however many nodes open one, it is one episode. Ticks of `every`
are multiples of the interval since `FIRST_WINDOW`; ticks of `cron` are what the clock of its time
zone says (`engine.crontab`), and are known in UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeAlias, assert_never, get_args

import msgspec

from engine.crontab import is_zone, spelled_out, time_after
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

TICK: Final = "tick"
"""Purpose of the timers of schedules."""

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
            or one of `engine.crontab.MACROS`, such as "@hourly". Days of the week are 0-7, and 0
            and 7 are Sunday.
        tz: a name of the IANA database, such as "Europe/Berlin".
        catch_up: what becomes of ticks that came due while no node ran: "skip" them all, fire
            for "one" (the newest), or for "all".
        window: with one, such as "h1", ticks in the same window open one episode.

    Raises:
        ValueError: an argument cannot work, or the expression fits no day of four years; which
            one, and why.
    """
    if not is_zone(tz):
        raise ValueError(f"cron(): tz: {tz!r} is not a time zone; write one such as Europe/Berlin")
    if problem := _problem_of_options(catch_up, window):
        raise ValueError(f"cron(): {problem}")
    try:
        return Cron(spelled_out(expression, tz=tz), tz, catch_up, window)
    except ValueError as error:
        raise ValueError(f"cron(): expression: {error}") from error


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


def tick_timer_key(expectation: str, spec: str) -> str:
    """Return the key of the timer of the schedule that `spec_of` calls `spec`."""
    return f"{expectation}/{spec}"


def schedule_in(spec: str) -> Schedule | None:
    """Return a schedule that `spec_of` calls `spec`; None if this version knows none."""
    kind, _, said = spec.partition(" ")
    expression, _, tz = said.rpartition(" ")
    try:
        schedule = every(said) if kind == "every" else cron(expression, tz=tz)
    except ValueError:
        return None
    return schedule if spec_of(schedule) == spec else None


def next_tick(schedule: Schedule, after: datetime) -> datetime:
    """Return the first tick later than `after`, in UTC.

    Raises:
        ValueError: there is none. What `cron` returned always has one.
    """
    match schedule:
        case Every(interval_s=interval_s):
            return _multiple(schedule, after) + timedelta(seconds=interval_s)
        case Cron(expression=expression, tz=tz):
            tick = time_after(expression, after, tz=tz)
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


def _problem_of_options(catch_up: object, window: object) -> str | None:
    if catch_up not in CATCH_UPS:
        return f"catch_up: {catch_up!r} is not one of {', '.join(CATCH_UPS)}"
    if window is not None and window not in tuple(WINDOWS):
        return f"window: {window!r} is not one of {', '.join(WINDOWS)}"
    return None


def _iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"

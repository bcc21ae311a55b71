"""The triggers of an expectation, as declared: events, schedules, people and workflows.

A tick is an instant that follows from the schedule alone, so every node computes the same ticks and
dedupe keys: one tick is one episode, however many nodes open it. Ticks of `every` are multiples of
the interval since `FIRST_WINDOW`. Cron does the same as Debian's (measured with cronsim 2.8) when
clocks change. If neither minutes nor hours begin with `*`, a skipped time comes once, at the end of
the gap, and a repeated time counts the first time only. If one does, it fires whenever the clock
shows such a time; but where a clock is set back by half an hour (Lord Howe Island), the half hour
after that is left out. `L`, `LW` and `#` work too. If neither the day of the month nor the day of
the week begins with `*`, one of them must fit; else both must.

The payload of a schedule is a part of what identifies it: equal ticks with different payloads are
different causes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import islice
from typing import Final, Literal, TypeAlias, assert_never, get_args
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from engine.app.conditions import Filter, filter_of
from engine.app.dedupe import FIRST_WINDOW, WINDOWS, Window
from engine.errors import Unencodable
from engine.validation import Duration, encode, seconds_of
from streams.json import JsonObject, raw, text_at, unraw
from streams.model.foreign_streams import FeedStart, ForeignStream, problem_of_feed
from streams.model.triggers import EventTrigger
from streams.ports.domain_events import DomainEvent
from streams.tokens import event_name

EXPRESSION_CHARS_MAX: Final = 200
"""Longest cron expression. Every minute of an hour, spelled out, takes 169; a timer's key has room
for this many.
"""

MACROS: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Macro → cron expression."""

_FIELDS: Final = 5

_HINT: Final = (
    "write minute, hour, day of month, month and day of week, such as '*/5 9-17 * * MON-FRI',"
    f" or one of {', '.join(MACROS)}"
)

_JUDGED_FROM: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""Whether an expression ever matches is checked on four fixed years, one of them a leap year, so
that every node decides the same on every day.
"""

_JUDGED_FOR: Final = timedelta(days=4 * 365 + 1)

_TURNED_BACK_MINUTES_MAX: Final = 24 * 60
"""Most minutes that a clock is set back by: a day, where the date line moves."""


CatchUp: TypeAlias = Literal["skip", "one", "all"]
"""What happens with ticks that came due while no node ran. `skip`: nothing. `one`: one episode, for
the newest. `all`: one episode for each.
"""

CATCH_UPS: Final[tuple[str, ...]] = get_args(CatchUp)
"""All of them."""

TICKS_MAX: Final = 100
"""Most missed ticks that are handled at once; the rest follow immediately."""

TICK_LATE_S: Final = 60.0
"""How late a tick may be without counting as missed, in seconds. A server takes 0.25 s to fire a
timer; the rest is for nodes that are busy or being replaced.
"""

EVERY_S_MIN: Final = 1.0
"""Shortest interval, in seconds."""

EVERY_S_MAX: Final = 366 * 86_400.0
"""Longest interval, in seconds: a leap year."""

TICK: Final = "tick"
"""Purpose of the timers of schedules."""

TICK_PAYLOAD_BYTES_MAX: Final = 16 * 1024
"""Largest payload of a schedule, as JSON: every episode of it has a copy."""

_MARK: Final = " #"
"""What stands before the digest of a payload in the text of a schedule."""

_MARK_BYTES: Final = 8

_MINUTE: Final = timedelta(minutes=1)


ENTITY_CHARS_MAX: Final = 512
"""Longest subject of an episode; a longer value of the subject key is cut."""

SOURCES_MAX: Final = 64
"""Most triggers of one expectation."""


def is_zone(tz: object) -> bool:
    """Return whether `tz` is the name of a time zone, such as `Europe/Berlin`."""
    return isinstance(tz, str) and tz in _zones()


def spelled_out(expression: object, *, tz: str) -> str:
    """Return an expression as five fields in capitals; `ValueError`: invalid, or it never fits."""
    try:
        spelled = _in_fields(expression)
        first = time_after(spelled, _JUDGED_FROM, tz=tz)
    except (ValueError, CronSimError) as error:
        raise ValueError(f"{expression!r}: {error}; {_HINT}") from error
    if first is None or first > _JUDGED_FROM + _JUDGED_FOR:
        raise ValueError(f"{expression!r} fits no day of four years")
    return spelled


def time_after(expression: str, after: datetime, *, tz: str) -> datetime | None:
    """Return the first time past `after` that fits, in UTC; None: there is none in fifty years."""
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
    """Return all time zones of the `tzdata` package, so that all machines know the same."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())


class Every(msgspec.Struct, frozen=True):
    """Ticks at multiples of an interval."""

    interval_s: int
    catch_up: CatchUp = "one"
    window: Window | None = None
    payload: JsonObject = {}
    """Of the trigger of each tick."""


class Cron(msgspec.Struct, frozen=True):
    """Ticks when the clock of a time zone shows a time that fits an expression."""

    expression: str
    """Five fields in capitals, one space between them; macros are spelled out."""
    tz: str = "UTC"
    """A name of the IANA database."""
    catch_up: CatchUp = "one"
    window: Window | None = None
    payload: JsonObject = {}


Schedule: TypeAlias = Every | Cron


class Catch(msgspec.Struct, frozen=True):
    """The result for a tick that came due."""

    opens: tuple[datetime, ...]
    """The ticks that open an episode, oldest first."""
    arms: datetime
    """The tick to arm next. It may be due already."""


def every(
    interval: Duration,
    *,
    catch_up: CatchUp = "one",
    window: Window | None = None,
    payload: Mapping[str, object] | None = None,
) -> Every:
    """Return a trigger that fires again and again, at multiples of `interval`.

    `every("15m")` fires on the quarters of an hour, UTC. Days begin at midnight and weeks on
    Monday, UTC.

    Args:
        interval: whole seconds, from 1 to 366 days: 900, "15m" or timedelta(minutes=15).
        catch_up: for ticks that came due while no node ran: "skip" them, fire for "one" (the
            newest), or for "all".
        window: ticks in the same window, such as "h1", open one episode.
        payload: `trigger.payload` of its episodes, a JSON object of up to 16 KiB such as
            `{"service": "shop"}`. Schedules with different payloads open separate episodes, also
            at the same time. None: `{}`.

    Raises `ValueError` if an argument cannot work; the message names it.
    """
    try:
        seconds = seconds_of(interval, least_s=EVERY_S_MIN, most_s=EVERY_S_MAX)
    except ValueError as error:
        raise ValueError(f"every(): interval: {error}") from error
    if not seconds.is_integer():
        raise ValueError(f"every(): interval: {interval!r} is not whole seconds")
    if problem := _problem_of_options(catch_up, window):
        raise ValueError(f"every(): {problem}")
    return Every(int(seconds), catch_up, window, _checked_payload(payload, of="every"))


def cron(
    expression: str,
    *,
    tz: str = "UTC",
    catch_up: CatchUp = "one",
    window: Window | None = None,
    payload: Mapping[str, object] | None = None,
) -> Cron:
    """Return a trigger that fires when the clock in `tz` fits `expression`.

    Args:
        expression: minute, hour, day of month, month, day of week, such as "*/5 9-17 * * MON-FRI";
            or one of `MACROS`, such as "@hourly". Days of the week are 0-7; 0 and 7 are Sunday.
        tz: a name of the IANA database, such as "Europe/Berlin".

    `catch_up`, `window` and `payload` are as for `every`. Raises `ValueError` if an argument cannot
    work, or the expression fits no day of four years.
    """
    if not is_zone(tz):
        raise ValueError(f"cron(): tz: {tz!r} is not a time zone; write one such as Europe/Berlin")
    if problem := _problem_of_options(catch_up, window):
        raise ValueError(f"cron(): {problem}")
    kept = _checked_payload(payload, of="cron")
    try:
        return Cron(spelled_out(expression, tz=tz), tz, catch_up, window, kept)
    except ValueError as error:
        raise ValueError(f"cron(): expression: {error}") from error


def checked_schedule(schedule: Schedule) -> Schedule:
    """Return `schedule` as `every` or `cron` would have made it, or raise `ValueError`."""
    catch_up, window, payload = schedule.catch_up, schedule.window, schedule.payload
    match schedule:
        case Every(interval_s=interval_s):
            return every(interval_s, catch_up=catch_up, window=window, payload=payload)
        case Cron(expression=expression, tz=tz):
            return cron(expression, tz=tz, catch_up=catch_up, window=window, payload=payload)
        case _:
            assert_never(schedule)


def spec_of(schedule: Schedule) -> str:
    """Return the text that identifies a schedule and its timer; the same for equal ticks."""
    mark = mark_of(schedule.payload)
    match schedule:
        case Every(interval_s=interval_s):
            return f"every {interval_s}s{mark}"  # guard: schedule-timer-has-payload
        case Cron(expression=expression, tz=tz):
            return f"cron {expression} {tz}{mark}"
        case _:
            assert_never(schedule)


def mark_of(payload: JsonObject) -> str:
    """Return what tells a schedule with `payload` from others, ` #` and a digest; or nothing."""
    if not payload:
        return ""
    return f"{_MARK}{hashlib.blake2b(raw(payload), digest_size=_MARK_BYTES).hexdigest()}"


def tick_timer_key(expectation: str, spec: str) -> str:
    """Return the key of the timer of the schedule with the text `spec`."""
    return f"{expectation}/{spec}"


def schedule_in(spec: str) -> Schedule | None:
    """Return one that ticks as the schedule with the text `spec` does, without its payload.

    None if this version cannot read it.
    """
    plain, _, _ = spec.partition(_MARK)
    kind, _, said = plain.partition(" ")
    expression, _, tz = said.rpartition(" ")
    try:
        schedule = every(said) if kind == "every" else cron(expression, tz=tz)
    except ValueError:
        return None
    return schedule if spec_of(schedule) == plain else None  # guard: payload-schedule-armable


def next_tick(schedule: Schedule, after: datetime) -> datetime:
    """Return the first tick later than `after`, in UTC; `ValueError`: `cron` made none such."""
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

    `tick` is the oldest unanswered one. If `now` is before it, clocks differ, and it counts as now.
    """
    tick, now = tick.astimezone(UTC), max(now, tick).astimezone(UTC)
    if schedule.catch_up == "all":
        return _in_turn(schedule, tick, now)
    newest = _newest(schedule, tick, now)
    is_missed = (now - newest).total_seconds() > TICK_LATE_S
    # guard: missed-tick-skipped
    opens = () if is_missed and schedule.catch_up == "skip" else (newest,)
    return Catch(opens, next_tick(schedule, newest))


def tick_key(schedule: Schedule, tick: datetime) -> str:
    """Return the dedupe key of the episode that `tick` opens."""
    tick, mark = tick.astimezone(UTC), mark_of(schedule.payload)
    if schedule.window is None:
        return f"schedule:{_iso(tick)}{mark}"  # guard: tick-cause-has-payload
    start = tick - (tick - FIRST_WINDOW) % WINDOWS[schedule.window]
    return f"schedule:{_iso(start)}@{schedule.window}{mark}"


def _in_turn(schedule: Schedule, tick: datetime, now: datetime) -> Catch:
    opens, following = [tick], next_tick(schedule, tick)
    while following <= now and len(opens) < TICKS_MAX:
        opens.append(following)
        following = next_tick(schedule, following)
    return Catch(tuple(opens), following)


def _newest(schedule: Schedule, tick: datetime, now: datetime) -> datetime:
    """Return the newest tick up to `now`, by binary search: 27 steps cover a century.

    Walking backwards with cronsim would not see the first pass of a repeated hour from the second.
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
    at = at.astimezone(UTC)
    return at - (at - FIRST_WINDOW) % timedelta(seconds=schedule.interval_s)


def _checked_payload(payload: object, *, of: str) -> JsonObject:
    """Return a payload as JSON has it, whatever becomes of the object that was given."""
    if payload is None:
        return {}
    if not isinstance(payload, Mapping):
        raise ValueError(f"{of}(): payload: {payload!r} is not a dict")  # noqa: TRY004 - as for its value
    try:
        kept = encode(dict(payload), what="payload", bytes_max=TICK_PAYLOAD_BYTES_MAX)
    except Unencodable as error:
        raise ValueError(f"{of}(): {error}") from error
    made: JsonObject = unraw(kept)
    return made


def _problem_of_options(catch_up: object, window: object) -> str | None:
    if catch_up not in CATCH_UPS:
        return f"catch_up: {catch_up!r} is not one of {', '.join(CATCH_UPS)}"
    if window is not None and window not in tuple(WINDOWS):
        return f"window: {window!r} is not one of {', '.join(WINDOWS)}"
    return None


def _iso(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


class EventSource(msgspec.Struct, frozen=True):
    """Fires on events whose payload fits a filter: domain events, or those of a foreign stream."""

    names: tuple[str, ...]
    filter: Filter = {}
    foreign: ForeignStream | None = None
    """The foreign stream; None: the stack's own domain events."""

    def watches(self, happened: DomainEvent) -> bool:
        """Return whether `happened` is one of its events, filter aside."""
        if self.foreign is None:
            return not happened.stream and happened.name in self.names
        return self.foreign.holds(stream=happened.stream, subject=happened.name)


class ManualSource(msgspec.Struct, frozen=True):
    """Fires on request only. Every other expectation can be fired by hand, too."""


class WorkflowSource(msgspec.Struct, frozen=True):
    """Fires as a step of workflows."""


Source: TypeAlias = EventSource | Every | Cron | ManualSource | WorkflowSource

Sources: TypeAlias = tuple[Source, ...]
"""The triggers of an expectation: the first one that fits fires, once per event."""

On: TypeAlias = Source | Sequence[Source]
"""The triggers as users write them."""


def event(
    *names: str,
    filter: Mapping[str, object] | None = None,
    stream: str = "",
    subject: str = ">",
    start: FeedStart = "new",
) -> EventSource:
    """Return a trigger that fires on domain events called one of `names`, or on those of a stream.

    Args:
        names: dotted event names, such as `order.placed`. None with `stream`.
        filter: path into the payload, such as `disk.used` → the value that must be there, a list
            of allowed values, or a condition such as `gt(90)`. All must fit; an event that lacks a
            value does not fire, unless `missing()` is asked for.
        stream: an existing JetStream stream, which is only read. An event's name is the subject.
        subject: which subjects of it, such as `orders.*.placed`; by default all.
        start: where a new actor starts reading: `"new"`, the default; `"all"` with the oldest; a
            time with a zone; or a sequence.

    Raises `ValueError` if there is no valid name, or filter or stream cannot work.
    """
    foreign = ForeignStream(stream=stream, subject=subject, start=start) if stream else None
    if problem := problem_of_names(names, foreign, is_plain=subject == ">" and start == "new"):
        raise ValueError(f"event(): {problem}")
    try:
        for name in names:
            event_name(name)
        return EventSource(names, filter_of({} if filter is None else filter), foreign)
    except ValueError as error:
        raise ValueError(f"event(): {error}") from error


def problem_of_names(
    names: Sequence[object], foreign: ForeignStream | None, *, is_plain: bool
) -> str | None:
    """Return why an event trigger cannot have these `names` and that stream, or None."""
    if foreign is not None:
        if names:
            return "name events, or a stream with a subject, not both"
        return _problem_of_texts(foreign) or problem_of_feed(foreign)
    if not is_plain:
        return "subject= and start= need stream=, the name of a JetStream stream"
    if not names:
        return "name at least one domain event"
    strange = next((name for name in names if not isinstance(name, str)), None)
    return None if strange is None else f"{strange!r} is not the name of a domain event"


def _problem_of_texts(foreign: ForeignStream) -> str | None:
    given: tuple[tuple[str, object], ...] = (
        ("stream", foreign.stream),
        ("subject", foreign.subject),
    )
    for field, value in given:
        if not isinstance(value, str):
            return f"{field}: {value!r} is not text"
    return None


def manual() -> ManualSource:
    """Return the trigger of an expectation that fires only with `vigil fire` or `fire(…)`."""
    return ManualSource()


def workflow() -> WorkflowSource:
    """Return the trigger of an expectation that runs as a step of workflows."""
    return WorkflowSource()


_CALLS: Final[Sequence[tuple[object, str]]] = (
    (event, "event('some.name')"),
    (every, "every('15m')"),
    (cron, "cron('@hourly')"),
    (manual, "manual()"),
    (workflow, "workflow()"),
)
"""The functions that make triggers, as users call them."""


def sources_of(on: On) -> Sources:
    """Return the triggers in `on`, in order, each checked; or raise `ValueError` or `TypeError`."""
    given: object = on
    listed = given if isinstance(given, list | tuple) else [given]
    if not 1 <= len(listed) <= SOURCES_MAX:
        raise ValueError(f"{len(listed)} triggers; give 1 to {SOURCES_MAX}")
    return tuple(map(_checked, listed))


def _checked(source: object) -> Source:
    match source:
        case EventSource(names=names, filter=filter_, foreign=None):
            return event(*names, filter=filter_)
        case EventSource(names=names, filter=filter_, foreign=ForeignStream() as foreign):
            return event(
                *names,
                filter=filter_,
                stream=foreign.stream,
                subject=foreign.subject,
                start=foreign.start,
            )
        case Every() | Cron():
            return checked_schedule(source)
        case ManualSource() | WorkflowSource():
            return source
        case _ if example := next((text for made, text in _CALLS if made is source), ""):
            raise ValueError(f"a trigger must be called, as in {example}")
        case _:
            raise ValueError(f"{source!r} is not a trigger; use event('some.name')")


def schedules_of(sources: Sources) -> tuple[Schedule, ...]:
    """Return the schedules among `sources`."""
    return tuple(source for source in sources if isinstance(source, Every | Cron))


def trigger_of(happened: DomainEvent, *, subject_key: str, coalesced: int = 0) -> EventTrigger:
    """Return the trigger for an event; `coalesced` counts those that a debounce replaced by it."""
    return EventTrigger(
        event_id=happened.id,
        event_type=happened.name,
        payload=happened.payload,
        entity_id=entity_id(happened.payload, subject_key),
        hops=happened.hops,
        cloud=happened.cloud,
        stream=happened.stream,
        coalesced=coalesced,
    )


def entity_id(payload: JsonObject, subject_key: str) -> str:
    """Return the payload's value at the path `subject_key` as text; empty if there is none."""
    return text_at(payload, subject_key)[:ENTITY_CHARS_MAX]

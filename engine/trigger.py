"""What wakes an expectation, as it is declared: events, schedules, people and workflows.

Pure. Whether an event fires is for `engine.gating` to rule; when a schedule does, for
`engine.schedule`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from engine.filters import Filter, filter_of
from engine.paths import ABSENT, value_at
from engine.schedule import Cron, Every, Schedule, checked_schedule, cron, every
from streams.feeds import Feed, FeedStart, problem_of_feed
from streams.json import JsonObject
from streams.tokens import event_name
from streams.triggers import EventTrigger
from streams.world import DomainEvent

ENTITY_CHARS_MAX: Final = 512
"""Most of a subject key's value that becomes the episode's subject."""

SOURCES_MAX: Final = 64
"""Most triggers of one expectation."""


class EventSource(msgspec.Struct, frozen=True):
    """Fires on events whose payload fits a filter: domain events by name, or those of a feed."""

    names: tuple[str, ...]
    filter: Filter = {}
    feed: Feed | None = None
    """Another stream to listen to; without one, the stack's own domain events."""

    def watches(self, happened: DomainEvent) -> bool:
        """Return whether `happened` is one that it listens to, whatever it says."""
        if self.feed is None:
            return not happened.stream and happened.name in self.names
        return self.feed.holds(stream=happened.stream, subject=happened.name)


class ManualSource(msgspec.Struct, frozen=True):
    """Fires when a person or a program asks for it; so does every other expectation."""


class WorkflowSource(msgspec.Struct, frozen=True):
    """Fires as a step of workflows."""


Source: TypeAlias = EventSource | Every | Cron | ManualSource | WorkflowSource

Sources: TypeAlias = tuple[Source, ...]
"""What an expectation listens to: the first one that fits fires, once per event."""

On: TypeAlias = Source | Sequence[Source]
"""The same as it is declared."""


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
        filter: path into the payload, such as `disk.used` (see `engine.paths`) → the value that
            must be there, a list of allowed values, or a condition such as `gt(90)`. All must
            fit; an event that lacks a value does not fire, unless `missing()` is asked for.
        stream: a JetStream stream that exists already, and is only read. Its messages are events
            by the name of their subject.
        subject: which of them, such as `orders.*.placed`; by default all.
        start: where a new actor begins: `"new"` with what comes from then on, the default;
            `"all"` with the oldest; a time with a zone; or a sequence.

    Raises:
        ValueError: no name, or one that is not a dotted name; or filter or stream cannot work.
    """
    feed = Feed(stream=stream, subject=subject, start=start) if stream else None
    if problem := problem_of_names(names, feed, is_plain=subject == ">" and start == "new"):
        raise ValueError(f"event(): {problem}")
    try:
        for name in names:
            event_name(name)
        return EventSource(names, filter_of({} if filter is None else filter), feed)
    except ValueError as error:
        raise ValueError(f"event(): {error}") from error


def problem_of_names(names: Sequence[object], feed: Feed | None, *, is_plain: bool) -> str | None:
    """Return why an event trigger cannot listen to these `names` and that `feed`, or None."""
    if feed is not None:
        if names:
            return "name events, or a stream with a subject, not both"
        return _problem_of_texts(feed) or problem_of_feed(feed)
    if not is_plain:
        return "subject= and start= need stream=, the name of a JetStream stream"
    if not names:
        return "name at least one domain event"
    strange = next((name for name in names if not isinstance(name, str)), None)
    return None if strange is None else f"{strange!r} is not the name of a domain event"


def _problem_of_texts(feed: Feed) -> str | None:
    given: tuple[tuple[str, object], ...] = (("stream", feed.stream), ("subject", feed.subject))
    for field, value in given:
        if not isinstance(value, str):
            return f"{field}: {value!r} is not text"
    return None


def manual() -> ManualSource:
    """Return the trigger of what only people and programs fire, with `vigil fire` or `fire(…)`."""
    return ManualSource()


def workflow() -> WorkflowSource:
    """Return the trigger of what runs as a step of workflows."""
    return WorkflowSource()


_CALLS: Final[Sequence[tuple[object, str]]] = (
    (event, "event('some.name')"),
    (every, "every('15m')"),
    (cron, "cron('@hourly')"),
    (manual, "manual()"),
    (workflow, "workflow()"),
)
"""What makes triggers, and how it is called."""


def sources_of(on: On) -> Sources:
    """Return the sources that `on` means, in order, each checked.

    Raises:
        ValueError: it is no trigger and no list of triggers, or one of them cannot work.
        TypeError: the names of one are no names at all.
    """
    given: object = on
    listed = given if isinstance(given, list | tuple) else [given]
    if not 1 <= len(listed) <= SOURCES_MAX:
        raise ValueError(f"{len(listed)} triggers; give 1 to {SOURCES_MAX}")
    return tuple(map(_checked, listed))


def _checked(source: object) -> Source:
    match source:
        case EventSource(names=names, filter=filter_, feed=None):
            return event(*names, filter=filter_)
        case EventSource(names=names, filter=filter_, feed=Feed() as feed):
            return event(
                *names,
                filter=filter_,
                stream=feed.stream,
                subject=feed.subject,
                start=feed.start,
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
    """Return those of `sources` that fire by time."""
    return tuple(source for source in sources if isinstance(source, Every | Cron))


def trigger_of(happened: DomainEvent, *, subject_key: str, coalesced: int = 0) -> EventTrigger:
    """Return what an episode gets to know of the event that fired it.

    Args:
        happened: the event.
        subject_key: path to what it is about.
        coalesced: how many earlier events it stands for.
    """
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


def text_at(payload: JsonObject, path: str) -> str:
    """Return the payload's value at `path` as text of any length; empty if there is none."""
    value = value_at(payload, path) if path else ABSENT
    if value is ABSENT or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

"""The streams of events that a dispatcher follows, and how far it has come in each.

The cursor of one's own events is kept by name, so that a version of the actor that watches more
names than the one that dispatches misses nothing when its turn comes to dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

from engine.runtime.crew import Crew
from streams.delivery import Unreadable
from streams.subjects import Stack
from streams.world import EventFollower, Feed, Followed


@dataclass(frozen=True, kw_only=True)
class Track:
    """One stream, as far as the actor watches it."""

    queue: str
    """What it is called in metrics: `events`, or the name of a stream."""
    cursors: Mapping[str, int]
    follow: Callable[[int], AbstractAsyncContextManager[EventFollower]]
    """Begins just past a sequence."""
    name_of: Callable[[Followed], str]
    """Whose cursor counts for an event."""

    @property
    def after(self) -> int:
        """Where to begin."""
        return min(self.cursors.values())

    def is_past(self, followed: Followed) -> bool:
        """Return whether an event was ruled on before."""
        return followed.seq <= self.cursors.get(self.name_of(followed), 0)

    def cursors_at(self, seq: int) -> dict[str, int]:
        """Return the cursors once everything up to `seq` is ruled on."""
        return dict.fromkeys(self.cursors, seq)


def tracks(crew: Crew, cursors: Mapping[str, int]) -> list[Track]:
    """Return what is to be followed for an actor, from `cursors`, which name all that it watches."""
    world, names = crew.ports.world, crew.actor.event_names()
    found: list[Track] = []
    if names:
        found.append(
            Track(
                queue="events",
                cursors={name: cursors[name] for name in names},
                follow=lambda after: world.follow(names, after=after),
                name_of=partial(_name_of, crew.ports.stack),
            )
        )
    for feed in crew.actor.feeds():
        name = feed_cursor(feed)
        found.append(
            Track(
                queue=feed.stream,
                cursors={name: cursors[name]},
                follow=partial(_follow_feed, crew, feed),
                name_of=lambda _, name=name: name,
            )
        )
    return found


async def missing_cursors(crew: Crew, cursors: Mapping[str, int]) -> dict[str, int]:
    """Return where to begin with what the actor watches and `cursors` do not name.

    That is where its gates left off if it had any, else at what comes from now on, or where a feed
    says.

    Raises:
        Unavailable: the log is away, or there is no such stream.
    """
    missing: dict[str, int] = {}
    names = crew.actor.event_names() - cursors.keys()
    if names:
        missing |= dict.fromkeys(sorted(names), await crew.ports.world.position(crew.actor.id))
    for feed in crew.actor.feeds():
        if feed_cursor(feed) not in cursors:
            position = await crew.ports.world.feed_position(crew.actor.id, feed)
            missing[feed_cursor(feed)] = position
    return missing


def feed_cursor(feed: Feed) -> str:
    """Return the name of a feed's cursor."""
    return f"{feed.stream}/{feed.subject}"


def _name_of(stack: Stack, followed: Followed) -> str:
    content = followed.content
    if isinstance(content, Unreadable):
        return stack.event_name_of(content.subject)
    return content.name


def _follow_feed(crew: Crew, feed: Feed, after: int) -> AbstractAsyncContextManager[EventFollower]:
    return crew.ports.world.follow_feed(feed, after=after)

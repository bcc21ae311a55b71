"""The streams of events that a dispatcher follows, and how far it has come in each.

The cursor of one's own events is kept by name, so that a version of the actor that watches more
names than the one that dispatches misses nothing when its turn comes to dispatch.

What whoever dispatched before a stint may have done with an event of its backlog.

They may have ruled on any of it: a lane also takes over from gates, which share events among many
nodes, and may be through with one and not with an earlier one. But they opened episodes in the
order of the events, and wrote down how far they were before they opened the next ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from engine.lanes.mailbox import ITEMS_MAX, LAG_MAX
from engine.lanes.store import feed_cursor
from engine.runtime.context import ActorContext
from engine.triggers.events import find_position, position_unseen
from streams.model.foreign_streams import ForeignStream
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import EventFollower, Followed
from streams.subjects import Stack


@dataclass(frozen=True, kw_only=True)
class Cursor:
    """One stream, as far as the actor watches it."""

    queue: str
    """What it is called in metrics: `events`, or the name of a stream."""
    cursors: Mapping[str, int]
    follow: Callable[[int], AbstractAsyncContextManager[EventFollower]]
    """Begins just past a sequence."""
    newest: Callable[[], Awaitable[int]]
    """Returns the sequence that the stream goes up to now."""
    name_of: Callable[[Followed], str]
    """Whose cursor counts for an event."""
    fan_out: int
    """Most episodes that one event can ask for."""

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


def own_track(context: ActorContext, cursors: Mapping[str, int]) -> Cursor | None:
    """Return what is to be followed of the stack's own events; None: the actor watches none.

    `cursors` name all that it watches.
    """
    domain_events, names = context.ports.domain_events, context.actor.event_names()
    expectations = context.actor.expectations.values()
    if not names:
        return None
    return Cursor(
        queue="events",
        cursors={name: cursors[name] for name in names},
        follow=lambda after: domain_events.follow(names, after=after),
        newest=domain_events.newest,
        name_of=partial(_name_of, context.ports.stack),
        fan_out=max(Counter(name for each in expectations for name in each.event_names).values()),
    )


def feed_track(context: ActorContext, foreign: ForeignStream, *, after: int) -> Cursor:
    """Return what is to be followed of a stream of others, from just past `after`."""
    name, expectations = feed_cursor(foreign), context.actor.expectations.values()
    return Cursor(
        queue=foreign.stream,
        cursors={name: after},
        follow=partial(_follow_feed, context, foreign),
        newest=partial(context.ports.domain_events.newest, foreign),
        name_of=partial(_the_only, name),
        fan_out=sum(
            foreign.stream in {one.stream for one in each.foreign_streams} for each in expectations
        ),
    )


async def missing_cursors(context: ActorContext, cursors: Mapping[str, int]) -> dict[str, int]:
    """Return where to begin with what the actor watches and `cursors` do not name.

    That is where its gates left off if it had any, else at what comes from now on, or where a feed
    says. Of a stream that does not exist that may not be known yet.

    Raises:
        Unavailable: the log is away.
    """
    missing: dict[str, int] = {}
    names = context.actor.event_names() - cursors.keys()
    if names:
        missing |= dict.fromkeys(
            sorted(names), await context.ports.domain_events.position(context.actor.id)
        )
    for foreign in context.actor.foreign_streams():
        if feed_cursor(foreign) not in cursors:
            position = await find_position(context, foreign)
            begins_after = position_unseen(foreign) if position is None else position
            if begins_after is not None:
                missing[feed_cursor(foreign)] = begins_after
    return missing


def _name_of(stack: Stack, followed: Followed) -> str:
    content = followed.content
    if isinstance(content, Unreadable):
        return stack.event_name_of(content.subject)
    return content.name


def _the_only(name: str, _: Followed) -> str:
    return name


def _follow_feed(
    context: ActorContext, foreign: ForeignStream, after: int
) -> AbstractAsyncContextManager[EventFollower]:
    return context.ports.domain_events.follow_feed(foreign, after=after)


OPENED_MAX: Final = LAG_MAX + ITEMS_MAX
"""Events past a cursor of which a dispatcher may have opened some: those that it passed without
writing that down, and those that it decided on next. What waited behind was only ruled on."""


@dataclass(frozen=True)
class ReplayWindow:
    """Whoever followed `track` before, as far as anybody can tell."""

    cursor: Cursor
    until: int
    """The sequence that its stream went up to when the stint began."""
    _read: Counter[str] = field(default_factory=Counter)
    """Name of a cursor → events past it."""

    def may_have_ruled_on(self, followed: Followed) -> bool:
        """Return whether an event was there before the stint began."""
        return followed.seq <= self.until

    def may_have_opened(self, followed: Followed) -> bool:
        """Return whether an episode that was opened for an event may still be on its way.

        To be asked for each event past its cursor, once and in order.
        """
        name = self.cursor.name_of(followed)
        self._read[name] += 1
        return self._read[name] <= OPENED_MAX and self.may_have_ruled_on(followed)

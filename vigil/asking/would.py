"""Runs changed rules over the events that a stack has kept. It only reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from engine.operations.events.would_fire import Replay
from streams.clock import Clock
from streams.ports.all import Ports
from streams.ports.domain_events import DomainEvent

PROGRESS_EVENTS: Final = 20_000
"""Events between two lines that say how far the reading has come."""


@dataclass(frozen=True, kw_only=True)
class EventsReplayed:
    """What the rules would have done, and with what."""

    replay: Replay
    events: int
    """How many were read."""
    unreadable: int
    """Messages among them that are no events."""
    until: datetime | None
    """When the newest of them was stored; None: there was none."""
    is_whole: bool
    """Whether those were all that there are."""


async def replayed(
    ports: Ports,
    replay: Replay,
    *,
    since: datetime,
    limit: int,
    clock: Clock,
    say: Callable[[str], None],
) -> EventsReplayed:
    """Give `replay` the events since a time, oldest first, and at most `limit` of them."""
    events = unreadable = after = 0
    told, newest = PROGRESS_EVENTS, None
    is_whole = False
    while events < limit and not is_whole:
        page = (await ports.domain_events.page(after=after, since=since))[: limit - events]
        is_whole = not page
        for each in page:
            after, events = each.seq, events + 1
            if isinstance(each, DomainEvent):
                replay.take(each)
                newest = each.at
            else:
                unreadable += 1
        if events >= told and newest is not None:
            say(f"read {events:,} events, up to {newest:%Y-%m-%d %H:%M:%S} UTC")
            told = events + PROGRESS_EVENTS
    replay.end(clock.now() if is_whole or newest is None else newest)
    return EventsReplayed(
        replay=replay, events=events, unreadable=unreadable, until=newest, is_whole=is_whole
    )

"""What events would do: those that are kept, by changed rules, or one by those of now.

It only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from engine.operations.events.would_event import would_event
from engine.operations.events.would_fire import Replay
from engine.operations.events.would_rule import WouldVerdict
from streams.clock import Clock
from streams.ports.all import Ports
from streams.ports.domain_events import DomainEvent
from vigil.asking.listening import why_nobody_listens
from vigil.asking.stack import read_stack, waking_obstacle

PROGRESS_EVENTS: Final = 20_000
"""Events between two lines that say how far the reading has come."""


class WouldVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """What an event would do if it happened now."""

    id: str
    """The id by which it was looked at: samples and equal causes depend on it."""
    verdicts: Sequence[WouldVerdict]
    """Of each expectation that watches it, by actor and expectation."""
    why_none: str = ""
    """Why none does, for people."""


async def would_now(ports: Ports, event: DomainEvent, *, clock: Clock) -> WouldVerdicts:
    """Return what an event would do if it happened now: by the rules, and who runs."""
    found = await would_event(ports, event, clock=clock)
    seen = await read_stack(ports)
    why_none = ""
    if not found:
        why_none = await why_nobody_listens(ports, event.name) or "no node is up that listens to it"
    return WouldVerdicts(
        id=event.id,
        verdicts=[_if_woken(each, waking_obstacle(seen, each.actor)) for each in found],
        why_none=why_none,
    )


def _if_woken(verdict: WouldVerdict, obstacle: str) -> WouldVerdict:
    """Return a verdict; of what would fire, with what keeps its actor from it."""
    if verdict.outcome != "fires" or not obstacle:  # guard: paused-actor-would-wait
        return verdict
    return msgspec.structs.replace(verdict, outcome="waits", why=f"{verdict.why}, but {obstacle}")


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

"""Arms the timer that calls a node to a waiting episode when something about it is due.

There is one timer per episode, and several writers may arm it at the same time. So it is only ever
moved to an earlier time: a node that is called too early finds nothing due and arms it again, and
no node comes too late.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Protocol

import structlog

from streams.errors import TimerConflict, Unavailable, UnreadableEvent
from streams.ports.all import Ports
from streams.ports.timers import PendingTimer, Timer
from streams.tracing import traceparent

ATTEND: Final = "attend"
"""Purpose of the timer. The key is the episode."""


def attend_timer(actor: str, episode_id: str) -> Timer:
    """Return the timer that calls a node of `actor` to a waiting episode."""
    return Timer(actor=actor, purpose=ATTEND, key=episode_id, payload={})


TRIES_MAX: Final = 8
"""Most attempts to arm a timer that others arm at the same time; each moves it forward."""

log = structlog.get_logger("vigil.attendance")


class EpisodeRef(Protocol):
    """Anything that names an episode, such as its opening."""

    @property
    def actor_id(self) -> str:
        """The episode's actor."""

    @property
    def episode_id(self) -> str:
        """The episode."""


async def call_by(ports: Ports, episode: EpisodeRef, at: datetime) -> None:
    """Have a node look at an episode at `at` or earlier."""
    timer = attend_timer(episode.actor_id, episode.episode_id)
    for _ in range(TRIES_MAX):
        pending = await _pending(ports, timer)
        if pending is not None and pending.due_at <= at:
            return
        revision = pending.revision if pending else 0
        try:
            await ports.timers.arm(timer, at=at, expecting=revision, trace=traceparent())
        except TimerConflict:
            continue
        return
    raise Unavailable(episode.episode_id, detail=f"its timer moved {TRIES_MAX} times meanwhile")


async def _pending(ports: Ports, timer: Timer) -> PendingTimer | None:
    """Return the armed timer; one that this version cannot read is replaced."""
    try:
        return await ports.timers.pending(timer.actor, timer.purpose, timer.key)
    except UnreadableEvent as error:
        log.warning("a timer of a newer version is replaced", key=timer.key, error=str(error))
        await ports.timers.cancel(timer.actor, timer.purpose, timer.key)
        return None

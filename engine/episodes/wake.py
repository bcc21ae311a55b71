"""Calls a node to an episode that waits, in time for whatever is due about it next.

One timer of the episode does that, and several may arm it: who had it wait, who carries its
outputs, and who looks after either. Each may have stood still since they looked, while another
armed it for what is due now. So it is only ever moved to sooner: a node that is called too early
finds nothing due and arms it anew, and nobody comes too late.
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
"""Purpose of the timer that calls a node to an episode that waits. The key is the episode."""


def attend_timer(actor: str, episode_id: str) -> Timer:
    """Return the timer that calls a node of `actor` to an episode that waits."""
    return Timer(actor=actor, purpose=ATTEND, key=episode_id, payload={})


TRIES_MAX: Final = 8
"""Most tries to arm a timer that others arm at the same time. Each of them moves it to sooner."""

log = structlog.get_logger("vigil.attendance")


class EpisodeRef(Protocol):
    """What names an episode, such as its opening."""

    @property
    def actor_id(self) -> str:
        """The episode's actor."""

    @property
    def episode_id(self) -> str:
        """The episode."""


async def call_by(ports: Ports, episode: EpisodeRef, at: datetime) -> None:
    """Have a node attend an episode at `at`, or sooner if that is so already."""
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
    """Return what is armed. What this version cannot read gives way, for its time is unknown."""
    try:
        return await ports.timers.pending(timer.actor, timer.purpose, timer.key)
    except UnreadableEvent as error:
        log.warning("a timer of a newer version is replaced", key=timer.key, error=str(error))
        await ports.timers.cancel(timer.actor, timer.purpose, timer.key)
        return None

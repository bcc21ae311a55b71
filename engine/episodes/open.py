"""Opens episodes, asks for their place in the actor's lane, and arms the timer of a waiting one.

Opening is the first commit of the journal. Its id comes from the episode, whose id comes from its
cause, so opening again changes nothing. `place` and `left` are timers that fire at once, for the
lane's scheduler. A waiting episode has one timer, which several writers may arm at the same time:
it is only ever moved to an earlier time, so no node comes too late; one that is called too early
arms it again.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Protocol

import msgspec
import structlog
from msgspec.structs import replace

from engine.episodes.episode import Status, fold
from engine.episodes.latest_ends import adapted, ends_in
from engine.runtime.store import append_first
from streams.clock import us_of
from streams.errors import TimerConflict, Unavailable, UnreadableEvent
from streams.keys import ends_key
from streams.model.events import EpisodeEvent, EpisodeOpened
from streams.ports.all import Ports
from streams.ports.bucket import Bucket
from streams.ports.log import Commit, Recorded
from streams.ports.timers import PendingTimer, Timer
from streams.tracing import traceparent

LEFT: Final = "left"
"""Purpose of the timer by which an episode gives its place back. The key is the episode."""

FOR_NOW: Final = "for_now"
"""In its payload: the episode continues later, and will need a place again."""

IF_THERE: Final = "if_there"
"""In the payload of `PLACE`: the episode may never have been opened."""

PLACE: Final = "place"
"""Purpose of the timer by which an open episode asks for a place. The key is the episode."""


ATTEND: Final = "attend"
"""Purpose of the timer of a waiting episode. The key is the episode."""


TRIES_MAX: Final = 8
"""Most attempts to arm a timer that others arm at the same time; each moves it forward."""

log = structlog.get_logger("vigil.episodes")


def left(actor: str, episode_id: str) -> Timer:
    """Return the timer that informs the lane of `actor` of an episode's end."""
    return Timer(actor=actor, purpose=LEFT, key=episode_id, payload={})


def left_for_now(actor: str, episode_id: str) -> Timer:
    """Return the timer by which a waiting episode gives its place back.

    It may have its answer when the scheduler gets this, so the scheduler checks.
    """
    return Timer(actor=actor, purpose=LEFT, key=episode_id, payload={FOR_NOW: True})


def place(actor: str, episode_id: str) -> Timer:
    """Return the timer that asks the lane of `actor` for a place."""
    return Timer(actor=actor, purpose=PLACE, key=episode_id, payload={})


def place_if_there(actor: str, episode_id: str) -> Timer:
    """Return the timer that asks for a place for an episode that may never have been opened."""
    return Timer(actor=actor, purpose=PLACE, key=episode_id, payload={IF_THERE: True})


def without_payload(opened: EpisodeOpened) -> EpisodeOpened:
    """Return an opening without the payload of its trigger."""
    trigger = opened.trigger
    fields = trigger.__struct_fields__
    # guard: state-without-payload
    return replace(opened, trigger=replace(trigger, payload={})) if "payload" in fields else opened


def untouched(newest: Recorded | None) -> EpisodeOpened | None:
    """Return the opening of an episode that no node has begun, by its newest commit; else None."""
    if newest is None:
        return None
    episode = fold((newest,))
    is_new = episode.status is Status.QUEUED and not episode.attempts
    return episode.opened if is_new else None


async def with_budget(gates: Bucket, opened: EpisodeOpened) -> EpisodeOpened:
    """Return an opening with the budget that follows what the latest episodes used, if one does.

    It stays as it is, too, where only a newer version can read what they used.
    """
    if opened.adaptive_budget is None:
        return opened
    entry = await gates.get(ends_key(opened.actor_id, opened.expectation_id))
    try:
        used = ends_in(entry.value if entry is not None else None).used
    except msgspec.ValidationError:  # guard: newer-count-lets-open
        return opened
    return replace(opened, budget=adapted(opened.budget, opened.adaptive_budget, used))


async def open_episode(ports: Ports, opened: EpisodeOpened, *, at: datetime, trace: str) -> bool:
    """Open an episode; return whether it was new. It may be `TooLarge`.

    The reactor sends the command to start it, unless its lane does.
    """
    episode_id = opened.episode_id
    # Without an answer, the log looks for this id: what somebody opened before must not have it.
    id_ = f"open.{episode_id}.{opened.opened_by}.{us_of(at):x}"  # guard: earlier-opening-not-own
    commit = Commit(id=id_, at=at, events=(opened,), trace=trace)
    return await append_first(ports.log, ports.stack.episode(episode_id), commit)


async def end_unopened(ports: Ports, life: tuple[EpisodeEvent, ...], *, at: datetime) -> bool:
    """Open and end an episode in one commit, its whole `life`; return False if it was open."""
    opened = life[0]
    assert isinstance(opened, EpisodeOpened), "a life begins so"
    id_ = opened.episode_id
    commit = Commit(id=f"unopened.{id_}", at=at, events=life, trace=traceparent())
    return await append_first(ports.log, ports.stack.episode(id_), commit)


def attend_timer(actor: str, episode_id: str) -> Timer:
    """Return the timer that calls a node of `actor` to a waiting episode."""
    return Timer(actor=actor, purpose=ATTEND, key=episode_id, payload={})


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
        if pending is not None and pending.due_at <= at:  # guard: node-called-by-its-time
            return
        revision = pending.revision if pending else 0
        try:
            # guard: sooner-call-stands
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

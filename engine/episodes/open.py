"""How an episode asks for its turn and gives it back, where the episodes of an actor take turns.

Whoever ends an episode, or has been called to one whose turn has not come, tells the actor's
dispatcher: by a timer that is said at once, into the queue of what is due for the actor. Both may
be said again and again: an episode that is known is not placed twice, and one that is not known
leaves nothing. Pure.

Opens episodes: the first commit of the journal, then the call for a node to start.

Both are named after the episode, whose id comes from its cause. So opening again completes
what a crash left half done, and otherwise changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from engine.episodes.episode import Status, fold
from streams.errors import VersionConflict
from streams.model.commands import Start
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports
from streams.ports.log import START, Commit, Recorded
from streams.ports.timers import Timer
from streams.tracing import traceparent

LEFT: Final = "left"
"""Purpose of what says that an episode needs its place no more. The key is the episode."""

FOR_NOW: Final = "for_now"
"""In the payload of what says so: the episode goes on later, and will want a place again."""

PLACE: Final = "place"
"""Purpose of what says that an episode is open and has no place. The key is the episode."""


def left(actor: str, episode_id: str) -> Timer:
    """Return what tells the dispatcher of `actor` that an episode has ended."""
    return Timer(actor=actor, purpose=LEFT, key=episode_id, payload={})


def left_for_now(actor: str, episode_id: str) -> Timer:
    """Return what tells the dispatcher of `actor` that an episode waits for something else.

    It may be over with that when the dispatcher hears of it, so it is looked at then.
    """
    return Timer(actor=actor, purpose=LEFT, key=episode_id, payload={FOR_NOW: True})


def place(actor: str, episode_id: str) -> Timer:
    """Return what asks the dispatcher of `actor` for a place."""
    return Timer(actor=actor, purpose=PLACE, key=episode_id, payload={})


def untouched(newest: Recorded | None) -> EpisodeOpened | None:
    """Return the opening of an episode that nobody has begun, by its newest commit; else None."""
    if newest is None:
        return None
    episode = fold((newest,))
    is_new = episode.status is Status.QUEUED and not episode.attempts
    return episode.opened if is_new else None


async def record_opening(ports: Ports, opened: EpisodeOpened, *, at: datetime, trace: str) -> bool:
    """Open an episode and call nobody to it; return whether it had not been opened before.

    Raises:
        TooLarge, Unwritable: the journal cannot keep the trigger. Nothing was opened.
    """
    episode_id = opened.episode_id
    commit = Commit(id=f"open.{episode_id}", at=at, events=(opened,), trace=trace)
    try:
        await ports.log.append(ports.stack.episode(episode_id), commit, after=START)
    except VersionConflict:
        return False
    return True


async def open_episode(ports: Ports, opened: EpisodeOpened, *, at: datetime) -> bool:
    """Open an episode and call for its start; return whether it had not been opened before.

    Raises:
        TooLarge, Unwritable: the journal cannot keep the trigger. Nothing was opened.
    """
    episode_id, trace = opened.episode_id, traceparent()
    is_new = await record_opening(ports, opened, at=at, trace=trace)
    # Of one that is not new the start may still be missing.
    start = Start(actor_id=opened.actor_id, episode_id=episode_id)
    await ports.commands.send(start, id=f"start.{episode_id}", trace=trace)
    return is_new

"""How an episode asks for its turn and gives it back, where the episodes of an actor take turns.

Whoever ends an episode, or has been called to one whose turn has not come, tells the actor's
dispatcher: by a timer that is said at once, into the queue of what is due for the actor. Both may
be said again and again: an episode that is known is not placed twice, and one that is not known
leaves nothing. Pure.
"""

from __future__ import annotations

from typing import Final

from engine.episode import Status, fold
from engine.expectation import Expectation
from engine.lanes import Wanted
from engine.trigger import text_at
from streams.events import EpisodeOpened
from streams.log import Recorded
from streams.timers import Timer

LEFT: Final = "left"
"""Purpose of what says that an episode needs its place no more. The key is the episode."""

PLACE: Final = "place"
"""Purpose of what says that an episode is open and has no place. The key is the episode."""


def left(actor: str, episode_id: str) -> Timer:
    """Return what tells the dispatcher of `actor` that an episode has ended."""
    return Timer(actor=actor, purpose=LEFT, key=episode_id, payload={})


def place(actor: str, episode_id: str) -> Timer:
    """Return what asks the dispatcher of `actor` for a place."""
    return Timer(actor=actor, purpose=PLACE, key=episode_id, payload={})


def wanted_of(opened: EpisodeOpened, expectation: Expectation) -> Wanted:
    """Return the place that an episode wants, of the expectation that it is for."""
    key = text_at(opened.trigger.payload, expectation.concurrency_key)
    return Wanted(
        episode_id=opened.episode_id,
        expectation_id=opened.expectation_id,
        priority=opened.priority,
        key=key,
        key_limit=expectation.concurrency if key else 0,
        start_by=opened.start_by,
    )


def untouched(newest: Recorded | None) -> EpisodeOpened | None:
    """Return the opening of an episode that nobody has begun, given its newest commit; else None.

    Only such a one may wait for its turn: what has begun goes on, and what has ended is over.
    """
    if newest is None:
        return None
    episode = fold((newest,))
    is_new = episode.status is Status.QUEUED and not episode.attempts
    return episode.opened if is_new else None

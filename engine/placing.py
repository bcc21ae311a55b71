"""How an episode asks for its turn and gives it back, where the episodes of an actor take turns.

Whoever ends an episode, or has been called to one whose turn has not come, tells the actor's
dispatcher: by a timer that is said at once, into the queue of what is due for the actor. Both may
be said again and again: an episode that is known is not placed twice, and one that is not known
leaves nothing. Pure.
"""

from __future__ import annotations

from typing import Final

from engine.blocking import is_answered, step_answered
from engine.episode import fold
from engine.expectation import Expectation
from engine.lanes import Wanted
from engine.status import ENDED, WAITING, Status
from engine.trigger import text_at
from streams.events import EpisodeOpened
from streams.log import Recorded
from streams.timers import Timer

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


def wanted_of(
    opened: EpisodeOpened, expectation: Expectation, *, newest: Recorded | None = None
) -> Wanted:
    """Return the place that an episode wants, of the expectation that it is for.

    Args:
        opened: its opening.
        expectation: the one that it is for.
        newest: its newest commit, if it is open. One that has had a turn before, and has its answer
            now, is never too late to go on.
    """
    resumes, answered_step = is_answered(newest), step_answered(newest)
    key = text_at(opened.trigger.payload, expectation.concurrency_key)
    return Wanted(
        episode_id=opened.episode_id,
        expectation_id=opened.expectation_id,
        priority=opened.priority,
        key=key,
        key_limit=expectation.concurrency if key else 0,
        start_by=None if resumes else opened.start_by,
        resumes=resumes,
        answered_step=answered_step,
    )


def waits(newest: Recorded | None) -> bool:
    """Return whether an episode waits for its turn, given its newest commit.

    Nobody has begun it, or nobody has gone on with it since it had its answer. What has begun goes
    on, and what has ended is over.
    """
    return untouched(newest) is not None or is_answered(newest)


def needs_no_turn(newest: Recorded | None) -> bool:
    """Return whether an episode has ended or waits for something else, given its newest commit."""
    return newest is not None and fold((newest,)).status in {*ENDED, *WAITING}


def untouched(newest: Recorded | None) -> EpisodeOpened | None:
    """Return the opening of an episode that nobody has begun, by its newest commit; else None."""
    if newest is None:
        return None
    episode = fold((newest,))
    is_new = episode.status is Status.QUEUED and not episode.attempts
    return episode.opened if is_new else None

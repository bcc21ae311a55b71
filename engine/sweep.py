"""Whether an episode has been forgotten, and what to ask for then. Pure.

An operator's belt and braces: what a node's crash leaves is recovered by itself, from the
marker of the lapsed lease. A sweep finds what even that has missed, such as a command that
was lost with a queue that somebody emptied.
"""

from __future__ import annotations

from enum import StrEnum

from engine.episode import Episode
from engine.status import ENDED, WAITING, Status
from streams.commands import Attend, Command, Recover, Start


class Verdict(StrEnum):
    """What a sweep finds out about one episode, or has done about it."""

    RECOVERED = "recovered"
    """Nobody would have gone on with it; a node has been called to it."""
    CALLED = "called"
    """A command that calls a node to it waits already."""
    HELD = "held"
    """Some node is at it, or was until a moment ago."""
    WAITING = "waiting"
    """It waits for people or for the outside, and a timer is armed for all that is due about it."""
    ENDED = "ended"
    """There is nothing left to do; the rows do not show it yet."""
    UNREADABLE = "unreadable"
    """This version cannot read its journal, so a newer one must judge."""


def judge(episode: Episode, *, silent_s: float, stale_after_s: float) -> Verdict:
    """Return what `episode`'s journal says of it; `RECOVERED`: unless somebody is at it, do so.

    `WAITING`: unless what is to call a node back to it is missing.

    Args:
        episode: as its journal stands.
        silent_s: seconds since its last commit.
        stale_after_s: how long it may be silent.
    """
    if episode.status in ENDED or episode.status is Status.UNOPENED:
        return Verdict.ENDED
    if silent_s < stale_after_s:
        return Verdict.HELD
    return Verdict.WAITING if episode.status in WAITING else Verdict.RECOVERED


def call_for(episode: Episode) -> Command:
    """Return the command that has some node go on with `episode`, which must have been opened."""
    opened = episode.opened
    assert opened is not None, "a call for an episode that was never opened"
    if episode.status in WAITING:
        return Attend(actor_id=opened.actor_id, episode_id=opened.episode_id)
    if episode.attempts:
        return Recover(actor_id=opened.actor_id, episode_id=opened.episode_id, reason="swept")
    return Start(actor_id=opened.actor_id, episode_id=opened.episode_id)

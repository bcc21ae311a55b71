"""Episodes that are not worth beginning any more: those whose `start_by` has passed. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from engine.commands import Cancel
from engine.episode import Episode
from engine.status import Status

EXPIRED: Final = "expired"
"""Error class of an episode that was canceled because no node began with it in time."""


def expiry(episode: Episode, *, at: datetime) -> Cancel | None:
    """Return how `episode` ends if it ought to have begun before `at` and has not; else None.

    One that has begun goes on, however late: it may have changed something outside.
    """
    opened = episode.opened
    if opened is None or opened.start_by is None or at <= opened.start_by:
        return None
    if episode.status is not Status.QUEUED or episode.attempts:
        return None
    return Cancel(error_class=EXPIRED, error_detail=f"not begun by {opened.start_by.isoformat()}")

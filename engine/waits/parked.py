"""Parked episodes: the code here takes another way than the one that was recorded. Pure.

    running ──EpisodeBlocked──▶ blocked ──EpisodeResolved, other code is there──▶ queued
                                   └─────EpisodeResolved, `park_s` is over──────▶ queued ──▶ failed

Each digest of code is tried once. An episode that differs again, and has recorded nothing
meanwhile, is parked until the same time as before.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from engine.episodes.episode import AnswerEpisode, BlockEpisode, Episode, Status, decide
from streams.model.events import BlockReason, EpisodeEvent, Parked, Resolution
from streams.model.waits import OnExpiry, Wait

TOO_LATE: Final = "no other code came in time"
"""Why an episode that was parked goes on, to fail."""

KEPT_S: Final = 3_600
"""How long the key of a parked episode outlives its time limit, in seconds: whoever ends it removes
the key, unless it dies.
"""


CODES_MAX: Final = 32
"""Most digests of code that a parked episode keeps: of more, the ones tried first may try again."""


def block(episode: Episode, how: str, *, code: str, at: datetime, park_s: float) -> BlockEpisode:
    """Return the command that parks an episode of which the replay by `code` differs; `how`."""
    until = at + timedelta(seconds=park_s)
    codes: tuple[str, ...] = (code,)
    before = episode.parked
    if before is not None and before.parked is not None and before.wait is not None:
        until = before.wait.expires_at or until  # guard: parked-no-longer-by-trying
        others = (each for each in before.parked.codes if each != code)
        codes = (*others, code)[-CODES_MAX:]  # guard: parked-codes-max
    return BlockEpisode(
        reason=BlockReason.NONDETERMINISTIC_REPLAY,
        fingerprint="",
        wait=Wait(ref="", expires_at=until, on_expiry=OnExpiry.FAIL),
        parked=Parked(number=episode.parks + 1, how=how, codes=codes),
    )


def is_tried(episode: Episode, code: str) -> bool:
    """Return whether a replay by `code` differs, as far as is known."""
    parked = episode.parked.parked if episode.parked is not None else None
    return parked is not None and code in parked.codes


def is_over(episode: Episode, *, at: datetime) -> bool:
    """Return whether the time is over for which an episode that differs waits for other code."""
    wait = episode.parked.wait if episode.parked is not None else None
    return wait is not None and wait.expires_at is not None and wait.expires_at <= at


def retried(episode: Episode, code: str) -> tuple[EpisodeEvent, ...]:
    """Return what has a node with `code` try a parked episode; nothing: it is not parked for it."""
    is_parked = episode.status is Status.BLOCKED and episode.parked is not None
    if not is_parked or is_tried(episode, code):  # guard: code-tried-once
        return ()
    resolved = decide(
        episode,
        AnswerEpisode(
            resolution=Resolution.RETRIED,
            decision_id=f"code.{code}",
            park_no=episode.parks,
        ),
    )
    return (resolved,)

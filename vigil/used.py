"""What a request under an idempotency key that was used before comes to: nothing new.

The journal knows a key once an episode was opened for it. A request that still waits for a node is
not on it yet, and one that is to be opened later is replaced by the next of its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engine.app.dedupe import KEY_CHARS_MAX
from engine.episodes.episode import fold
from engine.episodes.fire import fired_episode_id
from engine.validation import check_name, check_text
from streams.model.triggers import Mode
from streams.ports.all import Ports


@dataclass(frozen=True, kw_only=True)
class Use:
    """An earlier use of a key."""

    key: str
    at: datetime
    """When an episode was opened for it."""
    is_over: bool
    """Whether that episode has ended."""

    @property
    def in_words(self) -> str:
        """Return that nothing new comes of the key."""
        at = f"{self.at:%Y-%m-%d %H:%M:%S} UTC"
        return f"nothing new began: key {self.key!r} was used before, at {at}"


async def use_of(
    ports: Ports, actor: str, expectation: str, key: str | None, *, dry_run: bool
) -> Use | None:
    """Return what the journal knows of a key; None: nothing, or there is none.

    Whoever asks under the key looks first: later the use may be their own.

    Raises:
        BadRequest: a value is impossible; the error names the field.
        UnreadableEvent: a newer version has written the episode.
        Unavailable: the log is away.
    """
    if key is None:
        return None
    check_name("actor", actor)
    check_name("expectation", expectation)
    check_text("key", key, least=1, most=KEY_CHARS_MAX)
    episode_id = fired_episode_id(
        stack=ports.stack.name,
        actor=actor,
        expectation=expectation,
        key=key,
        mode=Mode.DRY_RUN if dry_run else Mode.LIVE,
    )
    records = await ports.log.read(ports.stack.episode(episode_id))
    if not records:
        return None
    return Use(key=key, at=records[0].commit.at, is_over=fold(records).finished is not None)

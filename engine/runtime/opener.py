"""Opens episodes: the first commit of the journal, then the call for a node to start.

Both are named after the episode, whose id comes from its cause. So opening again completes
what a crash left half done, and otherwise changes nothing.
"""

from __future__ import annotations

from datetime import datetime

from streams.commands import Start
from streams.errors import VersionConflict
from streams.events import EpisodeOpened
from streams.log import START, Commit
from streams.ports import Ports
from streams.tracing import traceparent


async def record_opening(ports: Ports, opened: EpisodeOpened, *, at: datetime, trace: str) -> bool:
    """Open an episode and call nobody to it; return whether it had not been opened before.

    Raises:
        TooLarge, Unwritable: the journal cannot keep the trigger. Nothing was opened.
        Unavailable: the log is away. It may have been opened; do it again.
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
        Unavailable: the log is away. It may have been opened; do it again.
    """
    episode_id, trace = opened.episode_id, traceparent()
    is_new = await record_opening(ports, opened, at=at, trace=trace)
    # Of one that is not new the start may still be missing.
    start = Start(actor_id=opened.actor_id, episode_id=episode_id)
    await ports.inbox.send(start, id=f"start.{episode_id}", trace=trace)
    return is_new

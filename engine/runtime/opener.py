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


async def open_episode(ports: Ports, opened: EpisodeOpened, *, at: datetime) -> bool:
    """Open an episode and call for its start; return whether it had not been opened before.

    Raises:
        TooLarge: the trigger does not fit in the episode's journal. Nothing was opened.
        Unavailable: the log is away. It may have been opened; do it again.
    """
    episode_id, trace = opened.episode_id, traceparent()
    commit = Commit(id=f"open.{episode_id}", at=at, events=(opened,), trace=trace)
    try:
        await ports.log.append(ports.stack.episode(episode_id), commit, after=START)
        is_new = True
    except VersionConflict:
        is_new = False  # The start may still be missing.
    start = Start(actor_id=opened.actor_id, episode_id=episode_id)
    await ports.inbox.send(start, id=f"start.{episode_id}", trace=trace)
    return is_new

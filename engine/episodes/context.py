"""What the episodes of one actor on one node work with."""

from __future__ import annotations

from dataclasses import dataclass

from engine.episodes.breaker_store import Breakers
from engine.episodes.cancel import RunningEpisodes
from engine.runtime.context import ActorContext


@dataclass(frozen=True, kw_only=True)
class EpisodeContext(ActorContext):
    """One actor's means on one node, with what opens and ends its episodes."""

    running: RunningEpisodes
    """What the node runs now, of all of its actors."""
    breakers: Breakers

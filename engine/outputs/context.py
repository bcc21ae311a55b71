"""What the episodes of one actor on one node, and their outputs, work with."""

from __future__ import annotations

from dataclasses import dataclass

from engine.episodes.context import EpisodeContext
from engine.outputs.pool import AdapterPool


@dataclass(frozen=True, kw_only=True)
class OutputContext(EpisodeContext):
    """One actor's means on one node, with what delivers outputs."""

    adapters: AdapterPool
    """The node's adapters, for all of its actors."""

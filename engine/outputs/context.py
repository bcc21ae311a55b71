"""What the episodes of one actor on one node, and their outputs, work with."""

from __future__ import annotations

from dataclasses import dataclass

from engine.episodes.context import EpisodeCrew
from engine.outputs.pool import Outlets


@dataclass(frozen=True, kw_only=True)
class OutputCrew(EpisodeCrew):
    """One actor's means on one node, with what delivers outputs."""

    outlets: Outlets
    """The node's adapters, for all of its actors."""

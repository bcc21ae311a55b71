"""`ActorParts`: what the services of one actor on one node are made of; each takes what it uses."""

from __future__ import annotations

from dataclasses import dataclass

from engine.dead_letters.write import DeadLetterWriter
from engine.episodes.attempt import RunningEpisodes
from engine.episodes.breakers.store import Breakers
from engine.findings.index import FindingIndex
from engine.outputs.pool import AdapterPool
from engine.runtime.context import ActorContext


@dataclass(frozen=True, kw_only=True)
class ActorParts:
    """What one actor's services on one node share."""

    context: ActorContext
    running: RunningEpisodes
    """What the node runs now, of all of its actors."""
    breakers: Breakers
    adapters: AdapterPool
    """The node's adapters, for all of its actors."""
    finding_index: FindingIndex
    """The active findings, as the node has read them."""

    @property
    def dead_letters(self) -> DeadLetterWriter:
        """The writer of dead letters."""
        return DeadLetterWriter(self.context.ports, self.context.clock)

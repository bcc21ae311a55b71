"""`NodeContext` and `ActorContext`: what all code for one node, or one actor on it, shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.workflow_plan import workflow_of
from engine.runtime.catalog import Catalog, Revisions
from engine.runtime.permits import Permit, Permits
from engine.runtime.retry import Turns
from engine.runtime.slots import Slots
from streams.clock import Clock
from streams.model.events import EpisodeOpened
from streams.ports.all import Ports


@dataclass(frozen=True, kw_only=True)
class ActorContext:
    """One actor's means on one node."""

    app: App
    """Its tools, outputs and other shared parts. The catalog has the actors."""
    catalog: Catalog
    revisions: Revisions
    actor: Actor
    is_laned: bool
    """Whether the actor's episodes take turns now, whichever revision of it has one."""
    ports: Ports
    clock: Clock
    node: str
    permits: Permits
    """Whether its consumers may wake the actor and take its episodes; not once it is replaced."""
    may_go_on: Permit
    """Whether the node may run what they took beyond the next barrier; not once it stops."""
    turns: Turns
    """The node's, for all of its actors."""
    slots: Slots
    """Places for episodes of this actor, whichever revision of it has them."""
    writer_ids: Iterator[str]
    """Names that nobody used before, for those who write."""

    async def as_opened(self, opened: EpisodeOpened) -> Self:
        """Return this context with the actor as it was when an episode was opened."""
        is_current = opened.revision in (0, self.actor.revision)
        if is_current or workflow_of(opened.actor_id) is not None:
            return self
        return replace(self, actor=await self.revisions.actor(self.actor.id, opened.revision))

"""`NodeContext` and `ActorContext`: what all code for one node, or one actor on it, shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.function_tool import tool_texts
from engine.app.strategy import digest_of
from engine.runtime.catalog import Catalog, Revisions
from engine.runtime.dropping import DroppingBuffer
from engine.runtime.isolation import Isolation
from engine.runtime.leases import Keeper
from engine.runtime.node_lease import NodeLease
from engine.runtime.objects import LastingObjects, StoreOutage
from engine.runtime.permits import Permit, Permits
from engine.runtime.slots import Slots
from engine.runtime.store import Turns
from engine.runtime.tasks import NodeTasks
from engine.usercode.tool_calls import ToolCalls
from streams.clock import Clock
from streams.model.events import EpisodeOpened
from streams.model.refusals import Refusal
from streams.ports.all import Ports


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What all services of one node share."""

    app: App
    """Its tools, outputs and what else actors share. The catalog says which actors there are."""
    catalog: Catalog
    revisions: Revisions
    ports: Ports
    clock: Clock
    node: str
    leases: Keeper
    node_lease: NodeLease
    tasks: NodeTasks
    """What was taken from a queue and is being done."""
    tool_calls: ToolCalls
    turns: Turns
    writer_ids: Iterator[str]
    """Unique ids for commits."""
    refusals: DroppingBuffer[Refusal]
    """Why events did not fire, on its way to be stored."""
    store_outage: StoreOutage
    isolation: Isolation | None = None
    """Where suspects run; None: here, as all others."""
    is_alone: bool = False
    """Whether this node runs one suspect, and nothing else."""


@dataclass(frozen=True, kw_only=True)
class ActorContext(NodeContext):
    """What the services of one actor on one node share."""

    actor: Actor
    is_laned: bool
    """Whether the actor's episodes take turns now, whatever their revision."""
    is_fallback: bool = False
    """Whether nothing wakes the actor here, and only its open episodes go on."""
    permits: Permits
    """Whether its consumers may wake the actor and take its episodes; not once it is replaced."""
    may_go_on: Permit
    """Whether the node may run what they took beyond the next barrier; not once it stops."""
    slots: Slots
    """For episodes of this actor, whatever their revision."""

    @cached_property
    def codes(self) -> Mapping[str, str]:
        """Expectation → a digest of what the node runs for it.

        The same in every process that has this code, and tools of these names and arguments.
        """
        tools = (*tool_texts(self.app.tools), *tool_texts(self.actor.tools))
        expectations = self.actor.expectations.items()
        return {name: digest_of((each.code, *tools)) for name, each in expectations}

    @cached_property
    def lasting(self) -> LastingObjects:
        """Puts into the object store what is named again and again."""
        return LastingObjects(self.ports.objects, self.clock)

    async def as_opened(self, opened: EpisodeOpened) -> Self:
        """Return this context with the actor as it was when an episode was opened."""
        if opened.revision in (0, self.actor.revision):  # guard: episode-keeps-definition
            return self
        return replace(self, actor=await self.revisions.actor(self.actor.id, opened.revision))

"""The consumers of a node: one set per actor, one worker per workflow; started, replaced, ended.

Replaced consumers take no more work at once, and their successors start at once; open work
continues and counts against the successors' limits.

What this node cannot run, or what is disabled, may have open episodes or instances. All nodes share
the queues, so this node takes none of their work while another live node can run it. Once none can,
fallback consumers continue what is open, perhaps under a revision that this node can make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import structlog

from engine.app.actor import Actor
from engine.app.workflow_plan import Starter
from engine.cluster import nodes
from engine.cluster.members import Membership
from engine.cluster.mode_watch import ModeWatcher
from engine.episodes.attempt import RunningEpisodes
from engine.episodes.breakers.store import Breakers
from engine.execution import commands as execution
from engine.execution.parts import ActorParts
from engine.findings.index import FindingIndex
from engine.lanes import scheduler as lanes
from engine.outputs.pool import AdapterPool
from engine.runtime.catalog import Catalog, CatalogContents
from engine.runtime.consumer import Service
from engine.runtime.context import ActorContext, NodeContext
from engine.runtime.slots import Slots
from engine.runtime.tasks import wait_first
from engine.triggers.admit import Admission
from engine.triggers.evaluate import TriggerEvaluator
from engine.triggers.events import ForeignStreamGate, Gate, open_events
from engine.triggers.timers import TimerConsumer, TimerRouter
from engine.workflows import worker as workflows

Open: TypeAlias = Callable[[Service], None]
"""Serves a service until its permit ends."""


log = structlog.get_logger("vigil.supervisor")


def services_for(parts: ActorParts, members: Membership) -> list[Service]:
    """Return all services of one actor or workflow on one node: what wakes it, and what runs it."""
    context = parts.context
    if isinstance(context.actor, Starter):
        return [*_waking(parts), *workflows.services_for(context, context.actor.workflow)]
    return [
        *_waking(parts),
        *lanes.services_for(parts, members),
        *execution.services_for(parts),
    ]


def _waking(parts: ActorParts) -> list[Service]:
    """Return what wakes one actor; nothing if it has a lane, whose scheduler does that."""
    context = parts.context
    if context.is_laned:
        return []
    permits = context.permits
    admission = Admission(parts, TriggerEvaluator(context, parts.breakers))
    due = partial(TimerConsumer, admission, TimerRouter(admission.evaluator))
    if context.is_fallback:
        return [due(takes_causes=False).service(permits.runs)]  # guard: beginless-due-happens
    return [
        Gate(admission).service("events", partial(open_events, context)),
        *(
            ForeignStreamGate(admission, foreign).service()
            for foreign in context.actor.foreign_streams()
        ),
        due(takes_causes=True).service(permits.wakes),
        due(takes_causes=False).service(permits.tends),
    ]


@dataclass(frozen=True, kw_only=True)
class NodeParts:
    """What the services of all actors of one node share."""

    context: NodeContext
    mode_watcher: ModeWatcher
    running: RunningEpisodes
    adapters: AdapterPool
    finding_index: FindingIndex
    members: Membership


@dataclass(frozen=True)
class ActorServices:
    """The services of one actor, until it is replaced."""

    parts: ActorParts
    services: Sequence[Service]


class ActorSupervisor:
    """The services of all actors of one node. Its catalog is changed here, and nowhere else."""

    def __init__(self, node_parts: NodeParts, open_: Open) -> None:
        """Begin with no actor; `open_` is called for each service that is to be served."""
        self._node_parts, self._open = node_parts, open_
        self._node_context = node_parts.context
        self._served: dict[str, ActorServices] = {}
        self._slots: dict[str, Slots] = {}
        """By actor; those of an actor that has gone stay until its last episode here has ended."""
        self.breakers: dict[str, Breakers] = {}
        """By actor, always current."""

    @property
    def services(self) -> Sequence[Service]:
        """All that are served now."""
        return [service for served in self._served.values() for service in served.services]

    def apply(self, contents: CatalogContents) -> None:
        """Serve what `contents` says and nothing else. What stays is not disturbed."""
        wanted = {**contents.actors, **contents.closed}  # guard: beginless-instances-served
        for actor_id in self._served.keys() - wanted.keys():
            self._clear(actor_id)
        self._node_context.catalog.become(contents)
        for actor in wanted.values():
            served = self._served.get(actor.id)
            if served is None or served.parts.context.actor is not actor:
                self._fill(actor)

    def parts_of(self, actor_id: str) -> ActorParts | None:
        """Return the parts of an actor; None: the node has none of that name."""
        served = self._served.get(actor_id)
        return served.parts if served is not None else None

    def context_of(self, actor_id: str) -> ActorContext | None:
        """Return the context of an actor; None: the node has none of that name."""
        parts = self.parts_of(actor_id)
        return parts.context if parts is not None else None

    def call(self, fallbacks: frozenset[str]) -> None:
        """Let these fallbacks serve from now on, and no others."""
        catalog = self._node_context.catalog
        catalog.call(fallbacks)
        for actor_id in catalog.fallbacks:
            # guard: unable-leaves-to-able
            self._served[actor_id].parts.context.permits.runs.hold(on=catalog.rests(actor_id))

    async def wait_open(self) -> None:
        """Wait until all queues are open that may be now."""
        for service in self.services:
            await service.wait_open()

    def _fill(self, actor: Actor) -> None:
        if before := self._served.get(actor.id):
            before.parts.context.permits.end()  # guard: replaced-takes-no-work
        parts = self._parts(actor)
        context = parts.context
        # guard: unable-waits-to-know
        context.permits.runs.hold(on=self._node_context.catalog.rests(actor.id))
        # It is found out before there is an episode, since that takes a moment.
        log.debug("serving", actor=actor.id, codes=context.codes)
        services = services_for(parts, self._node_parts.members)
        served = self._served[actor.id] = ActorServices(parts, services)
        for service in services:
            self._open(service)
        if not context.is_fallback:
            self._node_context.tasks.start(self._note_when_ready(served))

    async def _note_when_ready(self, served: ActorServices) -> None:
        """Note that an actor sees what is published, once it does, unless it goes before."""
        runs = served.parts.context.permits.runs
        # At first nobody knows what it may do, and it may open nothing.
        await wait_first(self._node_parts.mode_watcher.has_looked.wait(), runs.wait_given())
        for service in served.services:  # guard: running-told-once-open
            await service.wait_open()
        if not runs.is_over:
            self._node_context.catalog.note_ready(served.parts.context.actor)

    def _clear(self, actor_id: str) -> None:
        self._served.pop(actor_id).parts.context.permits.end()
        del self.breakers[actor_id]
        self._node_context.tasks.start(self._forget(actor_id))

    async def _forget(self, actor_id: str) -> None:
        """Forget an actor once none of its episodes runs here any more, unless it is back."""
        slots = self._slots[actor_id]
        await slots.wait_empty()  # guard: gone-kept-while-running
        if actor_id not in self._served and self._slots.get(actor_id) is slots:
            del self._slots[actor_id]
            self._node_parts.mode_watcher.forget(actor_id)

    def _parts(self, actor: Actor) -> ActorParts:
        permits = self._node_parts.mode_watcher.learn(actor.id)
        context = ActorContext(
            **vars(self._node_context),
            actor=actor,
            is_laned=actor.is_laned,
            is_fallback=actor.id in self._node_context.catalog.closed,
            permits=permits.branch(),
            may_go_on=permits.runs,
            slots=self._room(actor),
        )
        return ActorParts(
            context=context,
            running=self._node_parts.running,
            breakers=self._breakers(actor),
            adapters=self._node_parts.adapters,
            finding_index=self._node_parts.finding_index,
        )

    def _breakers(self, actor: Actor) -> Breakers:
        """Return the breakers of an actor, with what those of its last revision knew."""
        node_context, before = self._node_context, self.breakers.get(actor.id)
        made = self.breakers[actor.id] = Breakers(
            actor,
            node_context.ports,
            node_context.clock,
            node=node_context.node,
            running=self._node_parts.running,
            own=before.own if before else None,
        )
        return made

    def _room(self, actor: Actor) -> Slots:
        most = actor.max_concurrent_episodes
        slots = self._slots.setdefault(actor.id, Slots(most))  # guard: revisions-share-room
        slots.resize(most)
        return slots


@dataclass(frozen=True)
class FallbackWatcher:
    """Starts the fallbacks of one node that are needed, and rests the others."""

    catalog: Catalog
    supervisor: ActorSupervisor
    members: Membership

    async def follow(self) -> None:
        """Start and rest fallbacks as nodes and definitions change, for ever."""
        await self.members.has_looked.wait()
        await wait_first(self._follow_members(), self._follow_catalog())

    async def _follow_members(self) -> None:
        while True:
            self._settle()
            await self.members.wait_change()

    async def _follow_catalog(self) -> None:
        while True:
            changed = self.catalog.changed
            self._settle()
            await changed.wait()

    def _settle(self) -> None:
        there = self.members.nodes
        needed = {id_ for id_ in self.catalog.fallbacks if not nodes.has_part(there, id_)}
        called, rested = needed - self.catalog.called, self.catalog.called - needed
        if called or rested:
            self.supervisor.call(frozenset(needed))
        if called:
            log.info("stands in", actors=sorted(called))
        if rested:
            log.info("gives way", actors=sorted(rested))

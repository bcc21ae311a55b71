"""The consumers of a node: one set per actor, one worker per workflow; started, replaced, ended.

An actor is added, replaced or removed while the rest works on. Replaced consumers take no more work
at once, and their successors start at once; open work continues and counts against the successors'
limits.

What this node cannot run, or what is disabled, may have open episodes or instances. All nodes share
the queues, so this node takes none of their work while another live node can run it. Once none can,
fallback consumers continue what is open as far as possible, perhaps under a revision that this node
can make.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import structlog

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.workflow_plan import workflow_of
from engine.cluster import nodes
from engine.cluster.members import Membership
from engine.cluster.mode_watch import ModeWatcher
from engine.dead_letters.write import DeadLetterWriter
from engine.definitions.resolver import RevisionResolver
from engine.episodes.breaker_store import Breakers
from engine.episodes.cancel import RunningEpisodes
from engine.execution.commands import AnswerConsumer, RunConsumer
from engine.lanes.close import LaneCloser
from engine.lanes.scheduler import LaneScheduler
from engine.lanes.store import open_events, open_feed
from engine.outputs.pool import AdapterPool, OutputContext
from engine.runtime.catalog import Catalog, CatalogContents
from engine.runtime.leases import Keeper, LeaseEvents
from engine.runtime.permits import Permit
from engine.runtime.retry import Turns
from engine.runtime.slots import Slots
from engine.runtime.tasks import NodeTasks, wait_first
from engine.triggers.admit import Admission
from engine.triggers.evaluate import TriggerEvaluator
from engine.triggers.events import ForeignStreamGate, Gate
from engine.triggers.timers import TimerConsumer, TimerRouter
from engine.workflows.effector import Effector
from engine.workflows.store import InstanceStore
from engine.workflows.worker import InstanceHandler, WorkflowWorker
from streams.clock import Clock
from streams.ports.all import Ports


class QueueService(Protocol):
    """A consumer of a queue."""

    @property
    def is_open(self) -> asyncio.Event:
        """Set once its queue is open."""

    async def serve(self) -> None:
        """Take work until it may no longer."""


@dataclass(frozen=True)
class Service:
    """A consumer and its permit."""

    doer: QueueService
    permit: Permit
    """Without it the consumer takes no work."""

    async def serve(self) -> None:
        """Take work whenever permitted, until that ends for good."""
        while await self.permit.wait_given():
            await self.doer.serve()


def services_for(
    context: OutputContext,
    keeper: Keeper,
    dead_letters: DeadLetterWriter,
    tasks: NodeTasks,
    *,
    members: Membership,
    lease_events: LeaseEvents,
) -> list[Service]:
    """Return the consumers of one actor: those that open its episodes, and those that run them."""
    wakes, runs = context.permits.wakes, context.permits.runs
    runner = Service(RunConsumer(context, keeper, dead_letters, tasks), runs)
    listener = Service(AnswerConsumer(context, keeper, dead_letters, tasks), runs)
    if context.is_laned:
        scheduler = partial(LaneScheduler, context, keeper, dead_letters, members, lease_events)
        return [
            Service(scheduler(takes_causes=True), wakes),
            Service(scheduler(takes_causes=False), runs),
            runner,
            listener,
        ]
    admission = Admission(context, keeper, dead_letters, tasks, TriggerEvaluator(context))
    router, tends = TimerRouter(admission.evaluator), context.permits.tends
    return [
        Service(Gate(admission, partial(open_events, context), "events"), wakes),
        *(
            Service(ForeignStreamGate(admission, foreign, open_feed), wakes)
            for foreign in context.actor.foreign_streams()
        ),
        Service(TimerConsumer(admission, router, wakes, takes_causes=True), wakes),
        Service(TimerConsumer(admission, router, tends, takes_causes=False), tends),
        Service(LaneCloser(context, keeper, lease_events), runs),
        runner,
        listener,
    ]


def fallback_services_for(
    context: OutputContext,
    keeper: Keeper,
    dead_letters: DeadLetterWriter,
    tasks: NodeTasks,
    *,
    members: Membership,
    lease_events: LeaseEvents,
) -> list[Service]:
    """Return the consumers of a fallback: nothing wakes the actor, and what is open continues."""
    runs = context.permits.runs
    runner = Service(RunConsumer(context, keeper, dead_letters, tasks), runs)
    listener = Service(AnswerConsumer(context, keeper, dead_letters, tasks), runs)
    if context.is_laned:
        scheduler = LaneScheduler(
            context, keeper, dead_letters, members, lease_events, takes_causes=False
        )
        return [Service(scheduler, runs), runner, listener]
    admission = Admission(context, keeper, dead_letters, tasks, TriggerEvaluator(context))
    timer_consumer = Service(
        TimerConsumer(admission, TimerRouter(admission.evaluator), runs, takes_causes=False), runs
    )
    return (
        [timer_consumer]
        if workflow_of(context.actor.id) is not None
        else [timer_consumer, runner, listener]
    )


Open: TypeAlias = Callable[[Service], None]
"""Has a post served until it is given up."""


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What all actors of a node work with."""

    app: App
    catalog: Catalog
    revisions: RevisionResolver
    ports: Ports
    clock: Clock
    node: str
    mode_watcher: ModeWatcher
    keeper: Keeper
    dead_letters: DeadLetterWriter
    tasks: NodeTasks
    running: RunningEpisodes
    turns: Turns
    adapters: AdapterPool
    members: Membership
    lease_events: LeaseEvents
    writer_ids: Iterator[str]


@dataclass(frozen=True)
class ActorServices:
    """One actor's, for as long as it is not replaced."""

    context: OutputContext
    services: Sequence[Service]


class ActorSupervisor:
    """The consumers of one node. Only this changes its catalog."""

    def __init__(self, node_context: NodeContext, open_: Open) -> None:
        """Begin with nobody at any place.

        Args:
            means: the node's.
            open_: called for every post that is to be served from then on.
        """
        self._node_context, self._open = node_context, open_
        self._places: dict[str, ActorServices] = {}
        self._slots: dict[str, Slots] = {}
        """By actor; those of one that has gone are kept until its last episode here has ended."""
        self.breakers: dict[str, Breakers] = {}
        """By actor, as they are at any moment."""

    @property
    def services(self) -> Sequence[Service]:
        """All that are served now."""
        return [service for place in self._places.values() for service in place.services]

    def have(self, contents: CatalogContents) -> None:
        """Have what `casting` says and nothing else, from now on. What stays is not disturbed."""
        wanted = {**contents.actors, **contents.closed}
        for actor_id in self._places.keys() - wanted.keys():
            self._clear(actor_id)
        self._node_context.catalog.become(contents)
        for actor in wanted.values():
            place = self._places.get(actor.id)
            if place is None or place.context.actor is not actor:
                self._fill(actor)

    def call(self, fallbacks: frozenset[str]) -> None:
        """Let these fallbacks serve from now on, and no others."""
        catalog = self._node_context.catalog
        catalog.call(fallbacks)
        for actor_id in catalog.fallbacks:
            self._places[actor_id].context.permits.runs.hold(on=catalog.rests(actor_id))

    async def wait_open(self) -> None:
        """Wait until all queues are open that may be now."""
        for service in self.services:
            await _wait_open(service)

    def _fill(self, actor: Actor) -> None:
        """Give an actor its place, and whoever has it leave to go."""
        if before := self._places.get(actor.id):
            before.context.permits.end()
        context = self._context(actor)
        context.permits.runs.hold(on=self._node_context.catalog.rests(actor.id))
        is_closed = actor.id in self._node_context.catalog.closed
        services = [*self._services(context, is_closed=is_closed), *self._conductors(context)]
        place = self._places[actor.id] = ActorServices(context, services)
        for service in services:
            self._open(service)
        if not is_closed:
            self._node_context.tasks.start(self._note_when_ready(place))

    async def _note_when_ready(self, place: ActorServices) -> None:
        """Tell that an actor sees what comes, once it does; unless it goes before."""
        runs = place.context.permits.runs
        # At first nobody knows what it may do, and it may open nothing.
        await wait_first(self._node_context.mode_watcher.has_looked.wait(), runs.wait_given())
        for service in place.services:
            await _wait_open(service)
        if not runs.is_over:
            self._node_context.catalog.note_ready(place.context.actor)

    def _clear(self, actor_id: str) -> None:
        self._places.pop(actor_id).context.permits.end()
        del self.breakers[actor_id]
        self._node_context.tasks.start(self._forget(actor_id))

    async def _forget(self, actor_id: str) -> None:
        """Forget an actor once none of its episodes runs here any more, unless it is back."""
        slots = self._slots[actor_id]
        await slots.wait_empty()
        if actor_id not in self._places and self._slots.get(actor_id) is slots:
            del self._slots[actor_id]
            self._node_context.mode_watcher.forget(actor_id)

    def _context(self, actor: Actor) -> OutputContext:
        node_context = self._node_context
        permits = node_context.mode_watcher.learn(actor.id)
        own = permits.branch()
        # A cause of a workflow that has gone is for a node that has it: it must not go on here.
        may_go_on = permits.runs if workflow_of(actor.id) is None else own.runs
        return OutputContext(
            app=node_context.app,
            catalog=node_context.catalog,
            revisions=node_context.revisions,
            actor=actor,
            is_laned=actor.is_laned,
            ports=node_context.ports,
            clock=node_context.clock,
            node=node_context.node,
            permits=own,
            may_go_on=may_go_on,
            running=node_context.running,
            breakers=self._breakers(actor),
            turns=node_context.turns,
            adapters=node_context.adapters,
            slots=self._room(actor),
            writer_ids=node_context.writer_ids,
        )

    def _breakers(self, actor: Actor) -> Breakers:
        """Return the breakers of an actor, which know what those of its last revision knew."""
        node_context, before = self._node_context, self.breakers.get(actor.id)
        made = self.breakers[actor.id] = Breakers(
            actor,
            node_context.ports,
            node_context.clock,
            node=node_context.node,
            running=node_context.running,
            own=before.own if before else None,
        )
        return made

    def _room(self, actor: Actor) -> Slots:
        """Return the places for an actor's episodes. Those that still run have some of them."""
        most = actor.max_concurrent_episodes
        slots = self._slots.setdefault(actor.id, Slots(most))
        slots.resize(most)
        return slots

    def _services(self, context: OutputContext, *, is_closed: bool) -> Sequence[Service]:
        node_context, its_posts = (
            self._node_context,
            fallback_services_for if is_closed else services_for,
        )
        return its_posts(
            context,
            node_context.keeper,
            node_context.dead_letters,
            node_context.tasks,
            members=node_context.members,
            lease_events=node_context.lease_events,
        )

    def _conductors(self, context: OutputContext) -> Iterator[Service]:
        """Yield who has the instances of a workflow go on, if the actor begins it or stands in."""
        node_context, permit = self._node_context, context.permits.runs
        workflow = workflow_of(context.actor.id)
        if workflow is None:
            return
        effector = Effector(
            node_context.catalog, node_context.ports, node_context.clock, node_context.node
        )
        store = InstanceStore(node_context.ports, node_context.writer_ids)
        handler = InstanceHandler(
            workflow,
            node_context.catalog,
            node_context.revisions,
            node_context.clock,
            store,
            effector,
        )
        yield Service(
            WorkflowWorker(
                node_context.ports, handler, permit, node_context.dead_letters, node_context.tasks
            ),
            permit,
        )


async def _wait_open(service: Service) -> None:
    """Wait until a queue is open, or may not be."""
    await wait_first(service.doer.is_open.wait(), service.permit.withdrawn.wait())


log = structlog.get_logger("vigil.understudies")


@dataclass(frozen=True)
class FallbackWatcher:
    """Calls those of one node."""

    catalog: Catalog
    supervisor: ActorSupervisor
    members: Membership

    async def serve(self) -> None:
        """Call whoever is needed, and have the others rest, for ever."""
        await self.members.has_looked.wait()
        await wait_first(self._follow_roster(), self._follow_cast())

    async def _follow_roster(self) -> None:
        while True:
            self._settle()
            await self.members.wait_change()

    async def _follow_cast(self) -> None:
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

"""All that a node has, each at its place: the posts of its actors, and who conducts its workflows.

An actor comes, is replaced and goes while the rest works on. Whoever had its posts takes no more
work at once, and who comes next takes work at once; what was taken goes on as it began, and counts
against the room of those who come next. So nothing that runs is disturbed, and none of it is twice.

Of a workflow that begins nothing now, for it is disabled or lacks something, the instances go on;
and of an actor that opens nothing now, the episodes. Understudies take none of that before they are
called.

Has a node's understudies serve while no other node has their part, and give way to any that has.

What has a problem on this node may run on another one, and all nodes share its queues. A node that
takes work from them which it cannot do has to hand it back, later each time, and so keeps it from
those that can. So it takes none while presence shows a node that runs the actor or the workflow, or
could if that were not disabled. Once no such node is there, it has what is open go on as far as it
can: under a revision that it can make, perhaps.
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
from engine.app.workflow_starter import workflow_of
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
from engine.outputs.context import OutputContext
from engine.outputs.pool import AdapterPool
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
    """A doer that takes work from a queue."""

    @property
    def is_open(self) -> asyncio.Event:
        """Set once its queue is open."""

    async def serve(self) -> None:
        """Take work until it may no longer."""


@dataclass(frozen=True)
class Service:
    """A doer at its place."""

    doer: QueueService
    permit: Permit
    """Without it the doer takes no work."""

    async def serve(self) -> None:
        """Have the doer take work whenever it may, until it never may again."""
        while await self.permit.wait_given():
            await self.doer.serve()


def services_for(
    crew: OutputContext,
    keeper: Keeper,
    undertaker: DeadLetterWriter,
    hands: NodeTasks,
    *,
    roster: Membership,
    vacancies: LeaseEvents,
) -> list[Service]:
    """Return the posts of one actor: what wakes it, and what runs it."""
    wakes, runs = crew.permits.wakes, crew.permits.runs
    runner = Service(RunConsumer(crew, keeper, undertaker, hands), runs)
    listener = Service(AnswerConsumer(crew, keeper, undertaker, hands), runs)
    if crew.is_laned:
        dispatcher = partial(LaneScheduler, crew, keeper, undertaker, roster, vacancies)
        return [
            Service(dispatcher(takes_causes=True), wakes),
            Service(dispatcher(takes_causes=False), runs),
            runner,
            listener,
        ]
    entrance = Admission(crew, keeper, undertaker, hands, TriggerEvaluator(crew))
    alarms, tends = TimerRouter(entrance.arbiter), crew.permits.tends
    return [
        Service(Gate(entrance, partial(open_events, crew), "events"), wakes),
        *(
            Service(ForeignStreamGate(entrance, feed, open_feed), wakes)
            for feed in crew.actor.feeds()
        ),
        Service(TimerConsumer(entrance, alarms, wakes, takes_causes=True), wakes),
        Service(TimerConsumer(entrance, alarms, tends, takes_causes=False), tends),
        Service(LaneCloser(crew, keeper, vacancies), runs),
        runner,
        listener,
    ]


def fallback_services_for(
    crew: OutputContext,
    keeper: Keeper,
    undertaker: DeadLetterWriter,
    hands: NodeTasks,
    *,
    roster: Membership,
    vacancies: LeaseEvents,
) -> list[Service]:
    """Return the posts of one who stands in: nothing wakes the actor, and what is open goes on.

    Of a workflow nothing is run: what it was to begin is for a node that has it.
    """
    runs = crew.permits.runs
    runner = Service(RunConsumer(crew, keeper, undertaker, hands), runs)
    listener = Service(AnswerConsumer(crew, keeper, undertaker, hands), runs)
    if crew.is_laned:
        dispatcher = LaneScheduler(crew, keeper, undertaker, roster, vacancies, takes_causes=False)
        return [Service(dispatcher, runs), runner, listener]
    entrance = Admission(crew, keeper, undertaker, hands, TriggerEvaluator(crew))
    waker = Service(
        TimerConsumer(entrance, TimerRouter(entrance.arbiter), runs, takes_causes=False), runs
    )
    return [waker] if workflow_of(crew.actor.id) is not None else [waker, runner, listener]


Open: TypeAlias = Callable[[Service], None]
"""Has a post served until it is given up."""


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """What all actors of a node work with."""

    app: App
    cast: Catalog
    editions: RevisionResolver
    ports: Ports
    clock: Clock
    node: str
    switchboard: ModeWatcher
    keeper: Keeper
    undertaker: DeadLetterWriter
    hands: NodeTasks
    running: RunningEpisodes
    turns: Turns
    outlets: AdapterPool
    roster: Membership
    vacancies: LeaseEvents
    pens: Iterator[str]


@dataclass(frozen=True)
class ActorServices:
    """One actor's, for as long as it is not replaced."""

    crew: OutputContext
    posts: Sequence[Service]


class ActorSupervisor:
    """The places of one node. Its cast is changed here, and nowhere else."""

    def __init__(self, means: NodeContext, open_: Open) -> None:
        """Begin with nobody at any place.

        Args:
            means: the node's.
            open_: called for every post that is to be served from then on.
        """
        self._means, self._open = means, open_
        self._places: dict[str, ActorServices] = {}
        self._slots: dict[str, Slots] = {}
        """By actor; those of one that has gone are kept until its last episode here has ended."""
        self.breakers: dict[str, Breakers] = {}
        """By actor, as they are at any moment."""

    @property
    def posts(self) -> Sequence[Service]:
        """All that are served now."""
        return [post for place in self._places.values() for post in place.posts]

    def have(self, casting: CatalogContents) -> None:
        """Have what `casting` says and nothing else, from now on. What stays is not disturbed."""
        wanted = {**casting.actors, **casting.closed}
        for actor_id in self._places.keys() - wanted.keys():
            self._clear(actor_id)
        self._means.cast.become(casting)
        for actor in wanted.values():
            place = self._places.get(actor.id)
            if place is None or place.crew.actor is not actor:
                self._fill(actor)

    def call(self, understudies: frozenset[str]) -> None:
        """Have these serve from now on, and the other understudies take no more work at once."""
        cast = self._means.cast
        cast.call(understudies)
        for actor_id in cast.understudies:
            self._places[actor_id].crew.permits.runs.hold(on=cast.rests(actor_id))

    async def wait_open(self) -> None:
        """Wait until all queues are open that may be now."""
        for post in self.posts:
            await _wait_open(post)

    def _fill(self, actor: Actor) -> None:
        """Give an actor its place, and whoever has it leave to go."""
        if before := self._places.get(actor.id):
            before.crew.permits.end()
        crew = self._crew(actor)
        crew.permits.runs.hold(on=self._means.cast.rests(actor.id))
        is_closed = actor.id in self._means.cast.closed
        posts = [*self._posts(crew, is_closed=is_closed), *self._conductors(crew)]
        place = self._places[actor.id] = ActorServices(crew, posts)
        for post in posts:
            self._open(post)
        if not is_closed:
            self._means.hands.start(self._note_when_ready(place))

    async def _note_when_ready(self, place: ActorServices) -> None:
        """Tell that an actor sees what comes, once it does; unless it goes before."""
        runs = place.crew.permits.runs
        # At first nobody knows what it may do, and it may open nothing.
        await wait_first(self._means.switchboard.has_looked.wait(), runs.wait_given())
        for post in place.posts:
            await _wait_open(post)
        if not runs.is_over:
            self._means.cast.note_ready(place.crew.actor)

    def _clear(self, actor_id: str) -> None:
        self._places.pop(actor_id).crew.permits.end()
        del self.breakers[actor_id]
        self._means.hands.start(self._forget(actor_id))

    async def _forget(self, actor_id: str) -> None:
        """Forget an actor once none of its episodes runs here any more, unless it is back."""
        slots = self._slots[actor_id]
        await slots.wait_empty()
        if actor_id not in self._places and self._slots.get(actor_id) is slots:
            del self._slots[actor_id]
            self._means.switchboard.forget(actor_id)

    def _crew(self, actor: Actor) -> OutputContext:
        means = self._means
        permits = means.switchboard.learn(actor.id)
        own = permits.branch()
        # A cause of a workflow that has gone is for a node that has it: it must not go on here.
        may_go_on = permits.runs if workflow_of(actor.id) is None else own.runs
        return OutputContext(
            app=means.app,
            cast=means.cast,
            editions=means.editions,
            actor=actor,
            is_laned=actor.is_laned,
            ports=means.ports,
            clock=means.clock,
            node=means.node,
            permits=own,
            may_go_on=may_go_on,
            running=means.running,
            breakers=self._breakers(actor),
            turns=means.turns,
            outlets=means.outlets,
            slots=self._room(actor),
            pens=means.pens,
        )

    def _breakers(self, actor: Actor) -> Breakers:
        """Return the breakers of an actor, which know what those of its last revision knew."""
        means, before = self._means, self.breakers.get(actor.id)
        made = self.breakers[actor.id] = Breakers(
            actor,
            means.ports,
            means.clock,
            node=means.node,
            running=means.running,
            own=before.own if before else None,
        )
        return made

    def _room(self, actor: Actor) -> Slots:
        """Return the places for an actor's episodes. Those that still run have some of them."""
        most = actor.max_concurrent_episodes
        slots = self._slots.setdefault(actor.id, Slots(most))
        slots.resize(most)
        return slots

    def _posts(self, crew: OutputContext, *, is_closed: bool) -> Sequence[Service]:
        means, its_posts = self._means, fallback_services_for if is_closed else services_for
        return its_posts(
            crew,
            means.keeper,
            means.undertaker,
            means.hands,
            roster=means.roster,
            vacancies=means.vacancies,
        )

    def _conductors(self, crew: OutputContext) -> Iterator[Service]:
        """Yield who has the instances of a workflow go on, if the actor begins it or stands in."""
        means, permit = self._means, crew.permits.runs
        workflow = workflow_of(crew.actor.id)
        if workflow is None:
            return
        effector = Effector(means.cast, means.ports, means.clock, means.node)
        book = InstanceStore(means.ports, means.pens)
        desk = InstanceHandler(workflow, means.cast, means.editions, means.clock, book, effector)
        yield Service(
            WorkflowWorker(means.ports, desk, permit, means.undertaker, means.hands), permit
        )


async def _wait_open(post: Service) -> None:
    """Wait until a queue is open, or may not be."""
    await wait_first(post.doer.is_open.wait(), post.permit.withdrawn.wait())


log = structlog.get_logger("vigil.understudies")


@dataclass(frozen=True)
class FallbackWatcher:
    """Calls those of one node."""

    cast: Catalog
    lineup: ActorSupervisor
    roster: Membership

    async def serve(self) -> None:
        """Call whoever is needed, and have the others rest, for ever."""
        await self.roster.has_looked.wait()
        await wait_first(self._follow_roster(), self._follow_cast())

    async def _follow_roster(self) -> None:
        while True:
            self._settle()
            await self.roster.wait_change()

    async def _follow_cast(self) -> None:
        while True:
            changed = self.cast.changed
            self._settle()
            await changed.wait()

    def _settle(self) -> None:
        there = self.roster.nodes
        needed = {id_ for id_ in self.cast.understudies if not nodes.has_part(there, id_)}
        called, rested = needed - self.cast.called, self.cast.called - needed
        if called or rested:
            self.lineup.call(frozenset(needed))
        if called:
            log.info("stands in", actors=sorted(called))
        if rested:
            log.info("gives way", actors=sorted(rested))

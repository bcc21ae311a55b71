"""All that a node has, each at its place: the posts of its actors, and who conducts its workflows.

An actor comes, is replaced and goes while the rest works on. Whoever had its posts takes no more
work at once, and who comes next takes work at once; what was taken goes on as it began, and counts
against the room of those who come next. So nothing that runs is disturbed, and none of it is twice.

Of a workflow that begins nothing now, for it is disabled or lacks something, the instances go on;
and of an actor that opens nothing now, the episodes. Understudies take none of that before they are
called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from engine.actor import Actor
from engine.app import App
from engine.definitions.casting import Casting
from engine.runtime.breakers import Breakers
from engine.runtime.cast import Cast
from engine.runtime.conductor import Conductor
from engine.runtime.editions import Editions
from engine.runtime.effector import Effector
from engine.runtime.hands import Hands
from engine.runtime.instance_book import InstanceBook
from engine.runtime.instance_desk import InstanceDesk
from engine.runtime.keeper import Keeper
from engine.runtime.outlets import Outlets
from engine.runtime.output_crew import OutputCrew
from engine.runtime.posts import Post, closed_posts_of, posts_of
from engine.runtime.presence import Roster
from engine.runtime.running import Running
from engine.runtime.slots import Slots
from engine.runtime.switchboard import Switchboard
from engine.runtime.turns import Turns
from engine.runtime.undertaker import Undertaker
from engine.runtime.vacancies import Vacancies
from engine.runtime.waits import wait_first
from engine.workflows.starter import workflow_of
from streams.clock import Clock
from streams.ports import Ports

Open: TypeAlias = Callable[[Post], None]
"""Has a post served until it is given up."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """What all actors of a node work with."""

    app: App
    cast: Cast
    editions: Editions
    ports: Ports
    clock: Clock
    node: str
    switchboard: Switchboard
    keeper: Keeper
    undertaker: Undertaker
    hands: Hands
    running: Running
    turns: Turns
    outlets: Outlets
    roster: Roster
    vacancies: Vacancies
    pens: Iterator[str]


@dataclass(frozen=True)
class Place:
    """One actor's, for as long as it is not replaced."""

    crew: OutputCrew
    posts: Sequence[Post]


class Lineup:
    """The places of one node. Its cast is changed here, and nowhere else."""

    def __init__(self, means: Means, open_: Open) -> None:
        """Begin with nobody at any place.

        Args:
            means: the node's.
            open_: called for every post that is to be served from then on.
        """
        self._means, self._open = means, open_
        self._places: dict[str, Place] = {}
        self._slots: dict[str, Slots] = {}
        """By actor; those of one that has gone are kept until its last episode here has ended."""
        self.breakers: dict[str, Breakers] = {}
        """By actor, as they are at any moment."""

    @property
    def posts(self) -> Sequence[Post]:
        """All that are served now."""
        return [post for place in self._places.values() for post in place.posts]

    def have(self, casting: Casting) -> None:
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
        place = self._places[actor.id] = Place(crew, posts)
        for post in posts:
            self._open(post)
        if not is_closed:
            self._means.hands.start(self._note_when_ready(place))

    async def _note_when_ready(self, place: Place) -> None:
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

    def _crew(self, actor: Actor) -> OutputCrew:
        means = self._means
        permits = means.switchboard.learn(actor.id)
        own = permits.branch()
        # A cause of a workflow that has gone is for a node that has it: it must not go on here.
        may_go_on = permits.runs if workflow_of(actor.id) is None else own.runs
        return OutputCrew(
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

    def _posts(self, crew: OutputCrew, *, is_closed: bool) -> Sequence[Post]:
        means, its_posts = self._means, closed_posts_of if is_closed else posts_of
        return its_posts(
            crew,
            means.keeper,
            means.undertaker,
            means.hands,
            roster=means.roster,
            vacancies=means.vacancies,
        )

    def _conductors(self, crew: OutputCrew) -> Iterator[Post]:
        """Yield who has the instances of a workflow go on, if the actor begins it or stands in."""
        means, permit = self._means, crew.permits.runs
        workflow = workflow_of(crew.actor.id)
        if workflow is None:
            return
        effector = Effector(means.cast, means.ports, means.clock, means.node)
        book = InstanceBook(means.ports, means.pens)
        desk = InstanceDesk(workflow, means.cast, means.editions, means.clock, book, effector)
        yield Post(Conductor(means.ports, desk, permit, means.undertaker, means.hands), permit)


async def _wait_open(post: Post) -> None:
    """Wait until a queue is open, or may not be."""
    await wait_first(post.doer.is_open.wait(), post.permit.withdrawn.wait())

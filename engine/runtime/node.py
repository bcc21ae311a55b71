"""A node: one process that runs an app's actors. It holds the doers; they know nothing of it.

The switchboard says for each actor whether its doers may take work. One that may not waits, and
what it had open is closed; the node goes on, and takes work again once it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import count
from typing import Any, Final

import structlog

from engine import telemetry
from engine.app import App
from engine.modes import NodeMode
from engine.publishing import ENGINE, WORKFLOWS
from engine.runtime.breakers import Breakers
from engine.runtime.canceler import Canceler
from engine.runtime.conductor import Conductor
from engine.runtime.crew import Crew
from engine.runtime.effector import Effector
from engine.runtime.hands import Hands
from engine.runtime.instance_book import InstanceBook
from engine.runtime.instance_desk import InstanceDesk
from engine.runtime.keeper import Keeper
from engine.runtime.outlets import Outlets
from engine.runtime.posts import Post, posts_of
from engine.runtime.presence import Presence, Roster
from engine.runtime.publisher import Publisher
from engine.runtime.rescuer import Rescuer
from engine.runtime.resolver import Resolver
from engine.runtime.running import Running
from engine.runtime.slots import Slots
from engine.runtime.starter import Starter
from engine.runtime.switchboard import Switchboard
from engine.runtime.tripper import Tripper
from engine.runtime.turns import Turns
from engine.runtime.undertaker import Undertaker
from engine.runtime.vacancies import Vacancies
from engine.workflows.starter import starter_id
from streams.clock import Clock, SystemClock
from streams.errors import Unavailable
from streams.ports import Ports
from streams.tokens import name as checked_name

GRACE_S: Final = 30.0
"""How long a stopping node waits for its episodes to reach a barrier."""

RESTART_S: Final = 0.2
"""First pause before a doer that failed is started again; doubles each time."""

RESTART_MAX_S: Final = 5.0

US_PER_S: Final = 1_000_000

log = structlog.get_logger("vigil.node")


class Node:
    """Runs every actor of an app until it is told to stop."""

    def __init__(
        self,
        app: App,
        ports: Ports,
        *,
        name: str,
        clock: Clock | None = None,
        grace_s: float = GRACE_S,
        mode: NodeMode = NodeMode.FULL,
        never_wakes: bool = False,
        version: str = "",
    ) -> None:
        """Make a node; `run` starts it.

        Args:
            app: what to run.
            ports: the log.
            name: the node's own, unique in the stack: 1 to 64 of A-Z a-z 0-9 _ -
            clock: the machine's by default.
            grace_s: seconds a stopping node waits for its episodes to reach a barrier.
            mode: whether it wakes actors and runs episodes, unless the registry says otherwise.
            never_wakes: whether it only runs what other nodes have opened.
            version: of what runs here, for people.

        Raises:
            BadName: `name` cannot name a node.
        """
        self.name = checked_name(name, of="node")
        self._ports, self._grace_s = ports, grace_s
        self._clock = clock or SystemClock()
        starter = Starter(app, ports, self._clock)
        self._app = app.supplied({ENGINE: Publisher(ports.world), WORKFLOWS: starter})
        self._version = version
        self._stopping = asyncio.Event()
        self._switchboard = Switchboard(
            ports.registry,
            app.actors,
            self._clock,
            node=self.name,
            setting=mode,
            never_wakes=never_wakes,
        )
        self._outlets = Outlets(self._app.outputs, ports, self._clock)
        self._roster = Roster(ports.gates, self._clock)
        self._vacancies = Vacancies()
        self._running = Running()
        self._breakers = {
            id_: Breakers(actor, ports, self._clock, node=self.name, running=self._running)
            for id_, actor in app.actors.items()
        }

    def stop(self) -> None:
        """Pull no more work, hand over what runs at its next barrier, and let `run` return."""
        self._stopping.set()
        self._switchboard.end()

    async def run(self) -> bool:
        """Run until `stop`.

        Returns:
            Whether every episode was finished or handed over within the grace period. One that
            was not is left to its lease, which lapses and calls for recovery.
        """
        telemetry.look()
        keeper = Keeper(self._ports.leases, holder=self.name, clock=self._clock)
        hands = Hands(self._contain)
        posts, presence = self._posts(keeper, hands), self._presence()
        helping = [*self._helpers(keeper), presence.serve]
        helpers = [asyncio.create_task(self._keep_going(doer)) for doer in helping]
        servers = [asyncio.create_task(self._keep_going(post.serve)) for post in posts]
        helpers.append(asyncio.create_task(self._say_when_up(posts)))
        try:
            await self._stopping.wait()
            log.info("node stopping", node=self.name)
            finishing = asyncio.create_task(_finish(servers, hands))
            helpers.append(finishing)
            _, late = await asyncio.wait([finishing], timeout=self._grace_s)
        finally:
            await _cancel([*servers, *helpers])
            await hands.cut_off()
            await self._outlets.close()
        await presence.leave()
        log.info("node down", node=self.name, clean=not late)
        return not late

    async def _say_when_up(self, posts: Sequence[Post]) -> None:
        """Say that the node is up, once all queues that it may open are: what comes is seen."""
        await self._switchboard.has_looked.wait()
        for post in posts:
            await _wait_any(post.doer.is_open, post.permit.withdrawn)
        if not self._stopping.is_set():
            actors = sorted(self._app.actors)
            stack, mode = self._ports.stack.name, self._switchboard.mode
            log.info("node up", node=self.name, actors=actors, stack=stack, mode=mode)

    def _posts(self, keeper: Keeper, hands: Hands) -> Sequence[Post]:
        """Return who takes work, for all actors."""
        undertaker = Undertaker(self._ports, self._clock)
        turns, pens = Turns(), self._pens()
        posts: list[Post] = []
        for actor in self._app.actors.values():
            crew = Crew(
                app=self._app,
                actor=actor,
                ports=self._ports,
                clock=self._clock,
                node=self.name,
                permits=self._switchboard.permits[actor.id],
                running=self._running,
                breakers=self._breakers[actor.id],
                turns=turns,
                outlets=self._outlets,
                slots=Slots(actor.max_concurrent_episodes),
                pens=pens,
            )
            posts += posts_of(
                crew,
                keeper,
                undertaker,
                hands,
                roster=self._roster,
                vacancies=self._vacancies,
            )
        posts += self._conductors(undertaker, hands, pens)
        runs = self._switchboard.runs
        return [*posts, Post(Resolver(self._ports, self._clock, undertaker, runs), runs)]

    def _conductors(
        self, undertaker: Undertaker, hands: Hands, pens: Iterator[str]
    ) -> Iterator[Post]:
        """Yield who has the instances of each workflow go on."""
        effector = Effector(self._app, self._ports, self._clock, self.name)
        for workflow in self._app.workflows.values():
            permit = self._switchboard.permits[starter_id(workflow.name)].runs
            book = InstanceBook(self._ports, pens)
            desk = InstanceDesk(workflow, self._app, self._clock, book, effector)
            yield Post(Conductor(self._ports, desk, permit, undertaker, hands), permit)

    def _presence(self) -> Presence:
        return Presence(
            gates=self._ports.gates,
            clock=self._clock,
            switchboard=self._switchboard,
            actors=self._app.actors,
            node=self.name,
            lease_s=self._ports.leases.ttl_s,
            version=self._version,
            since=self._clock.now(),
        )

    def _pens(self) -> Iterator[str]:
        """Return names that no other node uses, nor one of this name at another time."""
        since_us = round(self._clock.now().timestamp() * US_PER_S)
        return (f"{self.name}.{since_us:x}.{number}" for number in count(1))

    def _helpers(self, keeper: Keeper) -> list[Callable[[], Awaitable[None]]]:
        """Return the doers that must outlive the ones that take work."""
        actors, vacancies = self._app.actors, self._vacancies
        rescuer = Rescuer(self._ports, actors, self._clock, self._stopping, vacancies)
        tripper = Tripper(self._ports.gates, self._breakers)
        canceler = Canceler(self._ports.gates, actors, self._running)
        is_laned = any(actor.is_laned for actor in actors.values())
        watching = [self._roster.serve] if is_laned else []
        watching += [rescuer.serve, tripper.serve, canceler.serve]
        return [self._switchboard.serve, keeper.beat, *watching]

    async def _keep_going(self, doer: Callable[[], Awaitable[None]]) -> None:
        """Run `doer`, and start it again when it fails, until it returns because the node stops."""
        pause_s = RESTART_S
        while not self._stopping.is_set():
            try:
                await doer()
            except Unavailable as error:
                log.warning("waiting for the log", error=str(error), again_in_s=pause_s)
            except Exception:
                log.exception("a doer failed; starting it again", again_in_s=pause_s)
            else:
                return
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, RESTART_MAX_S)

    async def _pause(self, pause_s: float) -> None:
        """Wait for `pause_s`, or until the node stops."""
        try:
            async with self._clock.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _contain(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` so that what it raises by surprise is told and harms nothing else."""
        try:
            await work
        except Exception:
            log.exception(
                "work failed by surprise; what was not accepted comes again, a lease lapses"
            )


async def _wait_any(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()


async def _finish(servers: list[asyncio.Task[None]], hands: Hands) -> None:
    """Wait until nobody takes work any more, and what was taken is done."""
    await asyncio.wait(servers)
    await hands.finish()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

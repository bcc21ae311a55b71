"""`Node`: one process that runs an app's actors. It starts, stops and supervises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count, repeat
from typing import Final

import msgspec
import structlog

from engine import telemetry
from engine.app.app import App, absent_from, on_stack
from engine.app.tools import ENGINE
from engine.cluster.announce import node_started, node_stopped
from engine.cluster.members import DeclarationWatch, Heartbeat, Membership, end_presence
from engine.cluster.mode_watch import ModeWatcher
from engine.definitions.loader import DefinitionLoader
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.episodes.attempt import Attempt, RunningEpisodes
from engine.episodes.breakers.store import BreakerWatcher
from engine.execution.cancel import CancelWatcher
from engine.execution.steps import PublishTool
from engine.execution.suspects import run_suspect
from engine.execution.takeover import LapseWatcher
from engine.findings.index import FindingIndex
from engine.node.refusals import RefusalWriter
from engine.node.supervisor import ActorSupervisor, FallbackWatcher, NodeParts
from engine.outputs.pool import AdapterPool
from engine.reactor.reactor import Reactor, followed, watch_nodes
from engine.retention.step import RetentionStep
from engine.retention.worker import STEPS, RetentionWorker
from engine.runtime.catalog import Catalog
from engine.runtime.context import NodeContext
from engine.runtime.dropping import DroppingBuffer
from engine.runtime.isolation import Isolation
from engine.runtime.leases import Keeper, LeaseEvents
from engine.runtime.node_lease import NodeLease
from engine.runtime.objects import StoreOutage
from engine.runtime.overdue import Overdue
from engine.runtime.publish import EventPublisher, PublicEvent
from engine.runtime.store import Turns
from engine.runtime.tasks import NodeTasks, wait_first
from engine.usercode.tool_calls import ToolCalls
from engine.waits import signals as waits
from engine.waits.unpark import ParkedWatcher
from streams.clock import Clock, SystemClock, us_of
from streams.errors import Incompatible, StreamError, Unavailable
from streams.model.losses import LogLost
from streams.model.modes import NodeMode
from streams.model.refusals import Refusal
from streams.model.retention import Retention
from streams.ports.all import Ports
from streams.ports.refusals import KEPT_MAX
from streams.tokens import name as checked_name

GRACE_S: Final = 30.0
"""How long a stopping node waits for its episodes to reach a barrier."""

TELL_AFTER_S: Final = 0.5
"""A stopping node that has not stopped by then says what it waits for, in seconds."""

UNTIL: Final = "%H:%M:%S UTC"

TOLD_MAX: Final = 5
"""Most episodes that it names."""

ID_CHARS: Final = 8
"""As many of an episode's id as lists show."""

DRAIN_S: Final = 5.0
"""Longest wait of a stopping node for its last public events; another node publishes the rest. And
for its last refusals."""

FAREWELL_S: Final = 1.0
"""Longest that a stopping node tries to tell that it has stopped, in seconds."""

RESTART_S: Final = 0.2
"""First pause before a failed task is started again, in seconds; doubles each time."""

RESTART_MAX_S: Final = 5.0


log = structlog.get_logger("vigil.node")


class Node:
    """Runs every actor of an app until `stop`."""

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
        reacts: bool = True,
        announces: bool = True,
        version: str = "",
        isolation: Isolation | None = None,
        retention: Retention | None = None,
        lets_go: Sequence[RetentionStep] = STEPS,
    ) -> None:
        """Make a node; `run` starts it.

        Args:
            name: unique in the stack: 1 to 64 of A-Z a-z 0-9 _ -; else it raises `BadName`.
            grace_s: how long a stopping node waits for its episodes to reach a barrier.
            mode: whether it wakes actors and runs episodes, unless the registry says otherwise.
            never_wakes: whether it only runs what other nodes have opened.
            reacts: whether it may lead in publishing public events.
            announces: whether `node.started` and `node.stopped` tell of it.
            version: of what runs here, for people.
            isolation: where episodes run that the next crash would end; None: here, as all others.
            retention: how long the stack is to keep things from now on; None: as before.
            lets_go: what is done, in this order, to let go what is old.
        """
        self.name = checked_name(name, of="node")
        self._ports, self._grace_s, self._version = ports, grace_s, version
        self._clock = clock or SystemClock()
        self._isolation, self._stopping = isolation, asyncio.Event()
        self._retention, self._lets_go = retention, not never_wakes
        self._retention_steps = lets_go
        self._announces, self._was_announced, self._stop_reason = announces, False, ""
        self._lost: LogLost | None = None
        self._absent, app = absent_from(app, ports.stack.name), on_stack(app, ports.stack.name)
        self._catalog = Catalog(in_code(app))
        self._revisions = RevisionResolver(ports, app)
        self._app = app.supplied({ENGINE: PublishTool(ports.domain_events)})
        self._mode_watcher = ModeWatcher(
            ports.registry,
            app.actors,
            self._clock,
            node=self.name,
            setting=mode,
            never_wakes=never_wakes,
        )
        self._adapters = AdapterPool(self._app.outputs, ports, self._clock)
        self._members = Membership(ports.gates, self._clock)
        self._lease_events = LeaseEvents()
        self.refusals: DroppingBuffer[Refusal] = DroppingBuffer(line_max=KEPT_MAX)
        """Why events did not fire, as far as it is not stored yet."""
        self._refusal_writer = RefusalWriter(self.refusals, ports.refusals, self._clock)
        self._running = RunningEpisodes()
        self._since, self._nodes_gone = self._clock.now(), LeaseEvents()
        self._reactors = [
            Reactor(
                ports,
                self._clock,
                name,
                self._since,
                stream,
                partition,
                self._nodes_gone,
                self._lease_events,
            )
            for stream, partition in (followed(ports.stack) if reacts else ())
        ]

    def stop(self, *, reason: str = "") -> None:
        """Take no more work, hand over what runs at its next barrier, and let `run` return.

        The `reason` of the first call that has one is told by `node.stopped`.
        """
        self._stop_reason = self._stop_reason or reason
        self._stopping.set()
        self._mode_watcher.end()

    async def run(self) -> bool:
        """Run until `stop`; return whether every episode ended or was handed over within the grace.

        One that was not is left to its lease, which lapses and calls for recovery.

        Raises `LogLost`, having cut off everything at once, if a reactor finds that out.
        """
        telemetry.detect_tracing()
        # Who takes work, and what was taken: the first stop before the others.
        servers, tasks = NodeTasks(), NodeTasks()
        node_context, heartbeat = self._node_context(tasks), self._heartbeat()
        supervisor = ActorSupervisor(
            self._parts(node_context),
            lambda service: servers.start(self._keep_going(service.serve)),
        )
        supervisor.apply(in_code(self._app))
        for service in waits.services_for(node_context, self._mode_watcher.runs):
            servers.start(self._keep_going(service.serve))
        loader = DefinitionLoader(
            self._app, self._ports, self._revisions, self._clock, supervisor.apply
        )
        helping: list[Callable[[], Awaitable[None]]] = [
            *self._helpers(node_context, supervisor),
            *(loader.follow, heartbeat.beat, partial(self._watch_parked, loader, supervisor)),
            *([partial(self._let_go, loader, node_context)] if self._lets_go else []),
        ]
        helpers = [asyncio.create_task(self._keep_going(doer)) for doer in helping]
        helpers.append(asyncio.create_task(self._say_when_up(loader, supervisor, heartbeat)))
        reacting = [
            asyncio.create_task(self._react(each, heartbeat.is_listed)) for each in self._reactors
        ]
        helpers += reacting
        try:
            await self._stopping.wait()
            if self._lost is not None:
                # guard: loss-ends-node
                raise self._lost  # Nothing more may be written.
            log.info("node stopping", node=self.name)
            finishing = asyncio.create_task(_finish(servers, tasks, node_context.node_lease))
            helpers.append(finishing)
            is_clean = await self._wait_finished(finishing)
            await self._drain(reacting)
        finally:
            await _cancel(helpers)
            await servers.cut_off()
            await tasks.cut_off()
            await self._close(node_context)
        await self._leave(heartbeat, is_clean=is_clean)
        log.info("node down", node=self.name, clean=is_clean)
        return is_clean

    async def _wait_finished(self, finishing: asyncio.Task[None]) -> bool:
        """Wait for all that was taken, and say so if it takes long; return whether it is done."""
        told_s = min(TELL_AFTER_S, self._grace_s)
        await asyncio.wait([finishing], timeout=told_s)
        if not finishing.done() and (left_s := self._grace_s - told_s) > 0:
            self._tell_what_runs(until=self._clock.now() + timedelta(seconds=left_s))
            await asyncio.wait([finishing], timeout=left_s)
        return finishing.done()

    def _tell_what_runs(self, *, until: datetime) -> None:
        """Say what a stopping node waits for, and until when."""
        running = self._running.attempts
        waits_for = [_shown(each) for each in running[:TOLD_MAX]]
        if more := len(running) - len(waits_for):
            waits_for.append(f"{more} more")
        log.info(
            "waits for what runs to reach the end of its step",
            most_s=self._grace_s,
            until=until.strftime(UNTIL),
            waits_for=waits_for or ["messages that are being handled"],
            do="stop it again (Ctrl-C), and it ends now",
        )

    async def run_alone(self, actor_id: str, episode_id: str, fenced: asyncio.Event) -> bool:
        """Run one episode and nothing else, until it ends, has to wait, or `stop`.

        Return whether this node got it; `fenced` is set once that is durable.
        """
        telemetry.detect_tracing()
        tasks = NodeTasks()
        node_context = replace(self._node_context(tasks), isolation=None, is_alone=True)
        supervisor = ActorSupervisor(self._parts(node_context), lambda _: None)
        supervisor.apply(in_code(self._app))
        loader = DefinitionLoader(
            self._app, self._ports, self._revisions, self._clock, supervisor.apply
        )
        breakers = BreakerWatcher(self._ports.gates, self._catalog, supervisor.breakers)
        cancels = CancelWatcher(self._ports.gates, self._running)
        helping = [
            *(self._mode_watcher.follow, node_context.leases.beat, self._adapters.call_back),
            *(breakers.follow, cancels.follow, loader.follow),
        ]
        helpers = [asyncio.create_task(self._keep_going(doer)) for doer in helping]
        try:
            await self._wait_looked(loader)
            parts = supervisor.parts_of(actor_id)
            return parts is not None and await run_suspect(parts, episode_id, fenced)
        finally:
            await _cancel(helpers)
            await tasks.cut_off()
            await self._close(node_context)

    async def _close(self, node_context: NodeContext) -> None:
        """Close what deliveries and calls of tools have opened."""
        await self._adapters.close()
        await node_context.tool_calls.close()  # guard: node-closes-tools

    async def _watch_nodes(self, overdue: Overdue) -> None:
        watch = DeclarationWatch(self.name)
        await watch_nodes(self._ports.gates, self._nodes_gone, overdue, hear_all=watch.hear)

    async def _react(self, reactor: Reactor, is_listed: asyncio.Event) -> None:
        """Have a reactor lead or stand by, once others can see that this node lives."""
        # guard: reactor-waits-for-presence
        await wait_first(is_listed.wait(), self._stopping.wait())
        if self._stopping.is_set():
            await reactor.follow()  # Once, for what this node has committed until now.
        else:
            await self._keep_going(reactor.follow)

    async def _drain(self, reacting: Sequence[asyncio.Task[None]]) -> None:
        await self._end_reactors(reacting)
        await self._store_refusals()

    async def _end_reactors(self, reacting: Sequence[asyncio.Task[None]]) -> None:
        """Have published what was committed until now, and let other nodes lead."""
        for each in self._reactors:
            each.end()
        if reacting:
            await asyncio.wait(reacting, timeout=DRAIN_S)

    async def _store_refusals(self) -> None:
        """Store why the last events did not fire, if that can be done soon."""
        with suppress(TimeoutError, Incompatible):
            async with self._clock.timeout(DRAIN_S):
                await self._refusal_writer.flush()

    async def _wait_looked(self, loader: DefinitionLoader) -> None:
        """Wait until the node knows what is defined, and what it may do."""
        await loader.has_looked.wait()  # guard: up-once-defined
        await self._mode_watcher.has_looked.wait()

    async def _say_when_up(
        self, loader: DefinitionLoader, supervisor: ActorSupervisor, heartbeat: Heartbeat
    ) -> None:
        """Log and tell that the node is up, once all queues that it may open are."""
        await self._wait_looked(loader)
        await supervisor.wait_open()
        if not self._stopping.is_set():
            actors = sorted(self._catalog.actors)
            stack, mode = self._ports.stack.name, self._mode_watcher.mode
            log.info("node up", node=self.name, actors=actors, stack_name=stack, mode=mode)
            self._say_what_lacks()
            if self._announces:
                await heartbeat.is_listed.wait()
                await self._keep_going(partial(self._announce, heartbeat))

    async def _announce(self, heartbeat: Heartbeat) -> None:
        self._was_announced = True
        await self._tell(node_started(heartbeat.info(), self._catalog.actors))

    async def _leave(self, heartbeat: Heartbeat, *, is_clean: bool) -> None:
        """Be listed no more; tell that the node has stopped if it was told that it is up."""
        await heartbeat.leave()
        if not self._was_announced:  # guard: unannounced-stops-untold
            return
        reason, now = self._stop_reason, self._clock.now()
        actors, info = self._catalog.actors, heartbeat.info()
        told = node_stopped(info, actors, at=now, reason=reason, is_clean=is_clean)
        try:
            async with self._clock.timeout(FAREWELL_S):
                await self._tell(told)
        except (TimeoutError, StreamError) as error:
            log.warning("nobody was told that the node stopped", why=str(error))

    async def _tell(self, event: PublicEvent) -> None:
        await EventPublisher(self._ports.domain_events).publish([event])

    def _say_what_lacks(self) -> None:
        if self._absent.actors:
            gone = msgspec.structs.asdict(self._absent)
            log.info("not of this stack", stack_name=self._ports.stack.name, **gone)
        if not self._catalog.actors:
            do = "apply one, with vigil actors apply; or name this stack in the actors' stacks"
            log.info("no actor yet: waiting for definitions", node=self.name, do=do)

    async def _watch_parked(self, loader: DefinitionLoader, supervisor: ActorSupervisor) -> None:
        """Have parked episodes go on, once it is known which code is here."""
        await self._wait_looked(loader)
        await ParkedWatcher(self._ports, supervisor.context_of).follow()

    async def _let_go(self, loader: DefinitionLoader, node_context: NodeContext) -> None:
        """Let go what is old, once it is known which actors say how long they keep things."""
        await self._wait_looked(loader)
        worker = RetentionWorker(
            self._ports,
            self.name,
            node_context.leases,
            lambda: self._catalog.served,
            self._retention,
            self._retention_steps,
        )
        await worker.follow()

    def _parts(self, node_context: NodeContext) -> NodeParts:
        return NodeParts(
            context=node_context,
            mode_watcher=self._mode_watcher,
            running=self._running,
            adapters=self._adapters,
            finding_index=FindingIndex(self._ports.log, self._ports.stack),
            members=self._members,
        )

    def _node_context(self, tasks: NodeTasks) -> NodeContext:
        keeper = Keeper(
            self._ports.leases, holder=self.name, clock=self._clock, freed=self._lease_events
        )
        return NodeContext(
            app=self._app,
            catalog=self._catalog,
            revisions=self._revisions,
            ports=self._ports,
            clock=self._clock,
            node=self.name,
            leases=keeper,
            node_lease=NodeLease(keeper, self.name),
            tasks=tasks,
            tool_calls=ToolCalls(self._clock, self._ports.gates),
            turns=Turns(),
            store_outage=StoreOutage(),
            writer_ids=self._writer_ids(),
            refusals=self.refusals,
            isolation=self._isolation,
        )

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            gates=self._ports.gates,
            clock=self._clock,
            mode_watcher=self._mode_watcher,
            catalog=self._catalog,
            node=self.name,
            lease_s=self._ports.leases.ttl_s,
            version=self._version,
            since=self._since,
        )

    def _writer_ids(self) -> Iterator[str]:
        """Return ids that no other node uses, nor one of this name at another time."""
        since_us = us_of(self._clock.now())
        return map("{}.{}".format, repeat(f"{self.name}.{since_us:x}"), count(1))

    def _helpers(
        self, node_context: NodeContext, supervisor: ActorSupervisor
    ) -> list[Callable[[], Awaitable[None]]]:
        """Return the tasks that must outlive the consumers."""
        ports, catalog = self._ports, self._catalog
        overdue = Overdue(self._clock, self.name, ports.leases.mark_lapsed)
        # guard: openless-takeover
        lapse_watcher = LapseWatcher(
            ports, catalog.served, self._clock, self._stopping, overdue, self._lease_events
        )
        breaker_watcher = BreakerWatcher(ports.gates, catalog, supervisor.breakers)
        cancel_watcher = CancelWatcher(ports.gates, self._running)
        fallbacks = FallbackWatcher(catalog, supervisor, self._members)
        watching = [
            self._follow_others,
            lapse_watcher.follow,
            breaker_watcher.follow,
            cancel_watcher.follow,
        ]
        watching.append(fallbacks.follow)
        watching.append(overdue.run)  # guard: node-ends-claims
        if self._reactors:
            gone = Overdue(self._clock, self.name, partial(end_presence, ports.gates))
            watching.append(partial(self._watch_nodes, gone))
            watching.append(gone.run)  # guard: node-ends-presences
        return [
            self._mode_watcher.follow,
            node_context.leases.beat,
            node_context.node_lease.keep,
            self._adapters.call_back,
            self._refusal_writer.run,
            *watching,
        ]

    async def _follow_others(self) -> None:
        """Follow other nodes: lanes have one scheduler; fallbacks yield to nodes that can run."""
        catalog = self._catalog
        await catalog.wait_until(
            lambda: (
                # guard: follows-presence-when-lacking
                bool(catalog.fallbacks) or any(each.is_laned for each in catalog.served.values())
            )
        )
        await self._members.follow()

    async def _keep_going(self, doer: Callable[[], Awaitable[None]]) -> None:
        """Run a task, and start it again when it fails, until it returns because the node stops."""
        pause_s = RESTART_S
        while not self._stopping.is_set():
            try:
                await doer()
            except LogLost as error:
                self._lost = error
                self.stop()
                return
            except (Unavailable, Incompatible) as error:
                log.warning("waiting for the log", error=str(error), again_in_s=pause_s)
            except Exception:
                log.exception("a task failed; starting it again", again_in_s=pause_s)
            else:
                return
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, RESTART_MAX_S)

    async def _pause(self, pause_s: float) -> None:
        try:
            async with self._clock.timeout(pause_s):
                await self._stopping.wait()
        except TimeoutError:
            return


def _shown(attempt: Attempt) -> str:
    opened = attempt.opened
    episode = f"{opened.actor_id}/{opened.expectation_id} {opened.episode_id[:ID_CHARS]}"
    calls = ", ".join(attempt.calling)
    return f"{episode}, in {calls}" if calls else episode


async def _finish(servers: NodeTasks, tasks: NodeTasks, lease: NodeLease) -> None:
    """Wait until the consumers have stopped, then until what they took is done."""
    await servers.finish()
    await tasks.finish()
    await lease.give_up()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""`run`: an app on the whole real engine, in memory and in virtual time, for one test.

    async with run(app, tools={"disk.largest": {"path": "/var"}}) as vigil:
        await vigil.publish("resource.updated", {"host": "web-1", "disk_used": 0.97})
        await vigil.run_until_idle()
        assert vigil.finding("host:disk:web-1").severity == "high"

Gates, episodes, findings, outputs, waits, workflows, schedules, timers and the reactor are those of
a node; only the servers are not there.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial, wraps
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NoReturn, ParamSpec, TypeVar

from msgspec import UNSET

from engine.app.actions import GROUP
from engine.app.actor import Logging
from engine.app.app import App
from engine.app.outputs import OutputAdapter, OutputView
from engine.cluster.nodes import event_in, trigger_texts
from engine.episodes.cancel import cancel
from engine.episodes.fire import fire
from engine.node.node import Node
from engine.operations.decide_request import ApprovalTarget, decide_request
from engine.operations.replay import record
from engine.operations.settle import settle
from engine.people.identity import Role, role_of
from engine.people.names import groups_of
from engine.people.store import PeopleStore
from engine.waits.signal import RESOLVED
from engine.workflows.instance import fold_instance
from engine.workflows.requests import start_workflow
from streams.json import JsonObject
from streams.keys import NODES
from streams.layout import Kind, Stream
from streams.memory import MemoryPorts, memory_ports
from streams.memory.fake_leases import FakeLeases
from streams.model.events import DeadLettered, PersonAdded
from streams.model.findings import Finding
from streams.model.refusals import Refusal
from streams.model.triggers import Overrides
from streams.ports.domain_events import DomainEvent
from streams.ports.log import Recorded
from streams.subjects import Stack
from vigil.errors import hint
from vigil.testing.idle import next_due_at, what_is_left
from vigil.testing.mortal import mortal
from vigil.testing.outside import Outside, watching
from vigil.testing.processes import PROCESSES, problems_elsewhere
from vigil.testing.quiet import quiet
from vigil.testing.replays import Played, Replays, in_lines
from vigil.testing.stubs import Answer, Call, Stubs, stubbed
from vigil.testing.views import (
    EpisodeSnapshot,
    OutputSnapshot,
    Waiting,
    WorkflowSnapshot,
    episode_of,
    finding_of,
    fitting,
    only,
    output_of,
    output_wait,
    requests_in,
    workflow_of,
)
from vigil.testing.virtual_time import DAY_ONE, VirtualClock, VirtualSelector, virtual_time

P = ParamSpec("P")
T = TypeVar("T")

BY: Final = "test"
"""The default of `by`."""

BUSY_S_MAX: Final = 3_600.0
"""Longest that `run_until_idle` lets time pass, in virtual seconds, by default."""

STEP_S_MIN: Final = 0.02
STEP_S_MAX: Final = 1.0
"""Between two looks whether a busy stack is idle, in virtual seconds: doubled each time."""

LANES_S: Final = 30.0
"""How long the lanes of a cluster may wait for each other, in seconds."""

REFUSALS_TOLD_MAX: Final = 10
"""Most refusals in a story."""

RECENT_MAX: Final = 8
"""Most runs of one test whose stories are shown if it fails."""

ALIVE: Final = (f"{NODES}.",)
"""What the keys begin with that a node repeats for as long as it lives."""

recent: deque[RunningApp] = deque(maxlen=RECENT_MAX)
"""The newest runs, for the pytest plugin."""


class StillBusy(AssertionError):
    """An app was not idle within the time that it had."""


class RunningApp:
    """An app that runs in a test. Its methods return what the journal has at that moment."""

    def __init__(
        self,
        app: App,
        stubs: Stubs,
        selector: VirtualSelector,
        *,
        outside: Outside,
        clock: VirtualClock,
        stack: Stack,
    ) -> None:
        self._app, self._stubs, self._selector, self._clock = app, stubs, selector, clock
        self._outside = outside
        self._leases = FakeLeases(clock)
        self.ports: MemoryPorts = replace(
            memory_ports(stack=stack, clock=clock), leases=self._leases
        )
        """The log in memory, for everything that has no method here."""
        self._numbers, self._nodes = count(1), count(1)
        self._published: dict[str, None] = {}
        self._fired: dict[tuple[str, str], None] = {}
        self.moments = 0
        """How many there were so far: one before and one after each commit of a node."""
        self.crashed = ""
        """When the node of `crash_at` died, for people; empty: it has not."""
        self._fatal = 0
        self._context = copy_context()
        self._crashing: asyncio.Task[None] | None = None
        self._dead = ""
        self._node: Node | None = None
        self._running: asyncio.Task[bool] | None = None
        self._stopped_at: datetime | None = None

    # What happens to it.

    async def publish(
        self, name: str, payload: JsonObject | None = None, *, id: str | None = None
    ) -> None:
        """Publish a domain event, as any program may. A repeated `id` is dropped."""
        chosen = id or f"event-{next(self._numbers)}"
        self._published[name] = None
        await self.ports.domain_events.publish(name, payload or {}, id=chosen)

    async def fire(
        self,
        actor: str,
        expectation: str,
        payload: JsonObject | None = None,
        *,
        by: str = BY,
        reason: str = "",
        key: str | None = None,
        priority: int = 0,
        at: datetime | None = None,
        dry_run: bool = False,
        overrides: Overrides | None = None,
        metadata: JsonObject | None = None,
        budget: Mapping[str, int | float | str] | None = None,
        revision: int = 0,
        log_strategy: Logging | None = None,
        attempts_max: int = 0,
    ) -> str:
        """Ask for an episode by hand, as `vigil fire` does, and return its id."""
        self._fired[actor, expectation] = None
        return await fire(
            self.ports,
            actor,
            expectation,
            payload,
            by=by,
            reason=reason,
            key=key or f"fire-{next(self._numbers)}",
            priority=priority,
            at=at,
            dry_run=dry_run,
            overrides=overrides,
            metadata=metadata,
            budget=budget,
            revision=revision,
            log_strategy=log_strategy,
            attempts_max=attempts_max,
        )

    async def start_workflow(
        self, name: str, payload: JsonObject | None = None, *, by: str = BY
    ) -> str:
        """Ask for an instance of a workflow, and return its id."""
        key = f"start-{next(self._numbers)}"
        return await start_workflow(self.ports, name, payload, by=by, key=key)

    async def signal(self, ref: str, result: object = None, *, by: str = BY) -> None:
        """Send the signal `ref` to all that wait for it, now or within an hour."""
        await self.publish(RESOLVED, {"ref": ref, "result": result, "by": by})

    async def add_person(
        self, name: str, *, role: Role | str = Role.APPROVER, groups: Iterable[str] = ()
    ) -> None:
        """Let somebody be one of the people of the stack: `group:…` of approvers means those."""
        order = PersonAdded(name=name, role=role_of(role), groups=groups_of(groups), by=BY)
        await PeopleStore(self.ports, self._clock).order(order)

    async def approve(
        self, id: str | None = None, *, by: str = "", reason: str = "", plan: object = UNSET
    ) -> None:
        """Approve what waits: the only approval, or that of an episode, output or instance `id`.

        Equal requests of several episodes count as one, and the decision answers all of them.
        `by`: who decides; by default the first of the approvers who has not approved it yet. Where
            several people have to, each of them does so. `plan`: the changed plan, if the
            request is editable; of an output, the changed payload; of a workflow's step, a list of
            the inputs of all items.

        Raises `Refused` if `by` may not decide, and an `AssertionError` that shows what waits if
        no request or several fit.
        """
        await self._decide(id, "approve", by=by, reason=reason, plan=plan)

    async def deny(self, id: str | None = None, *, by: str = "", reason: str = "") -> None:
        """Deny what waits; the arguments are those of `approve`."""
        await self._decide(id, "deny", by=by, reason=reason)

    async def cancel(self, episode_id: str, *, by: str = BY, reason: str = "") -> None:
        """Cancel an episode, as `vigil episodes cancel` does."""
        await cancel(self.ports, self.episode(episode_id).actor, episode_id, by=by, reason=reason)

    async def settle(
        self,
        episode_id: str,
        settlement: str,
        *,
        by: str = BY,
        reason: str = "",
        result: object = None,
        call: str = "",
    ) -> str:
        """Say what became of a call of unknown outcome, as `vigil episodes settle` does.

        `settlement` is `happened`, `not_happened` or `again`. Returns the id of the episode that
        goes on; raises `Refused`.
        """
        return await settle(
            self.ports,
            episode_id,
            settlement,
            by=by,
            reason=reason,
            result=result,
            call=call,
            clock=self._clock,
        )

    # Time.

    @property
    def now(self) -> datetime:
        """The time of the app; after its end, the time of its end."""
        return self._clock.now() if self._stopped_at is None else self._stopped_at

    async def run_until_idle(self, *, most_s: float = BUSY_S_MAX) -> None:
        """Let the app do all that it has to do now.

        Time passes only where a tool or a pause takes some. What waits for a timer, for people or a
        signal is left waiting.

        Raises:
            Unstubbed: the app called something that the test has no answer for.
            OutsideCall: a strategy opened a file, a socket or a process itself.
            StillBusy: it was not idle after `most_s` seconds of its time.
        """
        if not await self._work(within_s=most_s):
            left = what_is_left(self.ports)
            raise StillBusy(f"after {most_s:g} s there are still {left}\n{self.story()}")

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let so much time pass, and the app do all that becomes due by then.

        Schedules tick, findings and approvals expire, outputs are tried again. It takes hardly any
        real time: while the app is idle, the clock leaps from one timer to the next.
        """
        await self.run_until(
            self.now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        )

    async def run_until(self, time: datetime) -> None:
        """Let time pass until `time`, as `advance` does; a time that has passed is now."""
        while (left_s := (time - self.now).total_seconds()) > 0:
            is_idle = await self._work(within_s=left_s)
            if is_idle and self._is_laned:
                await self._clock.sleep(min(LANES_S, max(0.0, (time - self.now).total_seconds())))
                is_idle = await self._work(within_s=0)
            if is_idle:
                due_at = next_due_at(self.ports)
                self._leap((min(time, due_at or time) - self.now).total_seconds())
        await self._settle()
        await self._work(within_s=BUSY_S_MAX)

    # What goes wrong.

    async def deploy(self, app: App) -> None:
        """Kill the node, and start one with another version of the app, which takes over its work.

        The stubs stay; `ValueError`: one is for something that this version does not have.
        """
        self._app = stubbed(app, self._stubs)
        await self.crash()

    async def crash(self) -> None:
        """Kill the node, and start another one, which takes over its work."""
        node, running = self._node, self._running
        assert node is not None, "it runs"
        assert running is not None, "it runs"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await self.start()
        for key, holder in self.ports.leases.claimed().items():
            if holder == node.name:
                self._leases.lapse(key)

    def crash_at(self, moment: int) -> None:
        """Let a node die at the `moment`-th moment, from 1; see `crash_everywhere`."""
        self._fatal = moment

    async def deliver_again(self) -> None:
        """Deliver every message again, as if no acknowledgement had reached the server."""
        for port in (self.ports.domain_events, self.ports.commands, self.ports.timers):
            for _, durable in port.durables():
                durable.deliver_again()

    # What there is.

    def episodes(
        self,
        *,
        actor: str | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        status: str | None = None,
    ) -> list[EpisodeSnapshot]:
        """Return the episodes that match all arguments, oldest first."""
        found = [
            episode_of(each, self.ports.objects) for each in self._journals(Kind.EPISODE).values()
        ]
        return fitting(found, actor=actor, expectation=expectation, subject=subject, status=status)

    def episode(
        self,
        id: str | None = None,
        *,
        actor: str | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        status: str | None = None,
    ) -> EpisodeSnapshot:
        """Return the only episode that matches.

        Otherwise an `AssertionError` shows all episodes.
        """
        __tracebackhide__ = True
        wanted = {
            "id": id,
            "actor": actor,
            "expectation": expectation,
            "subject": subject,
            "status": status,
        }
        known = self.episodes()
        return self._only(fitting(known, **wanted), _described("episode", wanted), known)

    def children(self, id: str) -> list[EpisodeSnapshot]:
        """Return the children of the episode `id`, in the order in which they were opened."""
        return [each for each in self.episodes() if each.parent == id]

    def findings(self, *, status: str | None = "active") -> list[Finding]:
        """Return the findings with this `status`, oldest first; None: with any."""
        found = [finding_of(each) for each in self._journals(Kind.FINDING).values()]
        return fitting(found, status=status)

    def finding(self, key: str, *, status: str | None = "active") -> Finding:
        """Return the finding `key` with this `status`; None: with any.

        Otherwise an `AssertionError` shows the findings that there are.
        """
        __tracebackhide__ = True
        known = self.findings(status=None)
        found = fitting(known, finding_key=key, status=status)
        shown = [f"{each.finding_key} is {each.status}, {each.severity}" for each in known]
        return self._only(found, _described(f"finding {key!r}", {"status": status}), shown)

    def outputs(
        self, *, adapter: str | None = None, status: str | None = None
    ) -> list[OutputSnapshot]:
        """Return the outputs that match all arguments, oldest first."""
        found = [output_of(each) for each in self._journals(Kind.OUTPUT).values()]
        return fitting([each for each in found if each], adapter=adapter, status=status)

    def output(self, adapter: str | None = None, *, status: str | None = None) -> OutputSnapshot:
        """Return the only output that matches; otherwise an `AssertionError` shows all outputs."""
        __tracebackhide__ = True
        wanted = {"adapter": adapter, "status": status}
        known = self.outputs()
        return self._only(fitting(known, **wanted), _described("output", wanted), known)

    def deliveries(self, adapter: str) -> Sequence[OutputView]:
        """Return what a stubbed adapter delivered, in order."""
        if adapter not in self._stubs.adapters:
            raise AssertionError(f"{adapter!r} is no output of the app, or a real one")
        return self._stubs.adapters[adapter].deliveries

    def all_deliveries(self) -> list[OutputView]:
        """Return what all stubbed adapters delivered."""
        return [each for fake in self._stubs.adapters.values() for each in fake.deliveries]

    def calls(self, name: str | None = None) -> list[Call]:
        """Return the calls of tools and synthesizers, in order: all, or those with this name."""
        return fitting(self._stubs.calls, name=name)

    def workflow(self, id: str | None = None, *, name: str | None = None) -> WorkflowSnapshot:
        """Return the only instance that matches.

        Otherwise an `AssertionError` shows all instances.
        """
        __tracebackhide__ = True
        wanted, known = {"id": id, "name": name}, self.workflows()
        return self._only(fitting(known, **wanted), _described("instance", wanted), known)

    def workflows(self, *, name: str | None = None) -> list[WorkflowSnapshot]:
        """Return the instances of workflows, oldest first."""
        journals = self._journals(Kind.WORKFLOW).items()
        return fitting((workflow_of(id_, fold_instance(each)) for id_, each in journals), name=name)

    def waits(self) -> list[Waiting]:
        """Return what waits for people or for a signal."""
        episodes = [wait for each in self.episodes() for wait in each.waits]
        outputs = [output_wait(each) for each in self._journals(Kind.OUTPUT).values()]
        steps = [wait for each in self.workflows() for wait in each.waits]
        return [*episodes, *(each for each in outputs if each), *steps]

    def events(self, name: str | None = None) -> list[DomainEvent]:
        """Return the domain events so far, the test's and the engine's: all, or with this name."""
        told = self.ports.domain_events.published()
        return fitting((each for each in told if isinstance(each, DomainEvent)), name=name)

    def dead_letters(self) -> list[DeadLettered]:
        """Return the dead letters, in order."""
        events = (
            event for each in self.ports.log.records(Stream.DEAD) for event in each.commit.events
        )
        return [each for each in events if isinstance(each, DeadLettered)]

    def refusals(
        self,
        *,
        id: str | None = None,
        actor: str | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        reason: str | None = None,
    ) -> list[Refusal]:
        """Return why events did not fire, the oldest first: all that match all arguments.

        `id` is the event's. Each has a `reason`, and `words` that say what it was compared with. As
        on servers, there are the newest 200 of each expectation, of one day.
        """
        found = [each.refusal for each in self.ports.refusals.kept(at=self.now)]
        if self._node is not None:
            found += self._node.refusals.waiting
        return fitting(
            found,
            event_id=id,
            actor=actor,
            expectation=expectation,
            subject=subject,
            reason=reason,
        )

    def refusal(
        self,
        *,
        id: str | None = None,
        actor: str | None = None,
        expectation: str | None = None,
        subject: str | None = None,
        reason: str | None = None,
    ) -> Refusal:
        """Return the only refusal that matches; otherwise an `AssertionError` shows all of them."""
        __tracebackhide__ = True
        wanted = {
            "id": id,
            "actor": actor,
            "expectation": expectation,
            "subject": subject,
            "reason": reason,
        }
        known = [_refusal_told(each) for each in self.refusals()]
        return self._only(self.refusals(**wanted), _described("refusal", wanted), known)

    async def check_replay(self, *, processes: int = PROCESSES) -> int:
        """Replay every episode so far from its journal, and return how many there are.

        It is replayed here, at several times, and in so many other Python processes, each with
        another hash seed and without environment. These import the strategies by module and name.

        Raises an `AssertionError` that names each episode whose code makes other calls than its
        journal has, because it depends on something else, such as a clock or random values; or that
        waits for something else than calls; or that other processes cannot import.
        """
        episodes = await self.played()
        problems = await self.replays.problems(episodes)
        if processes and not problems:  # guard: kit-replay-in-another-process
            problems = await problems_elsewhere(
                self._app, episodes, self._outside, processes=processes
            )
        if problems:
            told = ["a replay differs from the journal:", *in_lines(problems)]
            raise AssertionError("\n".join(told))
        return len(episodes)

    @property
    def replays(self) -> Replays:
        """What replays episodes here."""
        return Replays(self._app, self._outside, self._selector)

    async def played(self) -> list[Played]:
        """Return every episode so far, for replays."""
        return [
            Played(
                id=each.id,
                actor=each.actor,
                expectation=each.expectation,
                journal=await self.history(each.id),
            )
            for each in self.episodes()
            # No other process knows what stands in for a strategy.
            if not self._stubs.is_stubbed(f"{each.actor}.{each.expectation}")
        ]

    async def history(self, episode_id: str) -> bytes:
        """Return the journal of an episode, for `vigil.histories.load`."""
        return await record(self.ports, episode_id)

    def story(self) -> str:
        """Return all episodes, instances, findings, outputs and dead letters as text.

        And the newest of what did not fire.
        """
        findings = [
            f"finding {each.finding_key} is {each.status}, {each.severity}: {each.summary}"
            for each in self.findings(status=None)
        ]
        outputs = [f"output {each}" for each in self.outputs()]
        letters = [f"dead letter: {each.reason}: {each.detail}" for each in self.dead_letters()]
        workflows = [f"workflow {each}" for each in self.workflows()]
        episodes = [f"episode {each}" for each in self.episodes()]
        refused = [_refusal_told(each) for each in self.refusals()[-REFUSALS_TOLD_MAX:]]
        told = [*episodes, *workflows, *findings, *outputs, *letters, *refused]
        return "\n".join([f"it is {self.now:%Y-%m-%d %H:%M:%S} UTC", *(told or ["nothing yet"])])

    # Its life, for `run`.

    async def start(self) -> None:
        """Start a node, and wait until it hears what is published."""
        name = f"node-{next(self._nodes)}"
        ports = mortal(self.ports, partial(self._moment, name))
        self._node = Node(self._app, ports, name=name, clock=self._clock, announces=False)
        context = self._outside.context()
        self._running = asyncio.create_task(self._node.run(), context=context)
        await self._settle()

    async def stop(self) -> None:
        """Stop the node in order."""
        assert self._node is not None, "it runs"
        assert self._running is not None, "it runs"
        self._node.stop()
        await self._running
        self._tell()

    async def kill(self) -> None:
        """End the node at once; all methods that read still work."""
        tasks = [each for each in (self._crashing, self._running) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._stopped_at = self.now

    async def _moment(self, node: str, what: str) -> None:
        """Let `node` pass, unless this is where it dies."""
        if self._crashing is None:
            self.moments += 1
            if self.moments == self._fatal:
                self.crashed = what
                self._dead = node
                # The next node knows nothing of what this one does just now.
                # guard: takeover-lacks-dead-context
                self._crashing = asyncio.create_task(self.crash(), context=self._context)
        if node == self._dead:  # guard: dead-node-does-nothing
            await asyncio.Event().wait()

    async def _settle(self) -> None:
        """Wait until no task can run at this moment."""
        await self._selector.wait_settled()
        if self._running is not None and self._running.done() and not self._running.cancelled():
            self._running.result()
        self._tell()

    def _tell(self) -> None:
        """Raise what the app did that the test does not allow."""
        self._outside.tell()  # guard: kit-refusal-fails-test
        self._stubs.tell()

    async def _work(self, *, within_s: float) -> bool:
        """Let the app work until it is idle; return whether it is, after `within_s` at most."""
        ends_s, step_s = self._clock.monotonic_s() + within_s, STEP_S_MIN
        await self._settle()
        while what_is_left(self.ports):
            left_s = ends_s - self._clock.monotonic_s()
            if left_s <= 0:
                return False
            await self._clock.sleep(min(step_s, left_s))
            step_s = min(step_s * 2, STEP_S_MAX)
            await self._settle()
        return True

    def _leap(self, seconds: float) -> None:
        """Put the clock forward while nobody has anything to do, and let fire what is due then."""
        if seconds <= 0:
            return
        self._clock.leap(seconds)
        for bucket in (self.ports.gates, self.ports.registry):
            bucket.age(seconds, but=ALIVE)  # guard: clock-leap-ends-cooldowns
        self.ports.timers.fire()

    @property
    def _is_laned(self) -> bool:
        return any(each.is_laned for each in self._app.actors.values())

    async def _decide(
        self,
        id: str | None,
        verdict: Literal["approve", "deny"],
        *,
        by: str,
        reason: str,
        plan: object = UNSET,
    ) -> None:
        known = [each for each in self.waits() if each.plan_hash]
        fit = requests_in(fitting(known, id=id))
        found = self._only(fit, _described("approval that waits", {"id": id}), known)
        await decide_request(
            self.ports,
            ApprovalTarget(found.what, found.id, found.step),
            verdict,
            plan_hash=found.plan_hash,
            by=by or _next_decider(found),
            reason=reason,
            plan=plan,
            clock=self._clock,  # guard: time-passes-for-deciders
        )

    def _only(self, found: Sequence[T], what: str, known: Sequence[object]) -> T:
        __tracebackhide__ = True
        return only(found, what, known, why="" if found else "; ".join(self._reasons()))

    def _reasons(self) -> Iterator[str]:
        """Yield what a test may have done wrong if what it looks for is not there."""
        # guard: forgotten-run-until-idle-told
        if self._stopped_at is None and what_is_left(self.ports):
            yield "the app has not done all it has to: call `await run_until_idle()` first"
        heard = self._heard()
        for name in self._published:
            if name not in {*heard, RESOLVED}:  # guard: unheard-event-told-in-test
                yield f"nobody listens to {name!r}; {hint(name, heard)}".removesuffix("?")
        yield from (problem for pair in self._fired if (problem := self._problem_of_fire(*pair)))

    def _problem_of_fire(self, actor: str, expectation: str) -> str:
        """Return that the app lacks what a test has fired; empty: it does not."""
        actors = self._app.actors
        if actor not in actors:  # guard: unknown-fire-told-in-test
            return f"the app has no actor {actor!r}; {hint(actor, actors)}".removesuffix("?")
        known = actors[actor].expectations
        if expectation not in known:
            problem = f"actor {actor!r} has no expectation {expectation!r}"
            return f"{problem}; {hint(expectation, known)}".removesuffix("?")
        return ""

    def _heard(self) -> set[str]:
        """Return the events that fire something in the app."""
        return {
            event
            for actor in self._app.actors.values()
            for expectation in actor.expectations.values()
            for source in expectation.on
            for text in trigger_texts(source)
            if (event := event_in(text)) is not None
        }

    def _journals(self, kind: Kind) -> Mapping[str, list[Recorded]]:
        """Return the commits of each aggregate of `kind`, by its id or key."""
        stream = Stream.STATE if kind is Kind.FINDING else Stream.JOURNAL
        found: defaultdict[str, list[Recorded]] = defaultdict(list)
        for each in self.ports.log.records(stream):
            its_kind, key = self.ports.stack.aggregate_of(each.subject)
            if its_kind is kind:
                found[key].append(each)
        return found


def _refusal_told(refusal: Refusal) -> str:
    which = f"{refusal.event} {refusal.event_id} of {refusal.actor}, {refusal.expectation}"
    return f"refused as {refusal.reason}: {which}: {refusal.words}"


def _described(what: str, wanted: Mapping[str, str | None]) -> str:
    given = [f"{name} {value!r}" for name, value in wanted.items() if value is not None]
    return f"{what} of {' and '.join(given)}" if given else what


ASYNC_WITH: Final = "write `async with run(app) as vigil:`, in an `async def` test"


class AsyncOnly(AbstractAsyncContextManager[T]):
    """What `async with` enters; anything else is told so."""

    def __init__(self, made: AbstractAsyncContextManager[T]) -> None:
        self._made = made

    async def __aenter__(self) -> T:
        return await self._made.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._made.__aexit__(kind, raised, traceback)

    if not TYPE_CHECKING:  # To a type checker there is no such thing.

        def __enter__(self) -> NoReturn:
            raise TypeError(ASYNC_WITH)  # guard: with-for-async-with-told

        def __exit__(self, *_: object) -> None: ...

        def __await__(self) -> NoReturn:
            raise TypeError(ASYNC_WITH)


def _entered_with_async(
    generate: Callable[P, AsyncIterator[T]],
) -> Callable[P, AsyncOnly[T]]:
    make = asynccontextmanager(generate)

    @wraps(generate)
    def made(*args: P.args, **options: P.kwargs) -> AsyncOnly[T]:
        return AsyncOnly(make(*args, **options))

    return made


@_entered_with_async
async def run(
    app: App,
    *,
    tools: Mapping[str, Answer] | None = None,
    outputs: Mapping[str, Answer | OutputAdapter] | None = None,
    synthesizer: Answer | None = None,
    episodes: Mapping[str, Answer] | None = None,
    allow: Sequence[str] = (),
    allow_io: Sequence[str] = (),
    start: datetime = DAY_ONE,
    stack: str = "vigil",
) -> AsyncIterator[RunningApp]:
    """Run `app` on one node in memory while the context lasts, in virtual time.

    Nothing outside is called unless the test allows it. The time of the whole event loop is virtual
    meanwhile: sleeps and timeouts of the test itself, too. Log lines below a warning are dropped;
    `structlog.testing.capture_logs` captures them all.

    Args:
        app: as it is deployed.
        tools: `capability.action` → the answer to its calls; see `vigil.testing.stubs`. A `*`
            stands for anything.
        outputs: adapter → the reference that it returns, an exception, `in_turn(…)` or an adapter.
            Default: they deliver to nobody, and `deliveries` returns what they got.
        synthesizer: the answer to every prompt, such as a text, or a `FakeSynthesizer`.
        episodes: `actor.expectation` → what stands in for the strategy of its episodes, such as
            children: the value that the parent gets, a `ConvergeResult`, an exception or a
            function of the payload. Default: they run.
        allow: names without stubs: patterns such as `disk.*`, `output.pager` and `synthesizer`.
        allow_io: what strategies may open themselves, outside of tools: patterns such as
            `file /etc/*`, `socket *`, `process git` and `database *`.
        start: the time at which it begins, with a time zone.
        stack: the name of the stack, for actors that run on some only.

    Raises:
        ValueError: a stub is for something that the app does not have.
        RuntimeError: the event loop is not one of asyncio's own.
    """
    stubs = Stubs(
        tools=tools or {},
        outputs=outputs or {},
        synthesizer=synthesizer,
        allow=allow,
        episodes=episodes,
    )
    standing_in = stubbed(app, stubs)
    with quiet(), watching(standing_in), virtual_time() as selector:
        clock = VirtualClock(start, since_s=selector.now_s)
        outside = Outside(clock, allow_io)
        running = RunningApp(
            standing_in, stubs, selector, outside=outside, clock=clock, stack=Stack(stack)
        )
        recent.append(running)
        try:
            await running.start()
            yield running
            await running.stop()
        finally:
            await running.kill()


def _next_decider(asked: Waiting) -> str:
    """Return somebody who may decide, and has not approved it yet."""
    named = [each for each in asked.approvers if not each.startswith(GROUP)]
    anybody = [BY, *(f"{BY}{number}" for number in range(2, asked.quorum + 2))]
    done = {*asked.approved_by, asked.barred}
    return next((each for each in (named or anybody) if each not in done), BY)

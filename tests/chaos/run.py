"""One run: publish, break things meanwhile, let everything end, and judge."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.errors import Refused
from projections.errors import NotCaughtUp
from projections.postgres.pool import open_pool
from projections.postgres.progress import caught_up, heads
from streams.errors import Unavailable
from streams.jetstream import connect
from streams.model.events import EpisodeBlocked, EpisodeFinished
from streams.model.waits import Approval
from streams.ports.all import Ports
from streams.ports.log import Follower, Recorded
from streams.subjects import Stack
from tests.acceptance.agreement import lives_on
from tests.acceptance.cluster import Cluster, NodeProcess, wait_until
from tests.chaos import app as chaos_app
from tests.chaos import ledger
from tests.chaos.faults import Fault, Planned, plan
from tests.chaos.verdict import Verdict, exercised, judge
from tests.streams.jetstream.wire import Wire, Wires
from tests.told import expected, told_on, wrong
from vigil.ports import ApprovalTarget, decide_request

ANSWER_S: Final = 0.4
"""How long the outside takes to answer: so long that a node rarely dies without a call under way.
With 0.05 s, a node that repeated what must not be repeated went unnoticed."""

NOTICES: Final = 3
"""Every so many-th episode is one whose effect cannot be repeated."""

READY_S_MAX: Final = 60.0
ENDS_S_MAX: Final = 90.0

CAUGHT_UP_S_MAX: Final = 60.0

SUPERVISE_S: Final = 1.0
"""Between two looks whether a node has ended by itself."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a run is."""

    episodes: int
    """Those of strategy classes."""
    functions: int
    """Episodes of functions, which ask people."""
    nodes: int
    lease_s: int
    during_s: float
    """How long events are published and things go wrong."""
    ends_s_max: float = ENDS_S_MAX
    """Longest from the last fault until every episode has ended."""


@dataclass
class Member:
    """One node of the run: the wires it hangs on, and the process it is for now."""

    name: str
    wires: Wires
    process: NodeProcess
    is_down: bool = False
    """Whether it was killed, and is not to be back yet."""


@dataclass
class Run:
    """Servers, nodes and what has gone wrong so far."""

    cluster: Cluster
    size: Size
    settings: Mapping[str, str]
    app: str = "tests.chaos.app:app"
    members: list[Member] = field(default_factory=list)
    happened: Counter[Fault] = field(default_factory=Counter)

    def launch(self, name: str, wires: Wires) -> NodeProcess:
        return self.cluster.launch(name, app=self.app, url=wires.url, **self.settings)

    async def start(self, wires: Sequence[Wires]) -> None:
        """Start a node on each of `wires`, and wait until all are up."""
        for number, each in enumerate(wires, start=1):
            self.members.append(Member(f"n{number}", each, self.launch(f"n{number}", each)))
        await wait_until(
            lambda: all(member.process.is_up() for member in self.members),
            "all nodes are up",
            most_s=READY_S_MAX,
        )

    async def supervise(self) -> None:
        """Start nodes again that end by themselves, for ever, as a supervisor does.

        A node ends when it starts and the servers cannot say how the stack is.
        """
        while True:
            await asyncio.sleep(SUPERVISE_S)
            for member in self.members:
                if not member.is_down and member.process.has_ended():
                    say(f"        {member.name} ended by itself, and is started again")
                    member.process = self.launch(member.name, member.wires)

    async def suffer(self, planned: Sequence[Planned]) -> None:
        """Let everything that is planned go wrong, each at its time, and pass."""
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in planned:
                await asyncio.sleep(max(0.0, begun_s + fault.at_s - time.monotonic()))
                whom = "server" if fault.fault is Fault.RESTART else self.members[fault.node].name
                say(f"  {fault.at_s:4.0f} s  {fault.fault} {whom}")
                group.create_task(self._happen(fault))
                self.happened[fault.fault] += 1

    async def _happen(self, planned: Planned) -> None:
        member = self.members[planned.node]
        match planned.fault:
            case Fault.KILL:
                member.is_down = True
                member.process.kill()
                await asyncio.sleep(planned.for_s)
                member.process = self.launch(member.name, member.wires)
                member.is_down = False
            case Fault.FREEZE:
                member.process.freeze()
                await asyncio.sleep(planned.for_s)
                member.process.thaw()
            case Fault.CUT:
                member.wires.lose_answers()
                await asyncio.sleep(planned.for_s / 2)
                member.wires.block()
                await asyncio.sleep(planned.for_s / 2)
                member.wires.unblock()
            case Fault.RESTART:
                self.cluster.nats.kill()
                self.cluster.nats.restart()


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    verdict: Verdict
    happened: Counter[Fault]
    exercised: Counter[str]
    """How often which guard was needed."""


async def run(directory: Path, size: Size, *, seed: int) -> Outcome:
    """Run once, with what goes wrong planned from `seed`."""
    entries = directory / "ledger"
    async with AsyncExitStack() as stack:
        port = stack.enter_context(ledger.running(entries, answer_s=ANSWER_S))
        cluster = await stack.enter_async_context(Cluster(directory))
        settings = {"VIGIL_LEASE_S": str(size.lease_s), chaos_app.LEDGER: str(port)}
        this = Run(cluster, size, settings)
        wires = [await stack.enter_async_context(Wire(cluster.nats.url)) for _ in range(size.nodes)]
        await this.start([Wires([wire]) for wire in wires])
        ports = await stack.enter_async_context(connect(cluster.nats.url, stack=Stack()))
        planned = plan(seed, nodes=size.nodes, lease_s=size.lease_s, during_s=size.during_s)
        published = await live(ports, size, this.suffer(planned))
        return await judged(this, ports, published, entries)


async def live(ports: Ports, size: Size, suffering: Coroutine[Any, Any, None]) -> list[str]:
    """Publish while things go wrong, let all that was opened end, and return the events' ids."""
    approving = asyncio.create_task(approve_all(ports))
    async with asyncio.TaskGroup() as group:
        group.create_task(suffering)
        published = await publish(ports, size)
    await wait_ended(ports, len(published), within_s=size.ends_s_max)
    approving.cancel()
    with suppress(asyncio.CancelledError):
        await approving
    return published


async def judged(this: Run, ports: Ports, published: Sequence[str], entries: Path) -> Outcome:
    """Return what became of what was `published`, once the tables know all of it."""
    cluster = this.cluster
    await _wait_projected(cluster, ports)
    lives, noted = await lives_on(ports), ledger.Entries.read(entries)
    diffs = await cluster.differences(lives)
    told = await told_on(cluster.nats_url, ports)
    records = [record for life in lives.values() for record in life]
    missing = [*wrong(expected(records, ports.stack), told)]
    verdict = judge(published, lives, noted, diffs, missing)
    return Outcome(verdict, this.happened, exercised(lives, noted))


async def publish(ports: Ports, size: Size) -> list[str]:
    """Publish every event, evenly over the time in which things go wrong; return their ids."""
    begun_s = time.monotonic()
    published = []
    total = size.episodes + size.functions

    async def one(number: int) -> None:
        name = "order.notify" if number % NOTICES == 0 else "order.settle"
        # Evenly between the others.
        if (number + 1) * size.functions // total > number * size.functions // total:
            name = "order.journey"
        id_ = f"e{number}"
        await ports.domain_events.publish(name, {"order": f"o{number}"}, id=id_)
        published.append(id_)

    async with asyncio.TaskGroup() as group:
        for number in range(total):
            due_s = begun_s + size.during_s * number / total
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            group.create_task(one(number))
    return published


async def approve_all(ports: Ports) -> None:
    """Approve whatever episodes ask for, for ever; a server that is away is asked again."""
    async with _following(ports) as follower, asyncio.TaskGroup() as group:
        while True:
            for record in await _next(follower):
                match record.commit.events[-1]:
                    case EpisodeBlocked(approval=Approval(plan_hash=mark)):
                        id_ = record.subject.rpartition(".")[2]
                        group.create_task(_approve(ports, id_, mark))
                    case _:
                        pass


@asynccontextmanager
async def _following(ports: Ports) -> AsyncIterator[Follower]:
    """Follow the journal from its beginning; a server that is away is asked again."""
    async with AsyncExitStack() as opened:
        follower: Follower | None = None
        while follower is None:
            try:
                follower = await opened.enter_async_context(ports.log.follow())
            except Unavailable:
                await asyncio.sleep(ANSWER_S)
        yield follower


async def _next(follower: Follower) -> Sequence[Recorded]:
    """Return the next commits, none after a second; also none if the servers cannot tell."""
    try:
        return await follower.receive(most=500, wait_s=1.0)
    except Unavailable:
        await asyncio.sleep(ANSWER_S)
        return ()


async def _approve(ports: Ports, episode_id: str, plan_hash: str) -> None:
    target, is_unsure = ApprovalTarget("episode", episode_id), False
    while True:
        try:
            await decide_request(
                ports, target, "approve", plan_hash=plan_hash, by=chaos_app.APPROVER
            )
        except Unavailable:
            is_unsure = True
            await asyncio.sleep(ANSWER_S)
        except Refused:
            if not is_unsure:
                raise
            return  # The request before had arrived, and is carried out.
        else:
            return


async def wait_ended(ports: Ports, count: int, *, within_s: float) -> None:
    """Wait until so many episodes have ended, or until no more can be expected to."""
    ended: set[str] = set()
    begun_s = time.monotonic()
    async with _following(ports) as follower:
        while len(ended) < count and time.monotonic() < begun_s + within_s:
            for record in await _next(follower):
                if any(isinstance(event, EpisodeFinished) for event in record.commit.events):
                    ended.add(record.subject)
    say(f"  {len(ended)} of {count} ended; took {time.monotonic() - begun_s:.1f} s")


async def _wait_projected(cluster: Cluster, ports: Ports) -> None:
    """Wait until the tables know all of the journal; if they never do, they will differ."""
    newest = await heads(ports)
    async with open_pool(cluster.postgres.dsn) as pool:
        with suppress(NotCaughtUp):
            await caught_up(pool, ports.stack, newest, timeout_s=CAUGHT_UP_S_MAX)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

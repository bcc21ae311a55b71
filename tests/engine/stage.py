"""A stage for whole episodes: scripted strategies, nodes on ports in memory, and what they left.

Nothing here stands in for the engine: nodes, ports and clock are the real ones. A crash is a
node whose task is cancelled, so that it says no goodbye; or a journal that ends in mid-life.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from engine.app import dedupe
from engine.app.actions import Step, ToolCall, converge, fingerprint
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.tools import Failure, Tool
from engine.app.triggers import event
from engine.episodes.episode import Episode, Status, fold
from engine.node.node import Node
from engine.operations.decide_request import ApprovalTarget, TargetKind, decide_request
from engine.reactor.leader import leader_of
from engine.reactor.reactor import Reactor, followed
from engine.waits.signals import QUEUE
from streams.clock import Clock, SystemClock
from streams.json import raw
from streams.keys import NODE_CLAIMS
from streams.layout import Kind
from streams.memory import MemoryPorts, memory_ports
from streams.memory.commands import MemoryCommandQueue
from streams.memory.domain_events import MemoryDomainEvents
from streams.memory.durable import Durable
from streams.model.commands import Recover, Start
from streams.model.events import (
    CheckpointSaved,
    EpisodeEvent,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
    StepAnnounced,
    StepKind,
    StepRecorded,
)
from streams.model.triggers import EventTrigger, LogStrategy
from streams.ports.leases import ClaimWatch
from streams.ports.log import START, Commit, Recorded
from tests.lives import takeovers

WAIT_S: Final = 60.0
"""Longest wait for something that must come, in seconds: a message that nobody answers for comes
again after 10."""

LOOK_S: Final = 0.005
"""Between two looks for it, in seconds."""

LEASE_TTL_S: Final = 1
"""Short, so that a crash is noticed soon; long enough for a busy machine to renew, in seconds."""

HAPPENED: Final = "thing.happened"

CLOCK: Final = SystemClock()


class Later(SystemClock):
    """A clock that a test puts forward."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Scripted(Strategy):
    """Asks for a plan of actions, one by one, and converges with what they brought back."""

    class State(msgspec.Struct):
        done: int = 0
        seen: list[object] = []

    def __init__(self, *plan: Step, findings=(), outputs=()):
        self.plan, self.findings, self.outputs = plan, findings, outputs

    def init(self, episode, trigger):
        return self.State()

    def next_step(self, state, ctx):
        return self.plan[state.done] if state.done < len(self.plan) else converge()

    def handle_result(self, state, step, result):
        seen = result.error_class if isinstance(result, Failure) else result
        return self.State(state.done + 1, [*state.seen, seen])

    def converge(self, state, ctx):
        seen = {"seen": state.seen}
        return ConvergeResult(classification=seen, findings=self.findings, outputs=self.outputs)


class Counter(Tool):
    """Counts its calls, and waits in each until it is let go."""

    def __init__(self, *, side_effect=False, idempotent=False, open_=True):
        self.side_effect, self.idempotent = side_effect, idempotent
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.gate = asyncio.Event()
        self.called = asyncio.Event()
        if open_:
            self.gate.set()

    async def call(self, action, args, ctx):
        self.calls.append(action)
        self.keys.append(ctx.idempotency_key)
        self.called.set()
        await self.gate.wait()
        return {"call": len(self.calls)}


class Closed:
    """A log that takes no append until it is open."""

    def __init__(self, log):
        self._log = log
        self.open, self.tried = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        self.tried.set()
        await self.open.wait()
        return await self._log.append(subject, commit, after=after)


class Life(NamedTuple):
    """What the journal says about one episode."""

    records: tuple[Recorded, ...]

    @property
    def events(self) -> list[LogEvent]:
        return [event for record in self.records for event in record.commit.events]

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def episode(self) -> Episode:
        return fold(self.records)

    @property
    def end(self) -> EpisodeFinished:
        finished = self.episode.finished
        assert finished is not None, "it has not ended"
        return finished

    @property
    def parked(self) -> str:
        """How the replay differs of an episode that waits for other code; empty: it does not."""
        block = self.episode.blocked if self.episode.status is Status.BLOCKED else None
        return block.parked.how if block is not None and block.parked is not None else ""

    @property
    def takeovers(self) -> int:
        return takeovers(self.records)

    @property
    def seen(self) -> list[object]:
        """What a `Scripted` strategy was told, step by step."""
        converged = self.episode.converged
        assert converged is not None, f"it ended as {self.end.error_class}: {self.end.error_detail}"
        return msgspec.json.decode(converged.classification)["seen"]


def ports_in_memory() -> MemoryPorts:
    return memory_ports(clock=CLOCK, lease_ttl_s=LEASE_TTL_S)


def app_of(strategy, *, tools=None, synthesizer=None, most=5, **expectation) -> App:
    """Return an app of one actor `worker` with one expectation `thing`."""
    actor = Actor("worker", tools=tools, synthesizer=synthesizer, max_concurrent_episodes=most)
    actor.expect("thing", strategy, **{"on": event(HAPPENED), **expectation})
    return App(actors=[actor])


def node_of(
    app: App,
    ports: MemoryPorts,
    name: str = "n1",
    *,
    clock: Clock = CLOCK,
    grace_s: float = 5.0,
) -> Node:
    """Return a node that tells of what its episodes do, and not of itself."""
    return Node(app, ports, name=name, clock=clock, grace_s=grace_s, announces=False)


@asynccontextmanager
async def running(
    app: App, ports: MemoryPorts, name: str = "n1", *, clock: Clock = CLOCK
) -> AsyncIterator[Node]:
    """A node that runs while the context lasts, and then stops in order."""
    node = node_of(app, ports, name, clock=clock)
    task = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        node.stop()
        assert await task, "the node stops cleanly"


@asynccontextmanager
async def reacting(ports: MemoryPorts) -> AsyncIterator[None]:
    """A node that leads all reactors while the context lasts, and has only an actor of its own.

    What other nodes then read of a journal, they read for their own actors.
    """
    actor = Actor("bystander")
    actor.expect("nothing", Scripted(), on=event("nothing.happened"))

    async def leads() -> bool:
        leaders = [
            await leader_of(ports.gates, ports.stack.part(stream, partition))
            for stream, partition in followed(ports.stack)
        ]
        return all(leader is not None and leader.node == "leads" for leader, _ in leaders)

    async with running(App(actors=[actor]), ports, "leads"):
        await eventually(leads)
        yield


@asynccontextmanager
async def doomed(
    app: App, ports: MemoryPorts, name: str = "doomed", *, clock: Clock = CLOCK
) -> AsyncIterator[Node]:
    """A node that runs while the context lasts, and then is gone without a word."""
    node = node_of(app, ports, name, clock=clock)
    task = asyncio.create_task(node.run())
    try:
        yield node
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def opening(app: App, *, id_: str = "x1", payload: Mapping[str, object] | None = None):
    """Return the event that opens an episode of `app`, as the gate would make it."""
    actor = app.actors["worker"]
    key = f"event:{id_}"
    return EpisodeOpened(
        episode_id=dedupe.episode_id(
            stack="vigil", actor="worker", expectation="thing", dedupe_key=key
        ),
        actor_id="worker",
        expectation_id="thing",
        trigger=EventTrigger(event_id=id_, event_type=HAPPENED, payload=dict(payload or {})),
        dedupe_key=key,
        budget=actor.expectations["thing"].budget,
        log_strategy=LogStrategy(actor.expectations["thing"].log_strategy),
    )


async def write(ports: MemoryPorts, episode_id: str, *events: EpisodeEvent) -> None:
    """Append `events` to the episode's journal as one commit."""
    subject = ports.stack.episode(episode_id)
    last = await ports.log.last(subject)
    after = last.seq if last else START
    commit = Commit(id=f"by-hand-{after}", at=CLOCK.now(), events=events)
    await ports.log.append(subject, commit, after=after)


async def ask_start(ports: MemoryPorts, episode_id: str, *, id_: str = "start") -> None:
    command = Start(actor_id="worker", episode_id=episode_id)
    await ports.commands.send(command, id=f"{id_}.{episode_id}")


async def open_episode(ports: MemoryPorts, app: App, *, id_: str = "x1") -> str:
    """Open an episode, ask for its start, and return its id."""
    opened = opening(app, id_=id_)
    await write(ports, opened.episode_id, opened)
    await ask_start(ports, opened.episode_id)
    return opened.episode_id


async def decide(
    ports: MemoryPorts,
    id_: str,
    verdict: str = "approve",
    *,
    kind: TargetKind = "episode",
    step: str = "",
    by: str = "ada",
    **said: object,
) -> str:
    """Decide on the newest request of an episode, an output or a step, and return the id."""
    target = ApprovalTarget(kind, id_, step)
    records = await ports.log.read(target.subject(ports.stack))
    events = (event for record in records for event in record.commit.events)
    asked = [each.approval for each in events if getattr(each, "approval", None)]
    return await decide_request(
        ports, target, verdict, plan_hash=asked[-1].plan_hash, by=by, **said
    )


async def leave(ports: MemoryPorts, app: App, *events: EpisodeEvent, **opening_: object) -> str:
    """Leave the journal of a node that died after `events`, call for recovery, return the id."""
    opened = msgspec.structs.replace(opening(app), **opening_)
    await write(ports, opened.episode_id, opened)
    await write(ports, opened.episode_id, STARTED, *events)
    command = Recover(actor_id="worker", episode_id=opened.episode_id, reason="lapsed")
    await ports.commands.send(command, id="lapse.1")
    return opened.episode_id


STARTED: Final = EpisodeStarted(node="dead", attempt=1, claim_revision=1)


def kept(done: int = 0, seen=(), *, number: int = 0, after_step: int = 0) -> CheckpointSaved:
    """Return the state of a `Scripted` strategy, as the journal keeps it."""
    state = raw(Scripted.State(done, list(seen)))
    return CheckpointSaved(checkpoint_no=number, step_no=after_step, phase="init", state=state)


def did(
    step_no: int, action: Step, result: object, *, tokens: int = 0, path: str = ""
) -> StepRecorded:
    """Return the record of an action that was done; by default no step before it was repeated."""
    called = isinstance(action, ToolCall)
    return StepRecorded(
        step_no=step_no,
        kind=StepKind.TOOL_CALL if called else StepKind.OBSERVATION,
        fingerprint=fingerprint(action),
        tool_name=f"{action.capability}.{action.action}" if called else "",
        result=raw(result),
        cost_tokens=tokens,
        path=path or f"{step_no}",
    )


def announced(step_no: int, action: ToolCall, *, episode_id: str) -> StepAnnounced:
    return StepAnnounced(
        step_no=step_no,
        fingerprint=fingerprint(action),
        tool_name=f"{action.capability}.{action.action}",
        idempotency_key=key_of(episode_id, step_no, action),
        path=f"{step_no}",
    )


def key_of(episode_id: str, turn: int, action: Step) -> str:
    """Return the idempotency key of `action`, asked for on the `turn`-th turn."""
    return f"{episode_id}:{turn}:{fingerprint(action)[:16]}"


async def life(ports: MemoryPorts, episode_id: str) -> Life:
    return Life(tuple(await ports.log.read(ports.stack.episode(episode_id))))


async def lived(
    ports: MemoryPorts, episode_id: str, reached: Callable[[Life], object] | None = None
) -> Life:
    """Wait until the episode has ended, or has `reached` something, and return its life."""
    wanted = reached or (lambda so_far: so_far.of(EpisodeFinished))
    partition = ports.stack.partition_of(Kind.EPISODE, episode_id)
    async with asyncio.timeout(WAIT_S), ports.log.follow(partition=partition) as follower:
        while True:
            so_far = await life(ports, episode_id)
            if wanted(so_far):
                return so_far
            await follower.receive(most=100, wait_s=WAIT_S)


async def blocked(ports: MemoryPorts, episode_id: str) -> Life:
    """Wait until an episode waits for people or a signal."""
    return await lived(ports, episode_id, lambda so_far: so_far.episode.status is Status.BLOCKED)


async def parked(ports: MemoryPorts, episode_id: str, number: int = 1) -> Life:
    """Wait until an episode waits for other code, for the time of this `number`."""
    return await lived(ports, episode_id, lambda life: life.parked and life.episode.parks == number)


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until `condition`, plain or async, holds, where nothing tells when it does."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(LOOK_S)


async def play(strategy, *, ports: MemoryPorts | None = None, **declared) -> Life:
    """Run one episode of `strategy` from its opening to its end, and return its life."""
    ports = ports or memory_ports(clock=CLOCK)  # Nobody dies, so no lease is to lapse soon.
    app = app_of(strategy, **declared)
    async with running(app, ports):
        return await lived(ports, await open_episode(ports, app))


def gates(world: MemoryDomainEvents) -> dict[str, Durable]:
    """Return the queues of events that actors share, as far as they were opened."""
    return {name: each for name, each in world._durables.items() if not name.endswith(QUEUE)}


def claims(ports: MemoryPorts) -> list[str]:
    """Return the keys of claims that are held or have lapsed, but for those of nodes themselves."""
    return [key for key in ports.leases._bucket if not key.startswith(f"{NODE_CLAIMS}.")]


async def no_claim_made(watch: ClaimWatch) -> bool:
    """Return whether nothing was claimed since a watch was opened, but by nodes themselves."""
    changes = await watch.receive(most=10, wait_s=0)
    return all(each.key.startswith(f"{NODE_CLAIMS}.") for each in changes)


async def all_answered(port: MemoryCommandQueue | MemoryDomainEvents) -> None:
    """Wait until the actor's queue is open, and everything in it is answered for good."""
    queues = gates(port) if isinstance(port, MemoryDomainEvents) else port._durables

    def answered() -> bool:
        return bool(queues) and not any(q.pending or q._unanswered for q in queues.values())

    await eventually(answered)


def stored(ports: MemoryPorts) -> bytes:
    """Return every byte of every stream: journal, inbox, events and dead letters."""
    return b"\n".join(
        repr(message.headers).encode() + message.subject.encode() + message.data
        for stream in ports.log._streams.values()
        for message in stream.past(0)
    )


async def react(ports: MemoryPorts, *, clock: Clock | None = None) -> None:
    """Carry out what follows from all commits so far, as the reactor of a node does."""
    for stream, partition in followed(ports.stack):
        clock = clock or SystemClock()
        reactor = Reactor(ports, clock, "reactor", clock.now(), stream, partition)
        reactor.end()
        await reactor.follow()


def told(ports: MemoryPorts) -> list[tuple[str, dict]]:
    """Return the public events that the world was told, in order: name and payload.

    Without those that come with every episode and every reactor.
    """
    (stream,) = (s for s in ports.log._streams.values() if s.name.endswith("-events"))
    events = [ports.domain_events._parse(message) for message in stream.past(0)]
    others = (HAPPENED, "expectation.triggered", "reactor.started.")
    return [(one.name, one.payload) for one in events if not one.name.startswith(others)]

"""Two nodes on a stack of their own, one of which suffers a fault while the other one is there.

Each hangs on a wire of its own. Whichever publishes the chosen message is struck: which of the two
has an episode is chance. A supervisor starts nodes again that have ended.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.acceptance.cluster import NodeProcess
from tests.attack import ledger
from tests.attack.faults import Fault
from tests.attack.interception import MessageCounter
from tests.streams.jetstream.wire import Tap, Wire

APP: Final = "tests.attack.app:app"

LEASE_S: Final = 2

LEASES_FROZEN: Final = 2.5
"""How long a node stands still: long enough that another one takes over."""

RESTART_S: Final = 0.2
"""How long a node that has ended stays away."""

POLL_S: Final = 0.02

WAKING: Final = 3
"""How much a node says after it stood still until it has done what it had in hand: held messages
are a part of that, and it renews its leases three times in each of their lives."""

WAKES_S_MAX: Final = 5.0
"""Longest that a node may take to say so much."""

UP_S_MAX: Final = 60.0


@dataclass(eq=False)
class Member:
    """One node: its wire, and the process that it is for now."""

    name: str
    wire: Wire
    process: NodeProcess
    is_frozen: bool = False
    doomed: NodeProcess | None = None
    """The process that was told to end, or killed."""
    heard: int = 0
    """How often something of it came through."""

    @property
    def is_up(self) -> bool:
        process = self.process
        is_there = process.is_running and process is not self.doomed and not self.is_frozen
        return is_there and process.says("node up")

    def hear(self, _: bytes) -> None:
        self.heard += 1

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it, now or soon."""
        self.doomed = self.process
        self.process.signal(number)


@dataclass
class Pair:
    """The nodes, and what is to happen to them."""

    stack: Stack
    folder: Path
    nats_url: str
    members: list[Member] = field(default_factory=list)
    counter: MessageCounter = field(default_factory=MessageCounter)
    struck: int = 0
    """How many faults there were in this case."""
    _aim: tuple[str, Fault] | None = None
    _first: NodeProcess | None = None
    """The process that was killed first, where the next one is to be killed, too."""
    thawing: set[asyncio.Task[None]] = field(default_factory=set)
    """What lets nodes go on that stand still."""
    _launched: int = 0

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def begin(self, order: str, point: str, fault: Fault | None) -> None:
        """Strike with `fault` at this point of what is published about `order`."""
        self.counter.begin(order)
        self.struck, self._first = 0, None
        self._aim = (point, fault) if fault is not None else None

    def disarm(self) -> None:
        """Strike nobody any more."""
        self._aim = self._first = None

    async def wait_whole(self) -> None:
        """Wait until both nodes are up and nobody stands still."""
        deadline_s = time.monotonic() + UP_S_MAX
        while not all(member.is_up for member in self.members):
            if time.monotonic() > deadline_s:
                logs = "\n".join(member.process.logged()[-2000:] for member in self.members)
                raise AssertionError(f"{self.stack.name}: a node does not come up again\n{logs}")
            await asyncio.sleep(POLL_S)

    async def supervise(self) -> None:
        """Start nodes again that have ended, for ever."""
        while True:
            await asyncio.sleep(POLL_S)
            for member in self.members:
                if member.process.has_ended() and not member.is_frozen:
                    await asyncio.sleep(RESTART_S)
                    member.wire.cut()
                    member.process = self.launch(member.name, member.wire)

    def launch(self, name: str, wire: Wire) -> NodeProcess:
        self._launched += 1
        settings = {
            "VIGIL_NATS_URL": wire.url,
            "VIGIL_STACK": self.stack.name,
            "VIGIL_LEASE_S": str(LEASE_S),
            ledger.FOLDER: str(self.ledger),
        }
        log = self.folder / f"{name}.{self._launched}.log"
        return NodeProcess(name, app=APP, log=log, env=settings, arguments=["--no-project"])

    def strike(self, member: Member, point: str) -> Callable[[], None] | None:
        """Do what is to be done at this point, whose message `member` publishes."""
        if self._first is not None and member.process is not self._first:
            self._first = None
            self._kill(member)
            return None
        if self._aim is None or point != self._aim[0]:
            return None
        _, fault = self._aim
        self._aim = None
        if not fault.is_before:
            return partial(self._happen, member, fault)
        self._happen(member, fault)
        return None

    def _happen(self, member: Member, fault: Fault) -> None:
        match fault:
            case Fault.DROP | Fault.PASS:
                self._kill(member)
            case Fault.DOUBLE:
                self._first = member.process
                self._kill(member)
            case Fault.TERM:
                self.struck += 1
                member.end(signal.SIGTERM)
            case Fault.FREEZE | Fault.LATE | Fault.LOST:
                self._freeze(member, fault)

    def _kill(self, member: Member) -> None:
        self.struck += 1
        member.wire.loses_requests = member.wire.loses_answers = True
        member.end(signal.SIGKILL)

    def _freeze(self, member: Member, fault: Fault) -> None:
        self.struck += 1
        member.is_frozen = True
        member.wire.holds_requests = fault is Fault.LATE
        member.wire.loses_requests = member.wire.loses_answers = fault is Fault.LOST
        member.process.freeze()
        task = asyncio.create_task(self._thaw(member, fault))
        self.thawing.add(task)
        task.add_done_callback(self.thawing.discard)

    async def _thaw(self, member: Member, fault: Fault) -> None:
        await asyncio.sleep(LEASES_FROZEN * LEASE_S)
        if fault is Fault.LOST:
            member.wire.cut()
        enough = member.heard + WAKING
        member.wire.holds_requests = False
        member.process.thaw()
        with suppress(TimeoutError):
            async with asyncio.timeout(WAKES_S_MAX):
                while member.heard < enough and not member.process.has_ended():  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)
        member.is_frozen = False


@asynccontextmanager
async def opened(
    folder: Path, server: EmbeddedNats, stack: Stack
) -> AsyncIterator[tuple[Pair, Ports]]:
    """Yield two nodes that are starting, and the ports of their stack."""
    pair = Pair(stack, folder, server.url)
    pair.ledger.mkdir(parents=True)
    async with AsyncExitStack() as exits:
        ports = await exits.enter_async_context(connect(server.url, stack=stack))
        for name in ("n1", "n2"):
            await exits.enter_async_context(_hung(pair, name))
        supervising = asyncio.create_task(pair.supervise())
        try:
            yield pair, ports
        finally:
            tasks = [supervising, *pair.thawing]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _hung(pair: Pair, name: str) -> AsyncIterator[None]:
    def strike(point: str) -> Callable[[], None] | None:
        return pair.strike(member, point)

    def tap() -> Tap:
        return Tap(member.hear, pair.counter.deliveries())

    gate = partial(pair.counter.gate, strike)
    async with Wire(pair.nats_url, tap=tap, gate=gate) as wire:
        member = Member(name, wire, pair.launch(name, wire))
        pair.members.append(member)
        try:
            yield
        finally:
            member.process.thaw()
            member.process.kill()

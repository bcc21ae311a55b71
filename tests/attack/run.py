"""Runs cases on several pairs of nodes at the same time, and judges each."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import nats
from nats.aio.client import Client

from streams.embedded import EmbeddedNats
from streams.ports.all import Ports
from streams.subjects import Stack
from tests.attack import ledger
from tests.attack.evidence import Evidence, Reader, shown
from tests.attack.faults import Case
from tests.attack.pair import POLL_S, Pair, opened
from tests.attack.people import People
from tests.attack.stories import STORIES
from tests.attack.verdict import breaches, outcomes_unknown, untold

PAIRS: Final = 6
"""How many cases run at the same time. They mostly wait for leases."""

ENDS_S_MAX: Final = 60.0
"""Longest that a case may take to end: the longest waits are 10 s, for what a dead node had."""

TOLD_S_MAX: Final = 20.0
"""Longest from its end until the world has been told."""

SAY_EVERY: Final = 50
"""Cases between two lines about how far it is."""

SHOWN_MAX: Final = 20
"""Most breaches of one case that are told in words."""


@dataclass(frozen=True)
class Outcome:
    """What became of one case."""

    case: Case
    points: Sequence[str]
    """Those of the messages about it, in order."""
    struck: int
    breaches: list[str]
    unknown: int
    """How many of its episodes ended, or wait, because nobody knows what became of a call."""


_orders = count(1)


@dataclass
class Post:
    """One pair with what is needed to try cases on it, one after the other."""

    pair: Pair
    ports: Ports
    reader: Reader
    people: People

    async def attempt(self, case: Case) -> Outcome:
        """Try one case."""
        order = f"order{next(_orders):06d}"
        await self.pair.wait_whole()
        await self.reader.begin()
        self.people.begin()
        self.pair.begin(order, case.point, case.fault)
        await self.ports.domain_events.publish(f"attack.{case.story}", {"order": order}, id=order)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDS_S_MAX):
                await self.people.ended.wait()
        # A fault may come after the end, and a node that stood still may yet do something.
        await self._wait_told(case, order)
        await self.pair.wait_whole()
        evidence = await self._wait_told(case, order)
        points, struck = self.pair.counter.points, self.pair.struck
        self.pair.disarm()
        found = breaches(evidence)
        if found:
            _say_breach(case, found, points, evidence)
        return Outcome(case, points, struck, found, outcomes_unknown(evidence))

    async def _wait_told(self, case: Case, order: str) -> Evidence:
        deadline_s = time.monotonic() + TOLD_S_MAX
        while True:
            await self.reader.read()
            evidence = Evidence(
                story=STORIES[case.story],
                fault=case.fault,
                stack=self.pair.stack,
                records=self.reader.records(),
                told=self.reader.told(),
                entries=ledger.entries(self.pair.ledger, order),
            )
            if not untold(evidence) or time.monotonic() > deadline_s:
                return evidence
            await asyncio.sleep(POLL_S)


class Attack:
    """Several pairs, on one server."""

    def __init__(self, posts: Sequence[Post]) -> None:
        self._posts = posts

    async def attempt(self, cases: Iterable[Case], *, faults: int | None = None) -> list[Outcome]:
        """Try `cases`, each on the next pair that is free, until there were so many `faults`."""
        outcomes: list[Outcome] = []
        left = iter(cases)

        async def work(post: Post) -> None:
            while faults is None or _struck(outcomes) < faults:
                case = next(left, None)
                if case is None:
                    return
                outcomes.append(await post.attempt(case))
                if len(outcomes) % SAY_EVERY == 0:
                    say(f"  {len(outcomes)} cases, {_struck(outcomes)} faults")

        async with asyncio.TaskGroup() as group:
            for post in self._posts:
                group.create_task(work(post))
        return outcomes

    async def count(self, stories: Iterable[str]) -> list[Outcome]:
        """Run each story once without a fault."""
        return await self.attempt([Case(story) for story in stories])


@asynccontextmanager
async def attacking(folder: Path, *, pairs: int = PAIRS) -> AsyncIterator[Attack]:
    """Yield so many pairs that are up, on a server of their own."""
    # Nothing here breaks the server, so nothing depends on its disk.
    with EmbeddedNats(folder / "nats", sync='"2m"') as server:
        async with AsyncExitStack() as exits:
            client = await nats.connect(server.url)
            exits.push_async_callback(client.close)
            opening = [_post(exits, folder, server, client, n) for n in range(1, pairs + 1)]
            posts = [await each for each in opening]
            for post in posts:
                await post.pair.wait_whole()
            async with asyncio.TaskGroup() as group:
                answering = [group.create_task(post.people.answer()) for post in posts]
                yield Attack(posts)
                for task in answering:
                    task.cancel()


async def _post(
    exits: AsyncExitStack, folder: Path, server: EmbeddedNats, client: Client, number: int
) -> Post:
    stack = Stack(f"attack{number}")
    pair, ports = await exits.enter_async_context(opened(folder / stack.name, server, stack))
    return Post(pair, ports, Reader(client.jetstream(), stack), People(ports))


def _struck(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.struck for outcome in outcomes)


def _say_breach(
    case: Case, found: Sequence[str], points: Sequence[str], evidence: Evidence
) -> None:
    say(f"BREACH  {case}")
    for each in found[:SHOWN_MAX]:
        say(f"  {each}")
    say(f"  published: {' '.join(points)}")
    for line in shown(evidence.records):
        say(line)
    for entry in evidence.entries:
        say(f"    {entry}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

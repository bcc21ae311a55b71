"""People decide, on a real server: at the same time, on what they saw, and late; and what it costs.

Two people are two connections, each with its own idea of the time. Nodes come and go.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest

from engine.app.strategy import ConvergeResult
from engine.errors import Refused
from engine.node.node import Node
from streams.jetstream import connect
from streams.layout import AGGREGATE_STREAMS
from streams.model.events import (
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeResolved,
    LogEvent,
    Resolution,
    SignalWaited,
)
from streams.ports.all import Ports
from tests.standing import standing
from vigil import Actor, App, Strategy, approval, converge, event, wait
from vigil.ports import ApprovalTarget, decide_request

WAIT_S: Final = 100.0
"""Only what hangs takes so long, on a busy machine too. Measured: 5 s for a thousand episodes."""

LOOK_S: Final = 0.05

ASKED: Final = "refund.asked"
EXPIRES_S: Final = 1.0

WARM: Final = 200
"""Episodes that wait before anything is measured: what grows once has grown by then."""

MANY: Final = 1_000
BLOCKS_MAX: Final = 1
"""Blocks of memory that one more episode that waits may take of a node, on average: not an object.
Counted, not traced: what is traced takes three times as long. Measured: 0.2."""


class Refund(Strategy):
    """Asks whether to pay back, and then how much once more."""

    class State(msgspec.Struct):
        customer: str
        asked: int = 0

    def init(self, episode, trigger):
        return self.State(customer=trigger.payload["customer"])

    def next_step(self, state, ctx):
        if state.asked == 2:
            return converge()
        plan = {"pay": state.customer, "euros": (10, 20)[state.asked]}
        return approval(plan, approvers=("ann", "bob"))

    def handle_result(self, state, step, result):
        handled = super().handle_result(state, step, result)
        return self.State(state.customer, state.asked + 1) if handled is state else handled

    def converge(self, state, ctx):
        return ConvergeResult(classification={"paid": state.customer})


class Once(Refund):
    """Asks once."""

    def next_step(self, state, ctx):
        return converge() if state.asked else approval({"pay": state.customer})


class Hasty(Refund):
    """Asks once, and takes silence for a yes."""

    def next_step(self, state, ctx):
        if state.asked:
            return converge()
        return approval({"pay": state.customer}, expires_s=EXPIRES_S, on_expiry="approve")


class Patient(Refund):
    """Waits for word from outside, for as long as it takes."""

    def next_step(self, state, ctx):
        return converge() if state.asked else wait(f"payment:{state.customer}")


@pytest.fixture
async def people(nats, stack) -> AsyncIterator[tuple[Ports, Ports]]:
    """Ann's connection and Bob's."""
    async with connect(nats.url, stack=stack) as ann, connect(nats.url, stack=stack) as bob:
        yield ann, bob


@asynccontextmanager
async def node(ports: Ports, strategy: type[Refund], name: str = "n1") -> AsyncIterator[Node]:
    clerk = Actor("clerk", max_concurrent_episodes=8)
    clerk.expect("refunds_are_approved", strategy, on=event(ASKED))
    await (await ports.domain_events.open(clerk.id, clerk.event_names())).close()
    running = Node(App(actors=[clerk]), ports, name=name, grace_s=5.0)
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        running.stop()
        assert await task, "the node stops cleanly"


async def ask(ports: Ports, customer: str = "eve") -> None:
    await ports.domain_events.publish(ASKED, {"customer": customer}, id=customer)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(LOOK_S)


async def happened(ports: Ports, *kinds: type[LogEvent]) -> list[tuple[str, LogEvent]]:
    """Return what of `kinds` is stored, with the last word of the subject that it is at."""
    return [
        (record.subject.rpartition(".")[2], each)
        for stream in AGGREGATE_STREAMS
        for record in await standing(ports.log, stream)
        for each in record.commit.events
        if isinstance(each, kinds)
    ]


async def nth(ports: Ports, kind: type[LogEvent], number: int) -> tuple[str, LogEvent]:
    """Return the `number`-th event of a kind, from 1, once it has happened."""

    async def is_there() -> bool:
        return len(await happened(ports, kind)) >= number

    await until(is_there)
    return (await happened(ports, kind))[number - 1]


async def decide(
    ports: Ports, block: tuple[str, LogEvent], by: str, verdict="approve", reason=""
) -> str:
    """Decide on what an episode asked by a block of its own."""
    episode_id, asked = block
    target, plan_hash = ApprovalTarget("episode", episode_id), asked.approval.plan_hash
    return await decide_request(ports, target, verdict, plan_hash=plan_hash, by=by, reason=reason)


async def test_of_two_who_decide_at_once_one_stands_and_the_other_learns_whose(people):
    ann, bob = people
    async with node(ann, Once):
        await ask(ann)
        block = await nth(ann, EpisodeBlocked, 1)
        decisions = await asyncio.gather(
            decide(ann, block, "ann", "approve", "seen"),
            decide(bob, block, "bob", "deny", "too much"),
            return_exceptions=True,  # Who is much slower is told at once.
        )
        _, stands = await nth(ann, EpisodeResolved, 1)
        loser, by = (bob, "bob") if stands.by == "ann" else (ann, "ann")
        with pytest.raises(Refused, match=f"by {stands.by}") as told:
            await decide(loser, block, by)

    assert stands.decision_id in decisions
    assert [each.step_no for _, each in await happened(ann, EpisodeResolved)] == [1]
    assert stands.reason in str(told.value)


async def test_who_saw_an_older_plan_is_refused_while_the_right_decision_stands(people):
    ann, bob = people
    async with node(ann, Refund):
        await ask(ann)
        first = await nth(ann, EpisodeBlocked, 1)
        await decide(ann, first, "ann")
        second = await nth(ann, EpisodeBlocked, 2)
        stale, decided = await asyncio.gather(
            decide(bob, first, "bob"),
            decide(ann, second, "ann"),
            return_exceptions=True,
        )
        _, end = await nth(ann, EpisodeFinished, 1)

    assert isinstance(stale, Refused), stale
    assert "another plan" in str(stale) or "by ann" in str(stale)
    answers = [each for _, each in await happened(ann, EpisodeResolved)]
    assert [each.by for each in answers] == ["ann", "ann"]
    assert answers[1].decision_id == decided
    assert end.status.value == "done"


@pytest.mark.nightly
async def test_what_expires_while_no_node_runs_is_answered_when_one_starts(people):
    ann, bob = people
    async with node(ann, Hasty):
        await ask(ann)
        block = await nth(ann, EpisodeBlocked, 1)

        async def is_left() -> bool:
            return await ann.timers.pending("clerk", "attend", block[0]) is not None

        await until(is_left)

    async def is_due() -> bool:
        return await ann.timers.backlog("clerk") > 0

    await until(is_due)
    assert await happened(ann, EpisodeResolved) == []
    with pytest.raises(Refused, match="expired"):
        await decide(bob, block, "bob", "deny")
    async with node(ann, Hasty, "n2"):
        _, answer = await nth(ann, EpisodeResolved, 1)
        await nth(ann, EpisodeFinished, 1)

    assert (answer.resolution, answer.by) == (Resolution.EXPIRED, "")


@pytest.mark.nightly
async def test_a_thousand_episodes_that_wait_take_no_slot_and_next_to_no_memory(people):
    ann, _ = people
    async with node(ann, Patient) as running:
        await wait_blocked(ann, running, WARM, total=WARM)
        before = blocks_held()
        await wait_blocked(ann, running, MANY, total=WARM + MANY)
        taken = blocks_held() - before
    assert len(await happened(ann, SignalWaited)) == WARM + MANY
    assert taken / MANY < BLOCKS_MAX, f"{taken / MANY:.1f} blocks each"


async def wait_blocked(ports: Ports, running: Node, count: int, *, total: int) -> None:
    """Have `count` more episodes wait, and wait until nobody has any of the `total` any more."""
    await asyncio.gather(*(ask(ports, f"c{total}-{number}") for number in range(count)))

    async def are_left() -> bool:
        if running._running._attempts or await ports.commands.backlog("clerk"):
            return False
        return len(await happened(ports, SignalWaited)) == total

    await until(are_left)


def blocks_held() -> int:
    """Return how many blocks of memory the objects of this process take."""
    gc.collect()
    return sys.getallocatedblocks()

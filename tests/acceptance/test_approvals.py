"""Episodes wait for people on a real server: one decision stands, time is kept, nodes are free."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

import pytest

from engine import (
    Actor,
    App,
    Refused,
    Strategy,
    approval,
    approve,
    deny,
    done,
    event,
)
from engine.runtime.node import Node
from streams.events import (
    EndStatus,
    EpisodeBlocked,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeResolved,
    LogEvent,
    Resolution,
)
from streams.jetstream import connect
from streams.layout import Stream
from streams.log import Recorded
from streams.ports import Ports

WAIT_S: Final = 60.0
LOOK_S: Final = 0.05

ASKED: Final = "release.wanted"
STALE: Final = "0" * 64

BLOCKED: Final = 1_000
BYTES_MAX: Final = 1_024
"""What a blocked episode may cost a node, in bytes."""

SLOTS: Final = 8


class Release(Strategy[dict[str, object]]):
    """Asks whether it may."""

    def init(self, episode, trigger):
        return {**trigger.payload, "is_answered": False}

    def next_step(self, state, ctx):
        if state["is_answered"]:
            return done()
        return approval({"release": state["release"]}, expires_s=state.get("expires_s"))

    def handle_result(self, state, step, result):
        handled = super().handle_result(state, step, result)
        return {**state, "is_answered": True} if handled is state else handled

    def converge(self, state, ctx):
        raise AssertionError("it ends without a result")


@pytest.fixture
async def ports(nats, stack) -> AsyncIterator[Ports]:
    async with connect(nats.url, stack=stack) as ports:
        yield ports


def an_app() -> App:
    releases = Actor("releases", max_concurrent_episodes=SLOTS)
    releases.expect("are_wanted", Release, on=event(ASKED))
    return App(actors=[releases])


@asynccontextmanager
async def running(ports: Ports, name: str) -> AsyncIterator[None]:
    """A node, for as long as the context lasts."""
    app = an_app()
    for actor in app.actors.values():
        await (await ports.world.open(actor.id, actor.event_names())).close()
    node = Node(app, ports, name=name, grace_s=5.0)
    serving = asyncio.create_task(node.run())
    try:
        yield
    finally:
        node.stop()
        assert await serving, "the node stops cleanly"


async def episodes(ports: Ports, *, until: type[LogEvent], count: int) -> Sequence[str]:
    """Return the ids of the first `count` episodes at an event of the kind `until`."""
    found: dict[str, None] = {}
    async with asyncio.timeout(WAIT_S), ports.log.follow(Stream.JOURNAL) as follower:
        while len(found) < count:
            for record in await follower.receive(most=500, wait_s=1):
                if any(isinstance(each, until) for each in record.commit.events):
                    found[ports.stack.aggregate_of(record.subject)[1]] = None
    return list(found)


async def life(ports: Ports, id_: str, *, until: type[LogEvent]) -> list[LogEvent]:
    """Return what has happened to an episode, once it is at an event of the kind `until`."""
    async with asyncio.timeout(WAIT_S):
        while True:
            records: Sequence[Recorded] = await ports.log.read(ports.stack.episode(id_))
            events = [each for record in records for each in record.commit.events]
            if any(isinstance(each, until) for each in events):
                return events
            await asyncio.sleep(LOOK_S)


def only(events: Sequence[LogEvent], kind: type[LogEvent]) -> LogEvent:
    (found,) = [each for each in events if isinstance(each, kind)]
    return found


async def test_of_two_who_decide_at_once_one_stands_and_who_comes_late_is_told(ports):
    async with running(ports, "n1"):
        await ports.world.publish(ASKED, {"release": "1.0"}, id="r1")
        (id_,) = await episodes(ports, until=EpisodeBlocked, count=1)
        asked = only(await life(ports, id_, until=EpisodeBlocked), EpisodeBlocked).approval
        assert asked is not None
        stale, right, other = await asyncio.gather(
            approve(ports, id_, plan_hash=STALE, by="eve"),
            approve(ports, id_, plan_hash=asked.plan_hash, by="ann"),
            deny(ports, id_, plan_hash=asked.plan_hash, by="bob"),
            return_exceptions=True,
        )
        events = await life(ports, id_, until=EpisodeFinished)
        with pytest.raises(Refused) as late:
            await deny(ports, id_, plan_hash=asked.plan_hash, by="cas")

    assert isinstance(stale, Refused)
    assert "plan" in str(stale)
    resolved = only(events, EpisodeResolved)
    assert resolved.decision_id in {right, other}
    stood = {Resolution.APPROVED: ("ann", right), Resolution.DENIED: ("bob", other)}
    assert (resolved.by, resolved.decision_id) == stood[resolved.resolution]
    assert f"{resolved.resolution.value} by {resolved.by}" in str(late.value)
    assert only(events, EpisodeOpened).episode_id == id_


async def test_an_expiry_that_comes_while_no_node_runs_holds_once_one_does(ports):
    async with running(ports, "n1"):
        await ports.world.publish(ASKED, {"release": "1.0", "expires_s": 1.0}, id="r1")
        (id_,) = await episodes(ports, until=EpisodeBlocked, count=1)
    asked = only(await life(ports, id_, until=EpisodeBlocked), EpisodeBlocked).approval
    assert asked is not None
    assert asked.expires_at is not None
    await asyncio.sleep((asked.expires_at - datetime.now(UTC)).total_seconds() + LOOK_S)
    with pytest.raises(Refused, match="expired at"):
        await approve(ports, id_, plan_hash=asked.plan_hash, by="ann")
    before = await ports.log.read(ports.stack.episode(id_))
    assert not any(isinstance(e, EpisodeResolved) for each in before for e in each.commit.events)

    async with running(ports, "n2"):
        events = await life(ports, id_, until=EpisodeFinished)

    resolved, finished = only(events, EpisodeResolved), only(events, EpisodeFinished)
    assert (resolved.resolution, resolved.by) == (Resolution.EXPIRED, "")
    assert (finished.status, finished.error_class) == (EndStatus.CANCELED, "denied")


@pytest.mark.timeout(180)
async def test_a_thousand_that_wait_hold_no_slot_and_next_to_no_memory_of_a_node(ports):
    async with running(ports, "n1"):
        await publish(ports, "warm", SLOTS)
        await episodes(ports, until=EpisodeBlocked, count=SLOTS)
        tracemalloc.start()
        try:
            before = traced()
            await publish(ports, "r", BLOCKED)
            ids = await episodes(ports, until=EpisodeBlocked, count=SLOTS + BLOCKED)
            each = (traced() - before) / BLOCKED
        finally:
            tracemalloc.stop()
        asked = only(await life(ports, ids[0], until=EpisodeBlocked), EpisodeBlocked).approval
        assert asked is not None
        await approve(ports, ids[0], plan_hash=asked.plan_hash, by="ann")
        await life(ports, ids[0], until=EpisodeFinished)

    assert each < BYTES_MAX


async def publish(ports: Ports, prefix: str, count: int) -> None:
    for n in range(count):
        id_ = f"{prefix}{n}"
        await ports.world.publish(ASKED, {"release": id_}, id=id_)


def traced() -> int:
    """Return how many bytes Python holds, of what was asked for since tracing began."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]

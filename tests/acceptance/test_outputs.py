"""An output reaches a receiver that fails in every way, or it waits for a person: nothing is lost.

A real node, a real NATS server and a real HTTP receiver; the ways in which a receiver can fail, one
by one, are told apart in `tests/engine/adapters`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from engine.adapters.webhook import Webhook
from engine.app.actions import Retries
from engine.app.outputs import Route
from engine.node.node import Node
from streams.jetstream import connect
from streams.layout import Stream
from streams.model.events import LogEvent, OutputAttempted, OutputDelivered, OutputFailed
from streams.ports.all import Ports
from tests.engine.adapters.receiver import Receiver, answer, silence
from vigil import Actor, App, ConvergeResult, Strategy, converge, event, propose_output
from vigil.ports import retry_output

WAIT_S: Final = 30.0
LOOK_S: Final = 0.05

FULL: Final = "disk.full"
KEY: Final = "alert/host-1"


class Alert(Strategy[dict[str, str]]):
    """Has somebody called."""

    def init(self, episode, trigger):
        return {"host": trigger.payload["host"]}

    def next_step(self, state, ctx):
        return converge()

    def converge(self, state, ctx):
        return ConvergeResult(outputs=[propose_output("pager", state, dedupe_key=KEY)])


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests go to loopback, whatever this machine's own do."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
async def ports(nats, stack) -> AsyncIterator[Ports]:
    async with connect(nats.url, stack=stack) as ports:
        yield ports


@asynccontextmanager
async def paging(ports: Ports, receiver: Receiver) -> AsyncIterator[None]:
    """A node that has the receiver paged, quick to try again, and an event that calls for it."""
    monitor = Actor("monitor")
    monitor.expect("disks_have_room", Alert, on=event(FULL))
    webhook = Webhook(receiver.url, timeout_s=0.5)
    route = Route(webhook, retries=Retries(attempts_max=5, first_s=0.1, most_s=0.2))
    await (await ports.domain_events.open(monitor.id, monitor.event_names())).close()
    node = Node(App(actors=[monitor], outputs={"pager": route}), ports, name="n1", grace_s=5.0)
    running = asyncio.create_task(node.run())
    try:
        await ports.domain_events.publish(FULL, {"host": "host-1"}, id="full-1")
        yield
    finally:
        node.stop()
        assert await running, "the node stops cleanly"


async def life(ports: Ports, *, until: type[LogEvent]) -> Sequence[LogEvent]:
    """Return what has happened to the output, once it is at an event of the kind `until`."""
    async with asyncio.timeout(WAIT_S):
        while True:
            records = await ports.log.read(ports.stack.output(KEY))
            events = [event for record in records for event in record.commit.events]
            if any(isinstance(event, until) for event in events):
                return events
            await asyncio.sleep(LOOK_S)


async def letters(ports: Ports, *, count: int) -> Sequence[LogEvent]:
    """Return the first `count` events about dead letters."""
    events: list[LogEvent] = []
    async with asyncio.timeout(WAIT_S), ports.log.follow(Stream.DEAD) as follower:
        while len(events) < count:
            for record in await follower.receive(most=count, wait_s=1):
                events.extend(record.commit.events)
    return events


async def test_a_receiver_that_fails_for_now_gets_the_output_under_one_key(ports):
    failing = (answer(503), answer(503), silence, answer(200, b'{"id": "call-1"}'))
    async with Receiver(*failing) as receiver, paging(ports, receiver):
        events = await life(ports, until=OutputDelivered)

    attempts = [event.attempt for event in events if isinstance(event, OutputAttempted)]
    assert attempts == [1, 2, 3, 4]
    assert isinstance(events[-1], OutputDelivered)
    assert events[-1].delivered_ref == "call-1"
    assert [request.body for request in receiver.requests] == [b'{"host":"host-1"}'] * 4
    assert len({request.headers["idempotency-key"] for request in receiver.requests}) == 1
    said = [request.headers["vigil-attempt"] for request in receiver.requests]
    assert said == ["1", "2", "3", "4"]


async def test_what_a_receiver_does_not_want_waits_for_a_person_who_has_it_tried_again(ports):
    async with Receiver(answer(400, b"no such host")) as receiver, paging(ports, receiver):
        failed = (await life(ports, until=OutputFailed))[-1]
        (letter,) = await letters(ports, count=1)
        assert len(receiver.requests) == 1

        receiver.answers = [answer(200)]
        await retry_output(ports, KEY, by="ann", reason="the receiver knows it now")
        await life(ports, until=OutputDelivered)
        settled = (await letters(ports, count=2))[-1]

    assert (failed.error_class, failed.error_detail) == ("http_400", "no such host")
    assert "no such host" in letter.detail
    assert settled.by == "ann"
    keys = {request.headers["idempotency-key"] for request in receiver.requests}
    assert (len(receiver.requests), len(keys)) == (2, 1)

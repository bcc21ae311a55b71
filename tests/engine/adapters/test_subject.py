"""Outputs as NATS messages. What the ports promise of them is in `tests/contracts`."""

from __future__ import annotations

import json

import nats as nats_client
import pytest
from nats.js.api import DiscardPolicy

from engine.adapters.subject import Subject
from streams.clock import SystemClock
from streams.jetstream import connect
from streams.memory import memory_ports
from streams.model.events import EpisodeOpened
from streams.model.triggers import Budget, EventTrigger
from streams.ports.log import START, Commit
from tests.engine.adapters.conftest import NOW
from tests.engine.adapters.samples import KEY, failure_of, output


@pytest.fixture
def ports():
    return memory_ports(clock=SystemClock())


@pytest.fixture
def orders(ports):
    return ports.domain_events.add_stream("ORDERS", captures=["orders.>"])


async def opened(ports, subject=None):
    adapter = Subject(subject)
    await adapter.open(ports)
    return adapter


async def an_episode(ports, *, hops):
    """Have there be the episode whose output is delivered, woken by the end of a chain."""
    trigger = EventTrigger(event_id="e1", event_type="order.placed", payload={}, hops=hops)
    event = EpisodeOpened(
        episode_id="ep-1",
        actor_id="monitor",
        expectation_id="limits",
        trigger=trigger,
        dedupe_key="e1",
        budget=Budget(),
    )
    commit = Commit(id="c1", at=NOW, events=(event,))
    await ports.log.append(ports.stack.episode("ep-1"), commit, after=START)


async def test_the_payload_is_the_message(ports, orders):
    adapter = await opened(ports, "orders.checked")
    ref = await adapter.deliver(output({"b": 1, "a": "ü"}))
    message = orders.last_of("orders.checked")
    assert ref == "ORDERS:1"
    assert message.data == '{"a":"ü","b":1}'.encode()
    assert message.headers["Nats-Msg-Id"] == KEY


async def test_a_payload_may_say_where_it_goes(ports, orders):
    payload = {"subject": "orders.late", "data": [1], "headers": {"x-days": "2"}}
    await (await opened(ports)).deliver(output(payload))
    message = orders.last_of("orders.late")
    assert json.loads(message.data) == [1]
    assert message.headers["x-days"] == "2"


async def test_an_output_that_is_sent_again_is_kept_once(ports, orders):
    adapter = await opened(ports, "orders.checked")
    refs = [await adapter.deliver(output("full", attempt=attempt)) for attempt in (1, 2)]
    assert refs == ["ORDERS:1", "ORDERS:1"]


async def test_an_output_that_is_an_event_goes_on_with_its_episodes_chain(ports):
    await an_episode(ports, hops=15)
    adapter = await opened(ports, ports.stack.event("order.checked"))
    await adapter.deliver(output({"n": 1}))
    source = await ports.domain_events.open("monitor", ["order.checked"], after=0)
    (delivery,) = await source.receive(room=1, wait_s=1)
    assert (delivery.content.name, delivery.content.hops) == ("order.checked", 16)


@pytest.mark.parametrize(
    ("payload", "error_class"),
    [
        ("full", "bad_payload"),
        ({"data": 1}, "bad_payload"),
        ({"subject": "orders.late", "date": 1}, "bad_payload"),
        ({"subject": 7}, "bad_payload"),
        ({"subject": "orders.late", "headers": {"a": 1}}, "bad_payload"),
        ({"subject": "orders.*"}, "bad_subject"),
        ({"subject": "$JS.API.INFO"}, "bad_subject"),
        ({"subject": "vigil.episode.x"}, "bad_subject"),
        ({"subject": "orders.late", "headers": {"Nats-Rollup": "all"}}, "bad_subject"),
        ({"subject": "nobody.listens"}, "no_stream"),
        ({"subject": "orders.late", "data": "x" * 1024 * 1024}, "too_large"),
    ],
)
async def test_what_cannot_be_sent_fails_for_good(ports, orders, payload, error_class):
    failure = await failure_of(await opened(ports), payload)
    assert (failure.error_class, failure.permanent) == (error_class, True)
    assert orders.last_seq == 0


@pytest.mark.parametrize("subject", ["", "a b", "a.*", "$KV.x.y", "_INBOX.x", "x" * 2000])
def test_a_subject_that_cannot_work_is_refused_where_it_is_declared(subject):
    with pytest.raises(ValueError, match="Subject"):
        Subject(subject)


async def test_a_stream_that_is_full_may_have_room_later(nats, stack):
    name = f"FULL-{stack.name}"
    client = await nats_client.connect(nats.url)
    try:
        await client.jetstream().add_stream(
            name=name, subjects=[f"{name}.>"], max_msgs=1, discard=DiscardPolicy.NEW
        )
        async with connect(nats.url, stack=stack) as ports:
            adapter = await opened(ports, f"{name}.checked")
            assert await adapter.deliver(output("full", key="another")) == f"{name}:1"
            failure = await failure_of(adapter)
    finally:
        await client.close()
    assert (failure.error_class, failure.permanent) == ("receiver_unavailable", False)

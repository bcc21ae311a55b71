"""Whose word counts about a stream, and what is not made anew, on a real server."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest

from streams.embedded import EmbeddedNats
from streams.jetstream import (
    LinkSettings,
    accept_losses,
    connect,
    find_losses,
    remove_marks,
)
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.configs import NS_PER_S, bucket_stream, names_of
from streams.jetstream.setup.states import HEARD_S_MAX, is_led
from streams.keys import STREAMS, lost_key, published_key, started_event
from streams.layout import Stream
from streams.model.losses import (
    Consent,
    KnownPast,
    Lack,
    LogLost,
    Loss,
    LossMark,
    begun,
)
from streams.ports.all import Ports
from tests.contracts.samples import commit

AT = datetime(2030, 1, 1, tzinfo=UTC)
LOSS = Loss(part="journal", lack=Lack.ENDS_EARLY, known_seq=9, last_seq=6)


async def no_rows(_) -> None:
    """There are none."""


@asynccontextmanager
async def linked(url):
    async with Link(url, LinkSettings()) as link:
        yield link


async def note(ports: Ports) -> None:
    """Note what is there, as a node does that starts."""
    states = {part: await ports.states.of(part) for part in ports.states.parts}
    data = msgspec.json.encode(begun(states))
    for bucket in (ports.registry, ports.gates):
        await bucket.put(STREAMS, data)


async def made(nats, stack, *, is_noted: bool = True, commits: int = 3) -> None:
    async with connect(nats.url, stack=stack) as ports:
        for number in range(commits):
            await ports.log.append(ports.stack.episode(f"e{number}"), commit("c"), after=0)
        if is_noted:
            await note(ports)


async def delete(nats, name) -> None:
    async with linked(nats.url) as link:
        await api.call(link, f"STREAM.DELETE.{name}")


async def lost(nats, stack, **options) -> LogLost:
    with pytest.raises(LogLost) as told:
        async with connect(nats.url, stack=stack, **options):
            pass
    return told.value


def led_by(copies, *heard_s) -> bool:
    replicas = [{"name": f"s{n}", "active": round(s * NS_PER_S)} for n, s in enumerate(heard_s)]
    return is_led({"config": {"num_replicas": copies}, "cluster": {"replicas": replicas}})


def test_a_leader_is_believed_while_it_hears_from_most_copies():
    late_s = HEARD_S_MAX + 0.1
    assert is_led({"config": {"num_replicas": 1}})
    assert led_by(3, 0.5, late_s)
    assert not led_by(3, late_s, late_s)
    assert not led_by(3)
    assert led_by(5, 0.1, 0.1, late_s, late_s)
    assert not led_by(5, 0.1, late_s, late_s, late_s)


@pytest.mark.parametrize("part", ["journal", "work", "events", "gates", "blobs"])
async def test_a_stream_that_a_node_has_seen_is_not_made_anew(nats, stack, part):
    await made(nats, stack)
    await delete(nats, names_of(stack)[part])
    for _ in range(2):
        (found,) = (await lost(nats, stack)).losses
        assert (found.part, found.lack) == (part, Lack.MISSING)


async def test_a_stack_that_was_not_made_whole_is_completed(nats, stack):
    await made(nats, stack, is_noted=False, commits=0)
    await delete(nats, stack.stream(Stream.JOURNAL))
    async with connect(nats.url, stack=stack) as ports:
        assert await ports.log.head() == 0


async def test_a_registry_is_not_made_anew_while_later_streams_are_there(nats, stack):
    await made(nats, stack)
    await delete(nats, bucket_stream(stack.registry_bucket()))
    (found,) = (await lost(nats, stack)).losses
    assert (found.part, found.lack) == ("registry", Lack.MISSING)


async def test_what_the_rows_know_is_not_made_anew(nats, stack):
    found = (await lost(nats, stack, known={"journal": 7, "state": 0})).losses
    assert [(each.part, each.known_seq) for each in found] == [("journal", 7), ("registry", 0)]
    async with connect(nats.url, stack=stack, known={"journal": 0}):
        pass


async def test_a_stack_with_a_mark_is_for_those_alone_who_only_read(nats, stack):
    await made(nats, stack)
    async with connect(nats.url, stack=stack) as ports:
        await ports.registry.put(lost_key("journal"), msgspec.json.encode(LossMark(loss=LOSS)))
    assert (await lost(nats, stack)).losses == [LOSS]
    assert (await lost(nats, stack, creates=False, is_for_node=True)).losses == [LOSS]
    async with connect(nats.url, stack=stack, is_reading=True) as ports:
        assert await ports.log.head() == 3


async def test_a_publisher_who_may_not_read_the_mark_sees_it_all_the_same(tmp_path, stack):
    may = ["$JS.API.INFO", "$JS.API.STREAM.INFO.*", f"{stack.name}.event.>"]
    limits = f"{{publish: {{allow: {json.dumps(may)}}}}}"
    users = f"{{user: admin, password: x}}, {{user: shop, password: x, permissions: {limits}}}"
    with EmbeddedNats(tmp_path, extra_config=f"authorization {{ users: [{users}] }}") as server:
        admin, shop = [LinkSettings(user=each, password="x") for each in ("admin", "shop")]
        async with connect(server.url, stack=stack, settings=admin) as ports:
            async with connect(server.url, stack=stack, settings=shop):
                pass
            mark = msgspec.json.encode(LossMark(loss=LOSS))
            await ports.registry.put(lost_key("journal"), mark)
        (found,) = (await lost(server, stack, settings=shop)).losses
        assert (found.part, found.lack) == ("journal", Lack.NOTED)


async def test_what_is_accepted_is_made_noted_and_lets_nodes_start(nats, stack):
    await made(nats, stack)
    async with connect(nats.url, stack=stack) as ports:
        await ports.gates.put(published_key("journal"), b"3")
        await ports.registry.put(lost_key("journal"), msgspec.json.encode(LossMark(loss=LOSS)))
    await delete(nats, stack.stream(Stream.JOURNAL))
    found = await find_losses(nats.url, stack=stack, known={})
    assert [(each.part, each.lack, each.known_seq) for each in found.losses] == [
        ("journal", Lack.MISSING, 9)
    ]
    consent = Consent(by="ann", at=AT, reason="drill")
    for _ in range(2):  # It may be interrupted and repeated.
        await accept_losses(nats.url, found=found, consent=consent, resume_rows=no_rows)
    assert (await lost(nats, stack)).losses
    await remove_marks(nats.url, stack=stack)

    async with connect(nats.url, stack=stack, is_for_node=True) as ports:
        assert int((await ports.gates.get(published_key("journal"))).value) == 0
        noted = msgspec.json.decode(
            (await ports.registry.get(STREAMS)).value, type=dict[str, KnownPast]
        )
        assert noted["journal"].accepted.consent == consent
        assert noted["state"].accepted is None
    assert (await find_losses(nats.url, stack=stack, known={})).losses == []


@pytest.mark.parametrize("others", [[], ["journal"]])
async def test_without_the_gates_no_position_is_made_up_and_none_may_start(nats, stack, others):
    """Where the reactors were follows from what they have published."""
    await made(nats, stack)
    async with connect(nats.url, stack=stack) as ports:
        await ports.gates.put(published_key("journal"), b"3")
    for part in ("gates", *others):
        await delete(nats, names_of(stack)[part])
    found = await find_losses(nats.url, stack=stack, known={})
    assert [each.part for each in found.losses] == [*others, "gates"]
    consent = Consent(by="ann", at=AT)
    await accept_losses(nats.url, found=found, consent=consent, resume_rows=no_rows)
    marked = {each.part for each in (await lost(nats, stack)).losses}
    assert marked == {"gates", *others}
    async with connect(nats.url, stack=stack, is_reading=True) as ports:
        assert await ports.gates.get(published_key("journal")) is None


async def test_gates_without_the_position_of_a_reactor_that_has_published_are_a_loss(nats, stack):
    await made(nats, stack)
    assert (await find_losses(nats.url, stack=stack, known={})).losses == []
    async with connect(nats.url, stack=stack) as ports:
        await ports.domain_events.fence(started_event("state"), {}, id="f")
    found = await find_losses(nats.url, stack=stack, known={})
    assert [(each.part, each.lack) for each in found.losses] == [("gates", Lack.FORGOTTEN)]
    async with connect(nats.url, stack=stack) as ports:
        await ports.gates.put(published_key("state"), b"0")
    assert (await find_losses(nats.url, stack=stack, known={})).losses == []


async def test_a_position_that_was_noted_is_missed_though_no_event_of_its_reactor_is_left(
    nats, stack
):
    async with connect(nats.url, stack=stack) as ports:
        await ports.registry.put(published_key("state"), b"")
    found = await find_losses(nats.url, stack=stack, known={})
    assert [(each.part, each.lack) for each in found.losses] == [("gates", Lack.FORGOTTEN)]

"""What every `FencedWriter` promises."""

from __future__ import annotations

import pytest

from streams.errors import VersionConflict
from streams.ports.domain_events import DomainEvent, Publication
from streams.wire.messages import event_body
from tests.contracts.samples import deliveries_of, opened

FENCE = "reactor.started.journal"
NAME = "finding.raised"


@pytest.fixture
def world(ports):
    return ports.domain_events


def publications(*ids: str, name: str = NAME) -> list[Publication]:
    return [Publication(name=name, data=event_body(name, {"n": id_}), id=id_) for id_ in ids]


async def received(world, count: int) -> list[DomainEvent]:
    async with opened(world.open("monitor", [NAME], after=0)) as source:
        return [each.content for each in await deliveries_of(source, count)]


@pytest.mark.parametrize("count", [1, 2, 15, 40, 300], ids=str)
async def test_events_are_published_in_order(world, count):
    writer = await world.fence(FENCE, {}, id="f1")
    ids = [f"e{number}" for number in range(count)]
    await writer.publish(publications(*ids))
    assert [each.id for each in await received(world, count)] == ids


async def test_an_event_is_published_as_it_was_handed_over(world):
    writer = await world.fence(FENCE, {}, id="f1")
    data = event_body(NAME, {"host": "münchen-1"})
    await writer.publish([Publication(name=NAME, data=data, id="e1", hops=2, trace="00-aa-bb-01")])
    (event,) = await received(world, 1)
    assert (event.name, event.payload, event.id, event.hops) == (
        NAME,
        {"host": "münchen-1"},
        "e1",
        2,
    )


@pytest.mark.parametrize("count", [1, 3, 40], ids=str)
async def test_who_was_overtaken_publishes_nothing_more(world, count):
    first = await world.fence(FENCE, {}, id="f1")
    await first.publish(publications("e1"))
    second = await world.fence(FENCE, {}, id="f2")
    with pytest.raises(VersionConflict):
        await first.publish(publications(*(f"late-{number}" for number in range(count))))
    await second.publish(publications("e2"))
    assert [each.id for each in await received(world, 2)] == ["e1", "e2"]


async def test_a_fence_of_another_name_stops_nobody(world):
    writer = await world.fence(FENCE, {}, id="f1")
    await world.fence(f"{FENCE}-1", {}, id="f2")
    await writer.publish(publications("e1"))
    assert [each.id for each in await received(world, 1)] == ["e1"]


@pytest.mark.parametrize("count", [2, 40], ids=str)
async def test_what_is_published_again_is_there_once(world, count):
    ids = [f"e{number}" for number in range(count)]
    writer = await world.fence(FENCE, {}, id="f1")
    await writer.publish(publications(*ids[: count // 2]))
    writer = await world.fence(FENCE, {}, id="f2")
    await writer.publish(publications(*ids))
    assert [each.id for each in await received(world, count)] == ids


async def test_one_id_twice_in_one_call_is_there_once(world):
    writer = await world.fence(FENCE, {}, id="f1")
    ids = [f"e{number}" for number in range(30)]
    await writer.publish(publications(*ids, *ids))
    assert [each.id for each in await received(world, 30)] == ids


async def test_others_publish_in_between(world):
    writer = await world.fence(FENCE, {}, id="f1")
    await writer.publish(publications("e1"))
    await world.publish(NAME, {}, id="other")
    await writer.publish(publications("e2"))
    assert [each.id for each in await received(world, 3)] == ["e1", "other", "e2"]


async def test_nothing_to_publish_is_no_trouble(world):
    writer = await world.fence(FENCE, {}, id="f1")
    await writer.publish([])

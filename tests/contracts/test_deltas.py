"""What every `Deltas` promises."""

from __future__ import annotations

from streams.model.deltas import Delta, DeltaEnd
from streams.ports.deltas import WAITING_MAX

SOON_S = 5.0
"""Longest wait for what was published."""


def delta(place=0, **more):
    return Delta(**{"path": "1.m1.1", "attempt": 1, "place": place, **more})


async def heard(listener, count):
    found = []
    while len(found) < count:
        got = await listener.receive(most=100, wait_s=SOON_S)
        assert got, f"{len(found)} of {count} have come"
        found += got
    return found


async def test_who_listens_hears_what_is_published_as_it_was_and_in_its_order(ports):
    told = [delta(0, text="it "), delta(1, text="is", tools=("restart",))]
    told.append(delta(2, end=DeltaEnd.DONE))
    async with ports.deltas.listen("e1") as listener:
        for each in told:
            ports.deltas.publish("e1", each)
        assert await heard(listener, 3) == told


async def test_everybody_who_listens_hears_it(ports):
    async with ports.deltas.listen("e1") as one, ports.deltas.listen("e1") as other:
        ports.deltas.publish("e1", delta())
        assert await heard(one, 1) == await heard(other, 1) == [delta()]


async def test_what_was_published_before_and_about_another_episode_is_not_heard(ports):
    ports.deltas.publish("e1", delta(0))
    async with ports.deltas.listen("e1") as listener:
        ports.deltas.publish("e2", delta(1))
        ports.deltas.publish("e1", delta(2))
        assert await heard(listener, 1) == [delta(2)]


async def test_as_many_come_at_once_as_are_asked_for(ports):
    async with ports.deltas.listen("e1") as listener, ports.deltas.listen("e1") as other:
        for place in range(3):
            ports.deltas.publish("e1", delta(place))
        await heard(other, 3)
        found = [await listener.receive(most=2, wait_s=SOON_S) for _ in range(2)]
    assert [[each.place for each in part] for part in found] == [[0, 1], [2]]


async def test_nothing_comes_where_nothing_is_published(ports):
    async with ports.deltas.listen("e1") as listener:
        assert await listener.receive(most=1, wait_s=0.01) == []


async def test_nobody_need_listen(ports):
    async with ports.deltas.listen("e1"):
        pass
    ports.deltas.publish("e1", delta())


async def test_who_is_slow_loses_the_oldest(ports):
    async with ports.deltas.listen("e1") as slow, ports.deltas.listen("e1") as quick:
        for place in range(WAITING_MAX + 6):
            ports.deltas.publish("e1", delta(place))
            await heard(quick, 1)  # All before this one have come to both.
        places = [each.place for each in await heard(slow, WAITING_MAX)]
    assert places[0] in {5, 6}
    assert places == [*range(places[0], places[0] + WAITING_MAX)]

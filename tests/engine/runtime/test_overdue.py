"""A node ends what it has seen stand for a whole life, at that revision."""

from __future__ import annotations

import asyncio

import pytest

from engine.runtime.overdue import Overdue
from streams.errors import Incompatible, StreamError, Unavailable
from tests.simulation.time import SimClock, simulate

LIFE_S = 2.0


class Ended:
    """What was asked for, and when."""

    def __init__(self, *, error: StreamError | None = None) -> None:
        self.asked: list[tuple[float, str, int]] = []
        self.error = error

    async def __call__(self, key: str, revision: int) -> None:
        self.asked.append((SimClock().monotonic_s(), key, revision))
        if self.error is not None:
            raise self.error


@pytest.fixture
def ended():
    return Ended()


def at_work(story, end, *, node="n1"):
    """Have `story` told to what runs, in simulated time."""

    async def tell() -> None:
        overdue = Overdue(SimClock(), node, end)
        running = asyncio.create_task(overdue.run())
        await story(overdue)
        assert not running.done(), "it runs for ever"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    simulate(tell())


def test_what_nobody_renews_is_ended_when_its_life_is_over(ended):
    async def story(overdue):
        overdue.note("a", 1, life_s=LIFE_S)
        await asyncio.sleep(2 * LIFE_S)

    at_work(story, ended)
    assert ended.asked == [(LIFE_S, "a", 1)]


def test_a_renewal_gives_a_whole_life_again(ended):
    async def story(overdue):
        for revision in (1, 2, 3):
            overdue.note("a", revision, life_s=LIFE_S)
            await asyncio.sleep(LIFE_S / 2)
        await asyncio.sleep(LIFE_S)

    at_work(story, ended)
    assert ended.asked == [(LIFE_S * 2, "a", 3)]


def test_what_is_gone_is_not_ended(ended):
    async def story(overdue):
        overdue.note("a", 1, life_s=LIFE_S)
        overdue.note("a", 2, life_s=None)
        await asyncio.sleep(2 * LIFE_S)

    at_work(story, ended)
    assert ended.asked == []


def test_what_is_told_again_is_not_younger_for_it(ended):
    """A watch that was cut off tells everything that stands again."""

    async def story(overdue):
        overdue.note("a", 1, life_s=LIFE_S)
        await asyncio.sleep(LIFE_S / 2)
        overdue.note("a", 1, life_s=LIFE_S)
        await asyncio.sleep(5 * LIFE_S)

    at_work(story, ended)
    assert ended.asked == [(LIFE_S, "a", 1)]


def test_a_shorter_life_that_begins_later_ends_first(ended):
    async def story(overdue):
        overdue.note("long", 1, life_s=10 * LIFE_S)
        await asyncio.sleep(LIFE_S)
        overdue.note("short", 2, life_s=LIFE_S)
        await asyncio.sleep(10 * LIFE_S)

    at_work(story, ended)
    assert ended.asked == [(2 * LIFE_S, "short", 2), (10 * LIFE_S, "long", 1)]


@pytest.mark.parametrize(
    "error",
    [Unavailable("mark lapsed", detail="away"), Incompatible("a right was taken away", remedy="")],
    ids=repr,
)
def test_a_server_that_cannot_be_asked_ends_it_itself(error):
    ended = Ended(error=error)

    async def story(overdue):
        overdue.note("a", 1, life_s=LIFE_S)
        overdue.note("b", 2, life_s=2 * LIFE_S)
        await asyncio.sleep(4 * LIFE_S)

    at_work(story, ended)
    assert [key for _, key, _ in ended.asked] == ["a", "b"]


def test_each_node_begins_with_another_key():
    """So two nodes seldom ask for the same end, when a third had many."""
    orders = []
    for node in ("n1", "n2"):
        ended = Ended()

        async def story(overdue):
            for revision in range(1, 30):
                overdue.note(f"key {revision}", revision, life_s=LIFE_S)
            await asyncio.sleep(2 * LIFE_S)

        at_work(story, ended, node=node)
        orders.append([key for _, key, _ in ended.asked])
    first, second = orders
    assert sorted(first) == sorted(second)
    assert first != second


def test_what_ends_while_others_are_asked_for_is_left_alone(ended):
    """Of a thousand claims, another node may have ended most before this one comes to them."""

    async def story(overdue):
        async def end_and_hear(key, revision):
            await ended(key, revision)
            for each in range(1, 200):
                overdue.note(f"key {each}", 1_000, life_s=None)

        overdue.end = end_and_hear
        for each in range(1, 200):
            overdue.note(f"key {each}", each, life_s=LIFE_S)
        await asyncio.sleep(2 * LIFE_S)

    at_work(story, ended)
    assert len(ended.asked) == 1

"""Where the gates were lost, reactors go on where they were: nothing is told twice or left out."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.operations.rebuild_gates import rebuild_gates
from engine.reactor.reactor import COMMITS_MAX
from engine.reactor.rebuild import PublishedEvents
from engine.triggers.evaluate import cooldown_in
from streams.errors import Unavailable
from streams.keys import cooldown_key, published_key
from streams.layout import Stream
from streams.model.losses import Lack, LogLost
from streams.ports.domain_events import DomainEvent
from streams.wire.messages import FOLLOWS_HEADER, copy_headers
from tests.engine.reactor import journals as given
from tests.engine.reactor.test_reactor import PART, play
from tests.spec import EPOCH

LONG_S = 600.0
"""Longer than ids are remembered."""


class Cut:
    """Domain events of a node that dies once the first event of what it publishes is stored."""

    def __init__(self, events) -> None:
        self._events = events

    def __getattr__(self, name):
        return getattr(self._events, name)

    async def fence(self, *about, **more):
        self._writer = await self._events.fence(*about, **more)
        return self

    async def publish(self, events):
        await self._writer.publish(events[:1])
        await asyncio.Event().wait()


class Away:
    """Commands that cannot be sent."""

    async def send(self, *given_, **more):
        raise Unavailable("work", detail="away")


def is_ended(scene, number: int) -> list[str]:
    return [f"e{number}.started.1", f"e{number}.ended"]


async def lose(scene) -> None:
    """Forget all positions, so long after that no id is remembered."""
    for part in (PART, "state", "dead"):
        await scene.ports.gates.delete(published_key(part))
    await scene.quiet(LONG_S)


async def follow(scene, node: str = "n9", **replaced) -> None:
    async with scene.at_work(scene.reactor(node, **replaced)):
        await scene.quiet()


def test_a_reactor_whose_position_is_lost_goes_on_where_it_was():
    async def story(scene):
        for number in (1, 2):
            await scene.live(number)
        await follow(scene)
        await scene.live(3)
        await lose(scene)
        counts = await rebuild_gates(scene.ports, clock=scene.clock)
        assert (counts["published"], await scene.position()) == (3, 2)
        await follow(scene)
        assert scene.told == [*is_ended(scene, 1), *is_ended(scene, 2), *is_ended(scene, 3)]

    play(story)


def test_what_was_told_before_the_events_were_lost_too_is_not_told_again():
    async def story(scene):
        for number in (1, 2):
            await scene.live(number)
        await follow(scene)
        await lose(scene)
        scene.ports.states.stream("events").make_anew()
        await rebuild_gates(scene.ports, clock=scene.clock)
        await follow(scene, "n2")
        assert (scene.told, await scene.position()) == ([], 2)

    play(story)


def test_what_was_told_in_a_former_stream_of_events_is_not_told_again():
    async def story(scene):
        for number in (1, 2):
            await scene.live(number)
        await follow(scene)
        await scene.quiet(LONG_S)
        scene.ports.states.stream("events").make_anew()
        await scene.quiet(LONG_S)
        await scene.live(3)
        await follow(scene, "n2")
        await lose(scene)
        await rebuild_gates(scene.ports, clock=scene.clock)
        await follow(scene, "n3")
        assert scene.told == is_ended(scene, 3)

    play(story)


def test_a_lost_position_is_noticed_though_all_events_are_gone_by_age():
    async def story(scene):
        await scene.live(1)
        await follow(scene)
        await lose(scene)
        scene.ports.states.stream("events").purge()
        reactor = scene.reactor("n2")
        with pytest.raises(LogLost):
            await reactor.follow()
        assert scene.told == []

    play(story)


@pytest.mark.parametrize("said", ["9" * 5000, "-1", "one", ""])
def test_a_header_that_is_no_number_of_a_commit_says_nothing(said):
    published = PublishedEvents(PART, since=EPOCH, head=10)
    at = EPOCH + timedelta(seconds=1)
    event = DomainEvent(id="x", name="a.b", payload={}, seq=1, at=at, follows=f"{PART}/{said}")
    published.note(event)
    assert published.newest == 0


def test_what_was_told_in_part_is_told_whole_and_its_commands_are_sent():
    async def story(scene):
        await scene.append(scene.stack.episode("e1"), given.OPENED, given.STARTED, given.FINISHED)
        await scene.append(scene.stack.episode("e2"), replace(given.OPENED, episode_id="e2"))
        await follow(scene, domain_events=Cut(scene.ports.domain_events))
        work = scene.ports.log._streams[scene.stack.stream(Stream.WORK)]
        assert (scene.told, work.last_seq) == ([], 0)  # Of `e1`, only that it was triggered.
        await lose(scene)
        await rebuild_gates(scene.ports, clock=scene.clock)
        await follow(scene)
        assert (scene.told, work.last_seq) == (is_ended(scene, 1), 1)

    play(story)


def test_an_interrupted_rebuilding_is_repeated_and_tells_nothing_twice():
    async def story(scene):
        await scene.append(scene.stack.episode("e1"), given.OPENED)
        await follow(scene)
        await lose(scene)
        cut_off = dataclasses.replace(scene.ports, commands=Away())
        for _ in range(2):
            with pytest.raises(Unavailable):
                await rebuild_gates(cut_off, clock=scene.clock)
            assert await scene.ports.gates.get(published_key(PART)) is None
            await scene.quiet(LONG_S)
        await rebuild_gates(scene.ports, clock=scene.clock)
        events = await scene.ports.domain_events.page(after=0)
        assert [each.id for each in events if each.follows] == ["e1.triggered"]

    play(story)


def test_without_its_position_a_reactor_that_has_told_something_stops_all():
    async def story(scene):
        await scene.live(1)
        await follow(scene)
        await lose(scene)
        with pytest.raises(LogLost) as lost:
            await scene.reactor("n2").follow()
        assert [(each.part, each.lack) for each in lost.value.losses] == [("gates", Lack.FORGOTTEN)]
        assert scene.told == is_ended(scene, 1)

    play(story)


def test_a_reactor_that_dies_with_its_first_event_is_no_loss():
    async def story(scene):
        await scene.live(1)
        await follow(scene, domain_events=Cut(scene.ports.domain_events))
        await scene.quiet(LONG_S)
        await follow(scene, "n2")
        assert scene.told == is_ended(scene, 1)

    play(story)


def test_what_came_with_the_stream_was_told_before():
    """Commits that are moved to other partitions are older than their stream."""

    async def story(scene):
        await scene.quiet()
        scene.ports.states.stream(PART).make_anew()
        for number in (1, 2):
            await scene.live(number)
        await rebuild_gates(scene.ports, clock=scene.clock)
        assert await scene.position() == 2
        await follow(scene)
        assert scene.told == []

    play(story)


def test_a_key_that_is_there_is_left_as_it_is():
    async def story(scene):
        opened = replace(given.OPENED, cooldown_s=3_600)
        await scene.append(scene.stack.episode("e1"), opened)
        key = cooldown_key(opened.actor_id, opened.expectation_id, opened.trigger.entity_id)
        await scene.ports.gates.put(key, b"another", ttl_s=60)
        await rebuild_gates(scene.ports, clock=scene.clock)
        assert (await scene.ports.gates.get(key)).value == b"another"
        await scene.ports.gates.delete(key)
        await rebuild_gates(scene.ports, clock=scene.clock)
        assert cooldown_in((await scene.ports.gates.get(key)).value).episode_id == "e1"
        await scene.quiet(3_600.0)
        assert await scene.ports.gates.get(key) is None

    play(story)


def told(follows: str, *, after_s: float = 1.0) -> DomainEvent:
    at = EPOCH + timedelta(seconds=after_s)
    return DomainEvent(id=follows, name="a.b", payload={}, seq=1, at=at, follows=follows)


def test_only_events_of_the_stream_say_where_its_reactor_was():
    published = PublishedEvents(PART, since=EPOCH, head=2_000)
    for strange in ("state/900", "journal/", "journal/x", "journal-0of2/900", "journal/2001"):
        published.note(told(strange))
    published.note(told("journal/1900", after_s=-1))
    assert published.newest == 0
    for seq in (1_000, 999):
        published.note(told(f"journal/{seq}"))
    assert (published.newest, published.carried_out) == (1_000, 1_000 - COMMITS_MAX)
    assert published.has("journal/999")


def test_of_many_events_the_last_ones_are_kept():
    published = PublishedEvents(PART, since=EPOCH, head=100_000)
    for seq in range(1, 20_000):
        published.note(told(f"journal/{seq}"))
    assert not published.has("journal/1")
    assert all(published.has(f"journal/{seq}") for seq in range(published.carried_out + 1, 20_000))


def test_a_copy_of_an_event_follows_from_nothing():
    copied = copy_headers({FOLLOWS_HEADER: "journal/7"}, id="copy", stream="events", seq=1)
    assert FOLLOWS_HEADER not in copied

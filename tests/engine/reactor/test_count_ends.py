"""How ends of episodes are counted in one place of the cluster, and their changes published."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from engine.episodes.latest_ends import end_to_count, ends_in
from engine.reactor.count_ends import TRIES_MAX, count_ends
from streams.errors import Unavailable, UnreadableEvent
from streams.keys import ends_key
from streams.memory import memory_ports
from streams.model.service_levels import LevelOutcome, ServiceLevel
from tests.engine.reactor import journals as given
from tests.engine.reactor.test_reactor import play
from tests.simulation.time import SimClock

KEY = ends_key("monitor", "limits")
WAIT_S = 5.0
LEVEL = ServiceLevel(success=0.5, window=2)


def gates_of_a_stack():
    return memory_ports(clock=SimClock()).gates


def end_of(seq, outcome, *, actor="monitor"):
    opened = replace(given.OPENED, episode_id=f"e{seq}", actor_id=actor, service_level=LEVEL)
    return end_to_count(opened, replace(given.FINISHED, service_level=outcome), seq=seq)


async def counted(gates, *ends, part="journal", published=0):
    """Count ends, `+` or `-`, and return the ids of the events."""
    outcomes = {"+": LevelOutcome.MET, "-": LevelOutcome.FAILED}
    those = [(end_of(seq, outcomes[sign]), f"trace-{seq}") for seq, sign in ends]
    found = await count_ends(gates, those, part=part, published=published)
    return [(event.id, trace) for event, trace in found]


async def live(scene, number, outcome):
    opened = replace(given.OPENED, episode_id=f"e{number}", service_level=LEVEL)
    end = replace(given.FINISHED, service_level=outcome)
    await scene.append(scene.stack.episode(f"e{number}"), opened, given.STARTED, end)


def told(scene):
    return [each for each in scene.told if ".service_level." in each]


def test_the_reactor_tells_when_the_share_falls_and_when_it_is_back():
    async def story(scene):
        async with scene.at_work(scene.reactor()):
            for number, outcome in enumerate((LevelOutcome.FAILED, LevelOutcome.MET), start=1):
                await live(scene, number, outcome)
                await scene.quiet()
        assert told(scene) == ["e1.service_level.breached", "e2.service_level.recovered"]

    play(story)


class Away:
    """Domain events that cannot be published."""

    async def fence(self, *given_, **more):
        raise Unavailable("events", detail="away")

    async def stored(self, *given_, **more):
        return ()


def test_what_was_counted_and_not_published_is_published_by_the_next_reactor():
    async def story(scene):
        async with scene.at_work(scene.reactor("n1", domain_events=Away())):
            await live(scene, 1, LevelOutcome.FAILED)
            await scene.quiet()
        assert (await scene.ports.gates.get(KEY)) is not None
        assert told(scene) == []
        async with scene.at_work(scene.reactor("n2")):
            await live(scene, 2, LevelOutcome.FAILED)
            await scene.quiet()
        assert told(scene) == ["e1.service_level.breached"]
        ends = ends_in((await scene.ports.gates.get(KEY)).value)
        assert ends.outcomes == "ff", "each counts once"

    play(story)


async def test_what_is_certainly_published_is_kept_no_longer():
    gates = gates_of_a_stack()
    assert await counted(gates, (1, "-")) == [("e1.service_level.breached", "trace-1")]
    assert await counted(gates, (1, "-")) == [("e1.service_level.breached", "trace-1")]
    assert await counted(gates, (2, "-"), published=1) == []
    assert ends_in((await gates.get(KEY)).value).changes == ()


async def test_each_expectation_has_its_own():
    gates = gates_of_a_stack()
    failed, met = LevelOutcome.FAILED, LevelOutcome.MET
    those = [(end_of(1, failed), ""), (end_of(2, met, actor="other"), "")]
    assert len(await count_ends(gates, those, part="journal", published=0)) == 1
    assert ends_in((await gates.get(ends_key("other", "limits"))).value).outcomes == "+"


class Together:
    """Gates that answer once all of so many keys are asked for."""

    def __init__(self, gates, keys):
        self._gates, self._asked = gates, asyncio.Barrier(keys)

    async def get(self, key):
        await asyncio.wait_for(self._asked.wait(), WAIT_S)
        return await self._gates.get(key)

    async def put(self, key, value, *, after):
        return await self._gates.put(key, value, after=after)


async def test_expectations_do_not_wait_for_each_other():
    gates = gates_of_a_stack()
    actors = [f"a{number}" for number in range(9)]
    those = [(end_of(1, LevelOutcome.FAILED, actor=actor), actor) for actor in actors]
    found = await count_ends(Together(gates, len(actors)), those, part="journal", published=0)
    assert [trace for _, trace in found] == actors


class Contested:
    """Gates whose key another reactor changes right before each put, so many times."""

    def __init__(self, gates, times):
        self._gates, self._left = gates, times

    async def get(self, key):
        return await self._gates.get(key)

    async def put(self, key, value, *, after):
        if self._left:
            await counted(self._gates, (7, "+"), part=f"journal-{self._left}of65")
            self._left -= 1
        return await self._gates.put(key, value, after=after)


async def test_reactors_of_two_streams_that_count_at_once_lose_nothing():
    gates = gates_of_a_stack()
    assert await counted(Contested(gates, 1), (3, "+"), part="journal-0of65") == []
    ends = ends_in((await gates.get(KEY)).value)
    assert ends.outcomes == "++"
    assert ends.counted == {"journal-1of65": 7, "journal-0of65": 3}


async def test_whoever_cannot_count_tries_later():
    with pytest.raises(Unavailable):
        await counted(Contested(gates_of_a_stack(), TRIES_MAX), (1, "-"))


async def test_what_is_damaged_is_counted_anew():
    gates = gates_of_a_stack()
    await gates.put(KEY, b'{"outcomes": "+')
    assert await counted(gates, (1, "-")) == [("e1.service_level.breached", "trace-1")]
    assert ends_in((await gates.get(KEY)).value).outcomes == "f"


async def test_what_a_newer_version_has_counted_is_left_to_it():
    gates, newer = gates_of_a_stack(), msgspec.json.encode({"outcomes": ["met", "failed"]})
    await gates.put(KEY, newer)
    with pytest.raises(UnreadableEvent):
        await counted(gates, (1, "-"))
    assert (await gates.get(KEY)).value == newer

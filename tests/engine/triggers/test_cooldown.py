"""What the gates remember: how long a subject rests, and who is the breaker's one probe."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from engine.app.checks import Breaker
from engine.episodes.breakers.breaker import BreakerState
from engine.triggers.evaluate import OpeningBuilder, cooldown_in
from engine.triggers.rules import Fire
from streams.keys import cooldown_key
from streams.memory import memory_ports
from streams.model.triggers import EventTrigger, ScheduleTrigger
from tests.engine.crew import cooldowns_of, crew_of
from tests.engine.stage import HAPPENED, Scripted, app_of, opening
from tests.simulation.time import SimClock, simulate
from tests.spec import EPOCH

REST_S = 60


@pytest.fixture
def app():
    return app_of(Scripted(), subject_key="host", cooldown_s=REST_S)


def thing(app):
    return app.actors["worker"].expectations["thing"]


def opened_by(app, id_, *, host="a"):
    """Return what the event `id_` about `host` would open."""
    opened = opening(app, id_=id_)
    trigger = EventTrigger(event_id=id_, event_type=HAPPENED, payload={}, entity_id=host)
    return replace(opened, trigger=trigger)


async def look(cooldowns, app, opened):
    return await cooldowns.read(thing(app), opened)


async def cooled(ports, *, host="a"):
    entry = await ports.gates.get(cooldown_key("worker", "thing", host))
    return entry and cooldown_in(entry.value).episode_id


async def test_who_fires_begins_the_cooldown_and_everybody_sees_whose_it_is(app, ports):
    one, other = cooldowns_of(crew_of(app, ports, "n1")), cooldowns_of(crew_of(app, ports, "n2"))
    first, second = opened_by(app, "x1"), opened_by(app, "x2")
    assert await one.cool(thing(app), first, await look(one, app, first))
    assert (await look(other, app, second)).trigger_state.cooled_by == first.episode_id


async def test_of_two_events_at_the_same_moment_one_begins_it(app, ports):
    one, other = cooldowns_of(crew_of(app, ports, "n1")), cooldowns_of(crew_of(app, ports, "n2"))
    first, second = opened_by(app, "x1"), opened_by(app, "x2")
    seen, also_seen = await look(one, app, first), await look(other, app, second)
    assert await one.cool(thing(app), first, seen)
    assert not await other.cool(thing(app), second, also_seen)
    assert await cooled(ports) == first.episode_id


async def test_a_cause_that_comes_again_before_its_episode_was_opened_passes(app, ports):
    one, other = cooldowns_of(crew_of(app, ports, "n1")), cooldowns_of(crew_of(app, ports, "n2"))
    opened = opened_by(app, "x1")
    seen, also_seen = await look(one, app, opened), await look(other, app, opened)
    assert await one.cool(thing(app), opened, seen)
    assert await other.cool(thing(app), opened, also_seen)
    assert await other.cool(thing(app), opened, await look(other, app, opened))


async def test_each_subject_rests_for_itself(app, ports):
    cooldowns = cooldowns_of(crew_of(app, ports))
    one, other = opened_by(app, "x1", host="a"), opened_by(app, "x2", host="b")
    for opened in (one, other):
        assert await cooldowns.cool(thing(app), opened, await look(cooldowns, app, opened))
    assert (await cooled(ports, host="a"), await cooled(ports, host="b")) == (
        one.episode_id,
        other.episode_id,
    )


def test_the_rest_is_over_when_its_time_is(app):
    async def rest():
        ports = memory_ports(clock=SimClock())
        cooldowns = cooldowns_of(crew_of(app, ports, clock=SimClock()))
        first, second = opened_by(app, "x1"), opened_by(app, "x2")
        await cooldowns.cool(thing(app), first, await look(cooldowns, app, first))
        await asyncio.sleep(REST_S - 0.001)
        before = (await look(cooldowns, app, second)).trigger_state.cooled_by
        await asyncio.sleep(0.001)
        return before, (await look(cooldowns, app, second)).trigger_state.cooled_by

    assert simulate(rest()) == (opened_by(app, "x1").episode_id, "")


async def test_what_a_person_fires_begins_it_anew_whoever_began_it(app, ports):
    cooldowns = cooldowns_of(crew_of(app, ports))
    first, fired = opened_by(app, "x1"), opened_by(app, "k1")
    await cooldowns.cool(thing(app), first, await look(cooldowns, app, first))
    await cooldowns.cool_anew(thing(app), fired)
    assert await cooled(ports) == fired.episode_id


async def test_an_opening_says_which_cooldown_it_begins_and_a_tick_begins_none(app, ports):
    builder = OpeningBuilder(cooldowns_of(crew_of(app, ports)).context)
    fired = await builder.opened(thing(app), opened_by(app, "x1").trigger, "x1")
    tick = ScheduleTrigger(scheduled_at=EPOCH, schedule="every 60s")
    ticked = await builder.opened(thing(app), tick, "t1")
    assert (fired.cooldown_s, ticked.cooldown_s) == (REST_S, 0)


async def test_without_a_cooldown_nothing_is_remembered(ports):
    app = app_of(Scripted(), breaker=Breaker())
    cooldowns, opened = cooldowns_of(crew_of(app, ports)), opened_by(app, "x1")
    assert await cooldowns.cool(thing(app), opened, await look(cooldowns, app, opened))
    await cooldowns.cool_anew(thing(app), opened)
    assert await ports.gates.entries() == {}


async def test_of_two_nodes_that_saw_the_breaker_one_has_the_probe(ports):
    app = app_of(Scripted(), breaker=Breaker())
    one, other = cooldowns_of(crew_of(app, ports, "n1")), cooldowns_of(crew_of(app, ports, "n2"))
    first, second = opened_by(app, "x1"), opened_by(app, "x2")
    seen, also_seen = await look(one, app, first), await look(other, app, second)
    for cooldowns, opened, snapshot, is_let in (
        (one, first, seen, True),
        (other, second, also_seen, False),
    ):
        probing = BreakerState(status="half_open", probe=opened.episode_id)
        fire = Fire(opened.trigger, probing)
        assert await cooldowns.probe(thing(app), fire, snapshot) == is_let
    assert (await look(other, app, second)).trigger_state.breaker.probe == first.episode_id


async def test_who_needs_no_probe_leaves_the_breaker_as_it_is(ports):
    app = app_of(Scripted(), breaker=Breaker())
    cooldowns, opened = cooldowns_of(crew_of(app, ports)), opened_by(app, "x1")
    snapshot = await look(cooldowns, app, opened)
    assert await cooldowns.probe(thing(app), Fire(opened.trigger), snapshot)
    assert await ports.gates.entries() == {}

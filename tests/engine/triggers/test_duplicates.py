"""A cause whose episode is open changes nothing that the gates remember, and counts once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from engine.app.checks import Breaker
from engine.app.dedupe import by_event, by_value
from engine.app.triggers import event, every, spec_of
from engine.episodes.breakers.breaker import BreakerState
from engine.episodes.fire import fire
from engine.node.node import Node
from engine.triggers.schedule import PURPOSE, Tick
from streams.keys import breaker_key, cooldown_key
from streams.memory import memory_ports
from streams.model.events import EndStatus, EpisodeFinished, EpisodeOpened, EpisodeStarted
from streams.model.triggers import EventTrigger, Mode
from streams.ports.delivery import ACK_WAIT_S
from streams.ports.timers import Timer
from tests.engine.crew import crew_of, evaluator_of
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    STARTED,
    WAIT_S,
    Scripted,
    all_answered,
    app_of,
    eventually,
    lived,
    opening,
    running,
    told,
    write,
)
from tests.simulation.time import SimClock, simulate
from tests.spec import EPOCH

COOLDOWN = cooldown_key("worker", "thing", "")
BREAKER = breaker_key("worker", "thing")
DUE = BreakerState(status="open", failures=("e1",), opened_at=EPOCH)
"""A breaker that lets the next one through as its probe."""


async def watched(ports, app):
    actor = app.actors["worker"]
    await (await ports.domain_events.open(actor.id, actor.event_names())).close()


async def publish(ports, id_, **payload):
    await ports.domain_events.publish(HAPPENED, payload, id=id_)
    await all_answered(ports.domain_events)


async def remembered(ports, key):
    entry = await ports.gates.get(key)
    return None if entry is None else entry.value


async def test_a_duplicate_begins_no_cooldown_and_counts_once(ports, tally):
    app = app_of(Scripted(), dedupe=by_value("order"), cooldown_s=600)
    await watched(ports, app)
    async with running(app, ports):
        await publish(ports, "x1", order=1)
        await ports.gates.delete(COOLDOWN)  # As the server does when its time is over.
        await publish(ports, "x2", order=1)
        assert await remembered(ports, COOLDOWN) is None
        await publish(ports, "x3", order=2)
    assert tally.of("worker") == {"fire": 2, "duplicate": 1}


async def test_an_id_that_is_used_again_after_long_begins_no_cooldown(ports):
    app = app_of(Scripted(), cooldown_s=600)
    await watched(ports, app)
    async with running(app, ports):
        for _ in range(2):
            await ports.gates.delete(COOLDOWN)
            ports.domain_events.publish_raw(HAPPENED, b"{}", {"ce-id": "x1"})
            await all_answered(ports.domain_events)
        assert await remembered(ports, COOLDOWN) is None


async def test_a_duplicate_is_no_probe(ports):
    rules = Breaker(threshold=1, half_open_after_s=60)
    app = app_of(Scripted(), dedupe=by_value("order"), breaker=rules)
    await watched(ports, app)
    async with running(app, ports):
        await publish(ports, "x1", order=1)
        due = msgspec.json.encode(DUE)
        await ports.gates.put(BREAKER, due)
        await publish(ports, "x2", order=1)
        assert await remembered(ports, BREAKER) == due


async def test_a_tick_in_the_window_of_another_is_no_probe(ports):
    hourly = every("1m", window="w1")
    rules = Breaker(threshold=1, half_open_after_s=60)
    app = app_of(Scripted(), on=[event(HAPPENED), hourly], breaker=rules)
    due, at = msgspec.json.encode(DUE), CLOCK.now()
    async with running(app, ports):
        for number in (1, 2):
            tick = Tick(expectation="thing", schedule=spec_of(hourly), at=at)
            payload = msgspec.to_builtins(tick)
            said = Timer(actor="worker", purpose=PURPOSE, key="k", payload=payload)
            await ports.timers.send(said, id=f"t{number}")
            await all_answered(ports.timers)
            if number == 1:
                await ports.gates.put(BREAKER, due)
    assert await remembered(ports, BREAKER) == due


async def test_a_fire_that_is_asked_for_again_begins_no_cooldown(ports, tally):
    app = app_of(Scripted(), cooldown_s=600)
    async with running(app, ports):
        for _ in range(2):
            await fire(ports, "worker", "thing", by="ann", key="k1")
            await all_answered(ports.timers)
            cooled = await remembered(ports, COOLDOWN)
            await ports.gates.delete(COOLDOWN)
            for stream in ports.log._streams.values():
                stream._known_ids.clear()
    assert cooled is None
    assert tally.of("worker") == {"fire": 1, "duplicate": 1}


async def test_a_dry_run_begins_no_cooldown(ports):
    app = app_of(Scripted(), cooldown_s=600)
    async with running(app, ports):
        tried = await fire(ports, "worker", "thing", by="ann", dry_run=True)
        (opened,) = (await lived(ports, tried)).of(EpisodeOpened)
        await all_answered(ports.timers)
    assert opened.mode is Mode.DRY_RUN
    assert await remembered(ports, COOLDOWN) is None


async def test_a_duplicate_leaves_an_episode_that_nobody_has_begun_to_the_reactor(ports):
    """Whoever opened it may be gone; what is open is followed up, whatever its cause becomes."""
    app = app_of(Scripted(), cooldown_s=600)
    await watched(ports, app)
    begun = opening(app)
    await write(ports, begun.episode_id, begun)
    async with running(app, ports):
        await publish(ports, "x1")
        assert len((await lived(ports, begun.episode_id)).of(EpisodeStarted)) == 1
    assert await remembered(ports, COOLDOWN) is None


@pytest.mark.parametrize("dedupe", [by_event(), by_value("order")], ids=["event", "value"])
async def test_an_event_that_comes_again_has_the_breaker_told_of_an_end_in_the_first_commit(
    ports, dedupe
):
    """Its node died before it told the breaker, and without a claim that would lapse."""
    app = app_of(Scripted(), breaker=Breaker(threshold=1), dedupe=dedupe)
    actor = app.actors["worker"]
    source = await ports.domain_events.open(actor.id, actor.event_names())
    await ports.domain_events.publish(HAPPENED, {"order": 1}, id="x1")
    (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
    begun = await opening_of_order(app)
    failed = EpisodeFinished(status=EndStatus.FAILED, error_class="crash")
    await write(ports, begun.episode_id, begun, STARTED, failed)
    await delivery.nak()
    await source.close()
    async with running(app, ports):
        await eventually(lambda: "circuit_breaker.opened" in [name for name, _ in told(ports)])
    state = msgspec.json.decode(await remembered(ports, BREAKER), type=BreakerState)
    assert state.status == "open"


async def opening_of_order(app):
    """Return the opening that the event of order 1 has."""
    evaluator = evaluator_of(crew_of(app, memory_ports(clock=CLOCK)))
    expectation = app.actors["worker"].expectations["thing"]
    key = "event:x1" if expectation.dedupe == by_event() else "value:order=1"
    trigger = EventTrigger(event_id="x1", event_type=HAPPENED, payload={"order": 1})
    return await evaluator.builder.of(expectation, trigger, key)


class CutOff:
    """Gates that take nothing about a breaker any more."""

    def __init__(self, gates):
        self._gates, self.is_asked = gates, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._gates, name)

    async def put(self, key, *args, **how):
        if key != BREAKER:
            return await self._gates.put(key, *args, **how)
        self.is_asked.set()
        return await asyncio.Event().wait()


class Failing(Scripted):
    def next_step(self, state, ctx):
        raise ValueError("it cannot be done")


def test_the_breaker_hears_of_a_failure_whose_node_dies_before_it_can_say_so():
    """Its event comes again, or its claim lapses."""
    app = app_of(Failing(), dedupe=by_value("order"), breaker=Breaker(threshold=1))

    async def story():
        ports = memory_ports(clock=SimClock())
        cut_off = CutOff(ports.gates)
        first = Node(app, replace(ports, gates=cut_off), name="n1", clock=SimClock())
        dying = asyncio.create_task(first.run())
        await asyncio.sleep(1)
        await ports.domain_events.publish(HAPPENED, {"order": 1}, id="x1")
        async with asyncio.timeout(60):
            await cut_off.is_asked.wait()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        async with running(app, ports, "n2", clock=SimClock()):
            await asyncio.sleep(6 * ACK_WAIT_S)
        return await remembered(ports, BREAKER)

    assert simulate(story()) is not None

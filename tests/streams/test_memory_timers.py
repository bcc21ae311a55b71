"""Timers in memory as time passes. Here nobody waits: the clock jumps."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from streams.memory import memory_ports
from streams.ports.timers import Timer
from tests.simulation.time import SimClock, simulate

HOUR_S = 3600.0


def timer(key, actor="monitor"):
    return Timer(actor=actor, purpose="debounce", key=key, payload={})


def simulated(scenario):
    """Run `scenario` with timers, their clock, and what arms one that is due in some seconds."""
    clock = SimClock()
    timers = memory_ports(clock=clock).timers

    async def arm(key, delay_s, actor="monitor"):
        await timers.arm(timer(key, actor), at=clock.now() + timedelta(seconds=delay_s))

    return simulate(scenario(timers, clock, arm))


def test_whoever_waits_for_a_timer_has_it_at_its_time():
    async def scenario(timers, clock, arm):
        source = await timers.open("monitor")
        await arm("later", 90.0)
        await arm("soon", 12.5)
        times = []
        for _ in range(2):
            (delivery,) = await source.receive(room=1, wait_s=HOUR_S)
            await delivery.ack()
            times.append((delivery.content.key, clock.monotonic_s()))
        assert times == [("soon", 12.5), ("later", 90.0)]

    simulated(scenario)


def test_a_timer_that_nobody_waited_for_fired_at_its_time():
    async def scenario(timers, clock, arm):
        await arm("a", 30.0)
        await clock.sleep(HOUR_S)
        (delivery,) = await (await timers.open("monitor")).receive(room=1, wait_s=0.0)
        assert delivery.content.fired_at == delivery.content.due_at

    simulated(scenario)


def test_timers_come_in_the_order_in_which_they_were_due():
    async def scenario(timers, clock, arm):
        for delay_s in (50.0, 10.0, 40.0, 20.0, 30.0):
            await arm(f"{delay_s:g}", delay_s)
        await clock.sleep(HOUR_S)
        found = await (await timers.open("monitor")).receive(room=10, wait_s=0.0)
        assert [each.content.key for each in found] == ["10", "20", "30", "40", "50"]

    simulated(scenario)


def test_a_timer_that_was_put_off_hides_none_that_is_due_before_it():
    async def scenario(timers, clock, arm):
        source = await timers.open("monitor")
        await arm("put-off", 1.0)
        await arm("put-off", 100.0)
        await arm("other", 5.0)
        (delivery,) = await source.receive(room=1, wait_s=HOUR_S)
        assert (delivery.content.key, clock.monotonic_s()) == ("other", 5.0)

    simulated(scenario)


def test_a_timer_that_is_put_off_again_and_again_fires_after_the_last_time():
    async def scenario(timers, clock, arm):
        source = await timers.open("monitor")
        for _ in range(10):
            await arm("a", 3.0)
            assert list(await source.receive(room=1, wait_s=2.0)) == []
        await source.receive(room=1, wait_s=HOUR_S)
        assert clock.monotonic_s() == 9 * 2.0 + 3.0

    simulated(scenario)


def test_a_canceled_timer_never_fires():
    async def scenario(timers, clock, arm):
        source = await timers.open("monitor")
        await arm("a", 5.0)
        await timers.cancel("monitor", "debounce", "a")
        assert list(await source.receive(room=1, wait_s=HOUR_S)) == []

    simulated(scenario)


def test_a_timer_for_another_actor_wakes_nobody_with_nothing():
    async def scenario(timers, clock, arm):
        source = await timers.open("monitor")
        await arm("a", 5.0, actor="other")
        assert list(await source.receive(room=1, wait_s=12.0)) == []
        assert clock.monotonic_s() == 12.0

    simulated(scenario)


def test_a_timer_armed_while_someone_waits_is_not_missed():
    async def scenario(timers, clock, arm):
        source = await timers.open("monitor")
        waiting = asyncio.create_task(source.receive(room=1, wait_s=HOUR_S))
        await clock.sleep(1.0)
        await arm("a", 2.0)
        (delivery,) = await waiting
        assert clock.monotonic_s() == 3.0
        assert delivery.content.key == "a"

    simulated(scenario)


def test_the_queue_counts_what_is_due_and_not_what_is_pending():
    async def scenario(timers, clock, arm):
        source = await timers.open("monitor")
        await arm("due", 1.0)
        await arm("pending", 100.0)
        await clock.sleep(2.0)
        assert source.pending == 1

    simulated(scenario)

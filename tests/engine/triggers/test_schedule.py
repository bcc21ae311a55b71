"""The timers of schedules: one for each, armed again by every tick, whoever answers for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from engine.app.triggers import cron, every
from engine.triggers.schedule import PURPOSE, Tick, Ticker, tick_timer, timer_key
from streams.errors import Unavailable
from streams.memory import memory_ports
from streams.ports.timers import Due
from tests.engine.crew import crew_of
from tests.engine.stage import Scripted, app_of
from tests.simulation.time import EPOCH, SimClock, simulate

QUARTERS = every("15m", catch_up="all")
QUARTER = timedelta(minutes=15)
NEWEST = every("15m")


def armed(minute, *, asks=False):
    """Return the tick of a minute."""
    at = EPOCH + timedelta(minutes=minute)
    return Tick(expectation="thing", schedule="every 900s", at=at, asks=asks)


TICKS_OF_TWO = [
    # Armed by the other, ahead by, armed in the end: all in minutes
    pytest.param(armed(30), 0, armed(30), id="the same"),
    pytest.param(armed(30), 15, armed(30), id="this one is ahead"),
    pytest.param(armed(45), 0, armed(30), id="the other is ahead"),
    pytest.param(armed(45), 20, armed(45), id="both are ahead"),
    pytest.param(armed(15), 0, armed(30), id="the tick itself is shown still"),
    pytest.param(armed(15, asks=True), 0, armed(15, asks=True), id="the other asks"),
]
"""Two nodes have the tick of the minute 15, at the minute 17 by their clocks."""


def ticker_of(ports, *schedules, node="n1"):
    app = app_of(Scripted(), on=list(schedules or (QUARTERS,)))
    return Ticker(crew_of(app, ports, node, clock=SimClock()))


def simulated(work):
    """Return what `work` returns, which is given ports in simulated time."""

    async def run():
        return await work(memory_ports(clock=SimClock()))

    return simulate(run())


async def pending(ports, schedule=QUARTERS):
    return await ports.timers.pending("worker", PURPOSE, timer_key("thing", schedule))


def tick(at=EPOCH + QUARTER, schedule="every 900s") -> Mapping[str, object]:
    """Return what the timer of a tick says."""
    return {"expectation": "thing", "schedule": schedule, "at": at.isoformat()}


def fired(said=None, *, at=None):
    """Return what comes due of `said`, which the server has fired at `at`: now by default."""
    at = at or SimClock().now()
    payload = dict(tick() if said is None else said)
    return Due(id="t", purpose=PURPOSE, key="k", payload=payload, due_at=at, fired_at=at)


def test_the_next_tick_of_every_schedule_is_armed():
    daily = cron("@daily", tz="Europe/Berlin")

    async def work(ports):
        await ticker_of(ports, QUARTERS, daily).ensure()
        return [(await pending(ports, each)).due_at for each in (QUARTERS, daily)]

    assert simulated(work) == [EPOCH + QUARTER, EPOCH + timedelta(hours=23)]


def test_what_is_pending_is_left_alone_by_every_node_that_starts_later():
    async def work(ports):
        await ticker_of(ports).ensure()
        first = await pending(ports)
        await asyncio.sleep(60)
        await ticker_of(ports, node="n2").ensure()
        return first == await pending(ports)

    assert simulated(work)


class Overtaken(Ticker):
    """A ticker of which another node is ahead by a moment."""

    async def _arm(self, tick, *, expecting):
        await arm(self.context.ports, replace(tick, at=tick.at + QUARTER))
        await super()._arm(tick, expecting=expecting)


def test_of_two_nodes_that_start_at_the_same_moment_one_arms():
    async def work(ports):
        await Overtaken(ticker_of(ports).context).ensure()
        return (await pending(ports)).due_at

    assert simulated(work) == EPOCH + 2 * QUARTER


def test_a_tick_opens_what_is_due_and_arms_the_next():
    async def work(ports):
        ticker = ticker_of(ports)
        await asyncio.sleep(QUARTER.total_seconds())
        due = await ticker.due(fired(), is_repeat=False)
        return [each.trigger.scheduled_at for each in due], (await pending(ports)).due_at

    assert simulated(work) == ([EPOCH + QUARTER], EPOCH + 2 * QUARTER)


def test_a_tick_that_comes_again_after_a_crash_is_the_same_tick():
    """Armed and not answered for; or while another node has it, too."""

    async def work(ports):
        await asyncio.sleep(QUARTER.total_seconds())
        one, other = ticker_of(ports), ticker_of(ports, node="n2")
        due = [await each.due(fired(), is_repeat=True) for each in (one, other, one)]
        return [[ticked.trigger for ticked in each] for each in due], (await pending(ports)).due_at

    triggers, armed = simulated(work)
    assert triggers[0] == triggers[1] == triggers[2]
    assert armed == EPOCH + 2 * QUARTER


def test_a_tick_that_comes_again_late_has_what_was_missed_since():
    async def work(ports):
        await asyncio.sleep(3 * QUARTER.total_seconds() + 5)
        due = await ticker_of(ports).due(fired(), is_repeat=True)
        return [each.trigger.scheduled_at for each in due], (await pending(ports)).due_at

    assert simulated(work) == ([EPOCH + n * QUARTER for n in (1, 2, 3)], EPOCH + 4 * QUARTER)


def test_a_tick_that_was_in_time_when_it_came_first_is_completed_when_it_comes_again_late():
    """Its episode may be open, and nobody be called to it. Otherwise it opens nothing any more."""
    newest_only = every("15m")

    async def work(ports):
        await asyncio.sleep(3 * QUARTER.total_seconds() + 5)
        ticker = ticker_of(ports, newest_only)
        due = [await ticker.due(fired(), is_repeat=is_repeat) for is_repeat in (False, True)]
        return [[(each.trigger.scheduled_at, each.is_missed) for each in ticks] for ticks in due]

    newest = EPOCH + 3 * QUARTER, False
    assert simulated(work) == [[newest], [(EPOCH + QUARTER, True), newest]]


async def arm(ports, tick):
    await ports.timers.arm(tick_timer("worker", tick), at=tick.at)


async def pending_tick(ports):
    return msgspec.convert((await pending(ports)).payload, Tick)


def had_beside(other, *, ahead=0, is_repeat=True):
    """Return what is armed once a node has had the tick of the minute 15, beside another one.

    The server's clock is behind, so that it shows all that is armed.
    """

    async def work(ports):
        await asyncio.sleep(14 * 60)
        await arm(ports, other)
        clock = Wrong(timedelta(minutes=3 + ahead))
        this = Ticker(crew_of(app_of(Scripted(), on=NEWEST), ports, clock=clock))
        await this.due(fired(), is_repeat=is_repeat)
        return await pending_tick(ports)

    return simulated(work)


@pytest.mark.parametrize(("other", "ahead", "arms"), TICKS_OF_TWO)
def test_of_two_that_have_a_tick_none_arms_a_later_one_than_the_other(other, ahead, arms):
    """Any of them acknowledges for both, and may die before it has opened the later one itself."""
    assert had_beside(other, ahead=ahead) == arms


@pytest.mark.parametrize("other", [armed(15), armed(15, asks=True), armed(30)])
def test_who_asks_for_the_time_has_the_tick_come_again_before_any_later_one(other):
    assert had_beside(other, is_repeat=False) == armed(15, asks=True)


class Raced(Ticker):
    """A ticker at whose first try others arm the tick of the minute 20 in the same moment."""

    tries = 0

    async def _arm(self, tick, *, expecting):
        Raced.tries += 1
        if Raced.tries == 1:
            await arm(self.context.ports, armed(20))
        await super()._arm(tick, expecting=expecting)


def test_a_tick_that_others_arm_in_the_same_moment_is_looked_at_again():
    async def work(ports):
        await asyncio.sleep(QUARTER.total_seconds())
        Raced.tries = 0
        await Raced(ticker_of(ports).context).due(fired(), is_repeat=True)
        return await pending_tick(ports)

    assert simulated(work) == armed(20)


def test_a_tick_that_others_arm_all_the_time_is_left_to_be_delivered_again():
    async def work(ports):
        await asyncio.sleep(QUARTER.total_seconds())
        with pytest.raises(Unavailable, match=r"thing/every 900s.*it was armed 8 times meanwhile"):
            await Overtaken(ticker_of(ports).context).due(fired(), is_repeat=True)

    simulated(work)


class Wrong(SimClock):
    """A clock that is wrong by so much."""

    def __init__(self, off):
        super().__init__()
        self._off = off

    def now(self):
        return super().now() + self._off


def answered_by(off, *, waited=timedelta(0)):
    """Return what a node whose clock is `off` opens of a tick that `waited`, and what it arms."""

    async def work(ports):
        source = await ports.timers.open("worker")
        await ticker_of(ports, NEWEST).ensure()
        await asyncio.sleep((QUARTER + waited).total_seconds())
        ticker, opens = Ticker(crew_of(app_of(Scripted(), on=NEWEST), ports, clock=Wrong(off))), []
        while deliveries := await source.receive(room=1, wait_s=1):
            for delivery in deliveries:
                opens += await ticker.due(delivery.content, is_repeat=False)
                await delivery.ack()
        opened = [each.trigger.scheduled_at for each in opens if not each.is_missed]
        return opened, (await pending(ports, NEWEST)).due_at

    return simulated(work)


@pytest.mark.parametrize("off", [timedelta(hours=5), timedelta(days=4_000)])
def test_a_node_whose_clock_is_ahead_opens_no_tick_before_its_time(off):
    assert answered_by(off) == ([EPOCH + QUARTER], EPOCH + 2 * QUARTER)


def test_a_tick_that_waited_for_a_node_is_missed_for_a_newer_one():
    newest = EPOCH + 6 * QUARTER
    assert answered_by(timedelta(0), waited=5 * QUARTER) == ([newest], newest + QUARTER)


def test_a_tick_that_the_server_was_asked_about_is_completed_if_others_have_opened_it():
    """Its node may have stood still with it while another one opened it, and died."""

    async def work(ports):
        await asyncio.sleep(3 * QUARTER.total_seconds() + 5)
        asked = fired({**tick(), "asks": True})
        due = await ticker_of(ports, NEWEST).due(asked, is_repeat=False)
        return [(each.trigger.scheduled_at, each.is_repeat, each.is_missed) for each in due]

    assert simulated(work) == [
        (EPOCH + QUARTER, True, True),
        (EPOCH + 3 * QUARTER, True, False),
    ]


def test_a_node_whose_clock_is_behind_knows_from_the_server_what_was_missed():
    async def work(ports):
        await asyncio.sleep(6 * QUARTER.total_seconds())
        app = app_of(Scripted(), on=NEWEST)
        ticker = Ticker(crew_of(app, ports, clock=Wrong(-timedelta(hours=5))))
        opens = await ticker.due(fired(), is_repeat=False)
        return [each.trigger.scheduled_at for each in opens]

    assert simulated(work) == [EPOCH + 6 * QUARTER]


def test_the_timer_of_a_schedule_that_was_changed_ends_with_its_next_tick():
    hourly = every("1h")

    async def work(ports):
        await ticker_of(ports).ensure()
        changed = ticker_of(ports, hourly)
        await changed.ensure()
        await asyncio.sleep(QUARTER.total_seconds())
        ports.timers.fire()
        answered = await changed.due(fired(), is_repeat=False)
        return answered, await pending(ports), (await pending(ports, hourly)).due_at

    assert simulated(work) == (None, None, EPOCH + timedelta(hours=1))


def test_what_is_no_tick_of_ours_is_not_answered():
    async def work(ports):
        ticker, elsewhere = ticker_of(ports), {**tick(), "expectation": "other"}
        return [await ticker.due(fired(said), is_repeat=False) for said in ({}, elsewhere)]

    assert simulated(work) == [None, None]


async def armed_by_a_newer_version(ports):
    await arm(ports, armed(15))
    (subject,) = ports.timers._armed
    ports.timers._armed[subject] = replace(ports.timers._armed[subject], data=b"newer")
    return subject


def test_what_a_newer_version_armed_is_left_by_a_node_that_starts():
    async def work(ports):
        subject = await armed_by_a_newer_version(ports)
        with capture_logs() as logs:
            await ticker_of(ports).ensure()
        return ports.timers._armed[subject].data, [line["event"] for line in logs]

    assert simulated(work) == (b"newer", ["a timer of a newer version ticks"])


@pytest.mark.parametrize("strange", ["newer", "no tick"])
def test_what_this_version_cannot_read_is_replaced_by_the_next_tick(strange):
    """It would be refused when it fires, and the schedule end with it."""

    async def work(ports):
        if strange == "newer":
            await armed_by_a_newer_version(ports)
        else:
            named = tick_timer("worker", armed(15))
            await ports.timers.arm(replace(named, payload={}), at=EPOCH + QUARTER)
        await ticker_of(ports).due(fired(tick(EPOCH)), is_repeat=True)
        return await pending_tick(ports)

    assert simulated(work) == armed(15)

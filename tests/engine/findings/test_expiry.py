"""Findings that expire and get worse on nodes, in simulated time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from engine.app.actions import converge
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.findings import (
    ESCALATE,
    EXPIRE,
    clear_finding,
    escalate,
    raise_finding,
    update_finding,
)
from engine.app.strategy import ConvergeResult, Strategy
from engine.app.triggers import event
from engine.findings.apply import FindingApplier
from engine.findings.expire import DueFinding, FindingExpiry, timer_of
from engine.runtime.store import Turns
from streams.errors import Unavailable
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.events import FindingEscalated, FindingExpired, FindingRaised, FindingUpdated
from streams.model.findings import Severity
from streams.model.triggers import Mode, Overrides
from streams.ports.delivery import ACK_WAIT_S
from streams.ports.timers import Due
from tests.engine.crew import crew_of
from tests.engine.stage import (
    HAPPENED,
    WAIT_S,
    app_of,
    doomed,
    opening,
    react,
    running,
    told,
    write,
)
from tests.simulation.time import EPOCH, SimClock, simulate

MINUTE = 60
STEPS = {"full": [escalate(after="5m", to="high"), escalate(after="1h", to="critical")]}

SAID = {
    "minute": raise_finding("disk", class_="full", ttl_s=MINUTE),
    "hour": raise_finding("disk", class_="full", ttl_s=60 * MINUTE),
    "bare": raise_finding("disk", class_="full"),
    "other": raise_finding("disk", class_="slow"),
    "update": update_finding("disk", summary="fuller"),
    "clear": clear_finding("disk"),
}


class Says(Strategy):
    """Intends what its event names."""

    def init(self, episode, trigger):
        return {"say": trigger.payload["say"]}

    def next_step(self, state, ctx):
        return converge()

    def converge(self, state, ctx):
        return ConvergeResult(findings=[SAID[state["say"]]])


def seconds(number):
    return EPOCH + timedelta(seconds=number)


def simulated(work):
    """Return what `work` returns, which is given ports in simulated time."""

    async def run():
        return await work(memory_ports(clock=SimClock()))

    return simulate(run())


async def say(ports, word):
    """Have an episode intend something, and wait until it has."""
    await asyncio.sleep(1)  # A node that has just begun sees what comes from now on.
    head, said = await ports.log.head(Stream.STATE), set()
    await ports.domain_events.publish(HAPPENED, {"say": word}, id=f"{word}.{head}")
    following = ports.log.follow(Stream.STATE, after=head)
    async with asyncio.timeout(WAIT_S), following as follower:
        while ports.stack.finding("disk") not in said:
            said |= {one.subject for one in await follower.receive(most=100, wait_s=WAIT_S)}


async def life(ports, key="disk"):
    """Return what happened to a finding, with when."""
    records = await ports.log.read(ports.stack.finding(key))
    return [(record.commit.at, event) for record in records for event in record.commit.events]


def kinds(events):
    return [type(event) for _, event in events]


def ages(ports):
    """Return the public events about the age of findings."""
    names = ("finding.expired", "finding.escalated")
    return [(name, payload) for name, payload in told(ports) if name in names]


def is_soon(at, due):
    return due <= at <= due + timedelta(seconds=1.5)


def test_a_finding_expires_in_time_and_the_world_is_told():
    async def work(ports):
        async with running(app_of(Says()), ports, clock=SimClock()):
            await say(ports, "minute")
            await asyncio.sleep(2 * MINUTE)
        return await life(ports), ages(ports)

    events, public = simulated(work)
    (_, raised), (at, _) = events
    assert kinds(events) == [FindingRaised, FindingExpired]
    assert is_soon(at, raised.finding.expires_at)
    ((name, payload),) = public
    assert (name, payload["finding_key"], payload["status"]) == (
        "finding.expired",
        "disk",
        "expired",
    )
    assert payload["episode_id"] == raised.cause.episode_id


@pytest.mark.parametrize("again", ["minute", "bare", "update"])
def test_a_finding_that_is_refreshed_in_time_goes_on(again):
    async def work(ports):
        async with running(app_of(Says()), ports, clock=SimClock()):
            await say(ports, "minute")
            for _ in range(4):
                await asyncio.sleep(40)
                await say(ports, again)
            await asyncio.sleep(2 * MINUTE)
        return await life(ports)

    events = simulated(work)
    assert kinds(events) == [FindingRaised, *[FindingUpdated] * 4, FindingExpired]
    assert is_soon(events[-1][0], events[-2][1].finding.expires_at)


def test_the_declared_time_to_live_holds_for_findings_that_say_nothing():
    async def work(ports):
        async with running(app_of(Says(), finding_ttl_s=30), ports, clock=SimClock()):
            await say(ports, "bare")
            await asyncio.sleep(MINUTE)
        return await life(ports)

    assert kinds(simulated(work)) == [FindingRaised, FindingExpired]


def test_what_was_cleared_or_raised_anew_since_is_left_alone():
    async def work(ports):
        async with running(app_of(Says()), ports, clock=SimClock()):
            for word in ("minute", "clear", "bare"):
                await say(ports, word)
            await asyncio.sleep(2 * MINUTE)
        return await life(ports), ages(ports)

    events, public = simulated(work)
    assert events[-1][1].finding.raise_no == 2
    assert FindingExpired not in kinds(events)
    assert public == []


def test_what_was_due_while_no_node_ran_ends_at_once_when_one_does():
    async def work(ports):
        async with running(app_of(Says()), ports, clock=SimClock()):
            await say(ports, "minute")
        await asyncio.sleep(10 * MINUTE)
        back = SimClock().now()
        async with running(app_of(Says()), ports, "n2", clock=SimClock()):
            await asyncio.sleep(5)
        return await life(ports), back

    events, back = simulated(work)
    assert kinds(events) == [FindingRaised, FindingExpired]
    assert is_soon(events[-1][0], back)


def test_a_finding_gets_worse_step_by_step():
    async def work(ports):
        async with running(app_of(Says(), escalation=STEPS), ports, clock=SimClock()):
            await say(ports, "bare")
            await asyncio.sleep(2 * 60 * MINUTE)
        return await life(ports), ages(ports)

    events, public = simulated(work)
    (raised_at, _), (first_at, first), (second_at, second) = events
    assert kinds(events) == [FindingRaised, FindingEscalated, FindingEscalated]
    assert is_soon(first_at, raised_at + timedelta(minutes=5))
    assert is_soon(second_at, raised_at + timedelta(hours=1))
    assert [each.finding.severity for each in (first, second)] == [Severity.HIGH, Severity.CRITICAL]
    assert [(name, said["class"], said["from"], said["to"]) for name, said in public] == [
        ("finding.escalated", "full", "medium", "high"),
        ("finding.escalated", "full", "high", "critical"),
    ]


def test_what_is_said_meanwhile_keeps_neither_the_age_nor_the_severity_down():
    async def work(ports):
        async with running(app_of(Says(), escalation=STEPS), ports, clock=SimClock()):
            for _ in range(8):
                await say(ports, "bare")
                await asyncio.sleep(MINUTE)
        return await life(ports)

    events = simulated(work)
    assert kinds(events).count(FindingEscalated) == 1
    assert events[-1][1].finding.severity is Severity.HIGH


def test_only_classes_with_escalations_get_worse():
    async def work(ports):
        async with running(app_of(Says(), escalation=STEPS), ports, clock=SimClock()):
            await say(ports, "other")
            await asyncio.sleep(2 * 60 * MINUTE)
        return await life(ports)

    assert kinds(simulated(work)) == [FindingRaised]


def test_a_finding_that_becomes_of_another_class_gets_worse_as_that_does():
    async def work(ports):
        async with running(app_of(Says(), escalation=STEPS), ports, clock=SimClock()):
            await say(ports, "other")
            await asyncio.sleep(30 * MINUTE)
            await say(ports, "bare")
            await asyncio.sleep(MINUTE)
        return await life(ports)

    assert kinds(simulated(work)) == [FindingRaised, FindingUpdated, FindingEscalated]


def test_changed_rules_hold_from_the_next_decision_on():
    async def work(ports):
        async with running(app_of(Says(), escalation=STEPS), ports, clock=SimClock()):
            await say(ports, "bare")
        sooner = {"full": [escalate(after="1m", to="critical")]}
        async with running(app_of(Says(), escalation=sooner), ports, "n2", clock=SimClock()):
            await asyncio.sleep(2 * MINUTE)
            assert kinds(await life(ports)) == [FindingRaised]
            await say(ports, "bare")
            await asyncio.sleep(2)
        return await life(ports)

    events = simulated(work)
    assert kinds(events) == [FindingRaised, FindingUpdated, FindingEscalated]
    assert events[-1][1].finding.severity is Severity.CRITICAL


def test_a_finding_both_gets_worse_and_expires():
    async def work(ports):
        async with running(app_of(Says(), escalation=STEPS), ports, clock=SimClock()):
            await say(ports, "hour")
            await asyncio.sleep(2 * 60 * MINUTE)
        return await life(ports)

    assert kinds(simulated(work))[:2] == [FindingRaised, FindingEscalated]
    assert kinds(simulated(work))[-1] is FindingExpired


# Races and crashes.


async def pending(ports, purpose, key="disk"):
    return await ports.timers.pending("worker", purpose, key)


def applier_of(ports, app):
    return FindingApplier(ports, app.actors, SimClock(), Turns())


def test_whoever_takes_an_episode_over_arms_what_its_dead_node_did_not():
    async def work(ports):
        app = app_of(Says(), escalation=STEPS)
        opened = opening(app)
        await applier_of(ports, app).apply([SAID["minute"]], opened=opened, attempt=1)
        for purpose in (EXPIRE, ESCALATE):
            await ports.timers.cancel("worker", purpose, "disk")
        await applier_of(ports, app).apply([SAID["minute"]], opened=opened, attempt=2)
        return [await pending(ports, purpose) for purpose in (EXPIRE, ESCALATE)], await life(ports)

    timers, events = simulated(work)
    assert [each.due_at for each in timers] == [seconds(60), seconds(300)]
    assert len(events) == 1


class Slow:
    """Timers of a writer that is overtaken between its event and its timer."""

    def __init__(self, ports, app):
        self._ports, self._app, self._is_first = ports, app, True

    async def arm(self, timer, *, at, **options):
        if self._is_first:
            self._is_first = False
            rival, opened = applier_of(self._ports, self._app), opening(self._app, id_="rival")
            await rival.apply([SAID["minute"]], opened=opened, attempt=1)
        return await self._ports.timers.arm(timer, at=at, **options)


def test_the_slower_of_two_writers_does_not_put_off_what_the_faster_wants_sooner():
    async def work(ports):
        app = app_of(Says())
        slow = replace(ports, timers=Slow(ports, app))
        await applier_of(slow, app).apply([SAID["hour"]], opened=opening(app), attempt=1)
        return await pending(ports, EXPIRE)

    assert simulated(work).due_at == seconds(MINUTE)


async def look(warden, ports, finding, *, at, id_="t1"):
    timer = timer_of(finding, EXPIRE)
    due = Due(
        id=id_,
        purpose=EXPIRE,
        key=timer.key,
        payload=timer.payload,
        due_at=seconds(at),
        fired_at=seconds(at),
    )
    subject = ports.stack.finding(timer.key)
    await warden.apply(DueFinding(due=due, subject=subject))


async def find(ports, app, word, *, id_="x1"):
    """Have an episode that was opened intend something, and return what came of it."""
    opened = opening(app, id_=id_)
    await write(ports, opened.episode_id, opened)
    (applied,) = await applier_of(ports, app).apply([SAID[word]], opened=opened, attempt=1)
    return applied.event.finding


async def raised(ports, app):
    return await find(ports, app, "minute")


def test_a_timer_that_is_too_early_is_armed_anew():
    async def work(ports):
        app = app_of(Says())
        finding = await raised(ports, app)
        await ports.timers.cancel("worker", EXPIRE, "disk")
        await look(FindingExpiry(crew_of(app, ports, clock=SimClock())), ports, finding, at=30)
        return await pending(ports, EXPIRE), await life(ports)

    timer, events = simulated(work)
    assert timer.due_at == seconds(MINUTE)
    assert kinds(events) == [FindingRaised]


def test_a_node_whose_clock_is_behind_believes_the_servers():
    async def work(ports):
        app = app_of(Says())
        finding = await raised(ports, app)
        await look(FindingExpiry(crew_of(app, ports, clock=SimClock())), ports, finding, at=MINUTE)
        return await life(ports)

    assert kinds(simulated(work)) == [FindingRaised, FindingExpired]


@pytest.mark.parametrize("second", ["t1", "t2"])
def test_a_timer_that_comes_again_and_another_one_change_nothing_and_the_world_is_told_once(second):
    async def work(ports):
        app = app_of(Says())
        finding = await raised(ports, app)
        warden = FindingExpiry(crew_of(app, ports, clock=SimClock()))
        await look(warden, ports, finding, at=MINUTE)
        await find(ports, app, "bare", id_="x2")
        await look(warden, ports, finding, at=MINUTE, id_=second)
        await react(ports, clock=SimClock())
        return kinds(await life(ports)), ages(ports)

    events, public = simulated(work)
    assert events == [FindingRaised, FindingExpired, FindingRaised]
    ((name, payload),) = public
    assert (name, payload["raise_no"]) == ("finding.expired", 1)


class StandsStill:
    """A log whose first look at a finding takes until another node has the timer."""

    def __init__(self, log, stack):
        self._log, self._subject, self.is_asked = log, stack.finding("disk"), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def last(self, subject):
        if subject == self._subject and not self.is_asked.is_set():
            self.is_asked.set()
            await asyncio.sleep(1.5 * ACK_WAIT_S)
        return await self._log.last(subject)


def test_who_stood_still_with_a_timer_that_another_has_seen_to_changes_nothing():
    """It holds the first delivery, and answers for the timer for good."""

    async def work(ports):
        app = app_of(Says())
        finding = await raised(ports, app)
        slow = StandsStill(ports.log, ports.stack)
        still = FindingExpiry(crew_of(app, replace(ports, log=slow), clock=SimClock()))
        finder = FindingExpiry(crew_of(app, ports, "n2", clock=SimClock()))
        stands = asyncio.create_task(look(still, ports, finding, at=MINUTE))
        await slow.is_asked.wait()
        await look(finder, ports, finding, at=MINUTE)
        await stands
        await react(ports, clock=SimClock())
        return kinds(await life(ports)), [name for name, _ in ages(ports)]

    assert simulated(work) == ([FindingRaised, FindingExpired], ["finding.expired"])


def test_what_a_newer_version_has_written_is_left_to_it():
    async def work(ports):
        app = app_of(Says())
        finding = await raised(ports, app)
        subject = ports.stack.finding("disk")
        strange = b'{"at":"2030-01-01T00:00:00Z","events":[{"type":"finding.moved@9"}]}'
        ports.log._streams["vigil-state"].publish(subject, strange, {})
        with pytest.raises(Unavailable, match=r"finding\.moved"):
            await look(
                FindingExpiry(crew_of(app, ports, clock=SimClock())), ports, finding, at=MINUTE
            )

    simulated(work)


def test_the_world_is_told_nothing_of_what_a_dry_run_keeps():
    async def work(ports):
        app = app_of(Says())
        dry = msgspec.structs.replace(
            opening(app), mode=Mode.DRY_RUN, overrides=Overrides(persist_findings="test")
        )
        await write(ports, dry.episode_id, dry)
        key = raise_finding("test:disk", class_="full", ttl_s=MINUTE)
        await applier_of(ports, app).apply([key], opened=dry, attempt=1)
        async with running(app, ports, clock=SimClock()):
            await asyncio.sleep(2 * MINUTE)
        return kinds(await life(ports, "test:disk")), ages(ports)

    events, public = simulated(work)
    assert events == [FindingRaised, FindingExpired]
    assert public == []


def test_a_finding_that_another_app_changes_gets_worse_as_its_own_app_says():
    stranger = Actor("stranger")
    stranger.expect("thing", Says(), on=event(HAPPENED))
    other = App(actors=[stranger])

    async def work(ports):
        own = app_of(Says(), escalation=STEPS)
        await applier_of(ports, own).apply([SAID["other"]], opened=opening(own), attempt=1)
        opened = msgspec.structs.replace(opening(own, id_="x2"), actor_id="stranger")
        await applier_of(ports, other).apply([SAID["bare"]], opened=opened, attempt=1)
        async with running(own, ports, clock=SimClock()):
            await asyncio.sleep(10 * MINUTE)
        return await life(ports)

    events = simulated(work)
    assert kinds(events) == [FindingRaised, FindingUpdated, FindingEscalated]
    assert is_soon(events[-1][0], seconds(5 * MINUTE))


def test_nodes_that_die_all_the_time_lose_no_end():
    async def work(ports):
        app = app_of(Says())
        async with running(app, ports, clock=SimClock()):
            await say(ports, "minute")
        await asyncio.sleep(MINUTE)
        for _ in range(3):
            async with doomed(app, ports):
                await asyncio.sleep(0)
        async with running(app, ports, "n9", clock=SimClock()):
            await asyncio.sleep(MINUTE)
        return kinds(await life(ports)), [name for name, _ in ages(ports)]

    assert simulated(work) == ([FindingRaised, FindingExpired], ["finding.expired"])

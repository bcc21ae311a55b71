"""An episode whose cause was refused, and which reaches the journal only after that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import msgspec
import pytest

from engine.app.app import App
from engine.app.checks import Breaker
from engine.app.triggers import event, every
from engine.episodes.breakers.breaker import BreakerState
from engine.episodes.open import PLACE
from engine.node.node import Node
from engine.runtime.slots import Slots
from engine.triggers.admit import Acknowledgement
from engine.triggers.evaluate import ARRIVES_S_MAX
from streams.keys import breaker_key, calmed_key, cooldown_key, pause_key
from streams.layout import Kind, Stream
from streams.memory import MemoryPorts, memory_ports
from streams.memory.bucket import MemoryBucket
from streams.model.events import EndStatus, EpisodeFinished, EpisodeStarted, LaneMoved
from streams.model.lanes import Ticket
from streams.model.modes import NodeMode
from streams.ports.delivery import ACK_WAIT_S
from streams.ports.log import START, Commit
from tests.engine.crew import crew_of, evaluator_of
from tests.engine.lane_stage import laned
from tests.engine.stage import HAPPENED, Life, Scripted, app_of, life, running, told
from tests.simulation.time import EPOCH, SimClock, simulate

REST_S = 600
COOLDOWN = cooldown_key("worker", "thing", "")
OPEN = BreakerState(status="open", failures=("e1",), opened_at=EPOCH.replace(year=2999))
QUARTER_S = 900.0

TOLD = ["episode.started", "episode.completed"]

SOON_S = 10.0
"""Longer than it takes to follow a commit, and to run the episode."""

REFUSED_S = 9 * ACK_WAIT_S
"""Longer than it takes another scheduler to take a lane over, and to refuse the cause."""
LEASE_S = 30.0

COOLED = app_of(Scripted(), cooldown_s=REST_S)
BROKEN = app_of(Scripted(), breaker=Breaker(threshold=1))
CALMED = app_of(Scripted(), debounce_s=1)
TICKED = app_of(Scripted(), on=every("15m"))
LANED = laned(thing={"cooldown_s": REST_S})
OTHERS = event(HAPPENED, filter={"is": "another"})
"""Events that an expectation is fired by once its filter was changed."""


class OnItsWay:
    """A log that the first commit of the first episode reaches only when it is let go."""

    def __init__(self, log, stack):
        self._log, self._stack = log, stack
        self.sent: list[tuple[str, Commit, int]] = []

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        if self.sent or self._stack.aggregate_of(subject)[0] is not Kind.EPISODE:
            return await self._log.append(subject, commit, after=after)
        self.sent.append((subject, commit, after))
        return await asyncio.Event().wait()

    async def arrive(self) -> str:
        """Let it reach the log, and return the episode."""
        ((subject, commit, after),) = self.sent
        await self._log.append(subject, commit, after=after)
        return commit.events[0].episode_id


@dataclass
class Scene:
    """A node that died while the first commit of its episode was on its way."""

    app: App
    ports: MemoryPorts
    way: OnItsWay

    @asynccontextmanager
    async def refusing(self, shut, *, app: App | None = None) -> AsyncIterator[None]:
        """Another node, which has refused the cause by then: so `shut` had it, or its `app`."""
        await shut(self.ports)
        async with running(app or self.app, self.ports, "n2", clock=SimClock()):
            await asyncio.sleep(2 * ACK_WAIT_S)
            yield

    @property
    def news(self) -> list[str]:
        return [name for name, _ in told(self.ports) if name.startswith("episode.")]

    async def letters(self) -> list[object]:
        async with self.ports.log.follow(Stream.DEAD) as follower:
            records = await follower.receive(most=100, wait_s=0)
        return [event for record in records for event in record.commit.events]


@asynccontextmanager
async def abandoned(
    app: App = COOLED, mode=NodeMode.FULL, after_s=5.0, events=1
) -> AsyncIterator[Scene]:
    ports = memory_ports(clock=SimClock())
    way = OnItsWay(ports.log, ports.stack)
    node = Node(
        app, replace(ports, log=way), name="n1", clock=SimClock(), mode=mode, announces=False
    )
    task = asyncio.create_task(node.run())
    await asyncio.sleep(1)
    for number in range(events):
        await ports.domain_events.publish(HAPPENED, {}, id=f"x{number + 1}")
    await asyncio.sleep(after_s)
    assert way.sent
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    yield Scene(app, ports, way)


async def cooldown_of_another(ports):
    await ports.gates.put(COOLDOWN, b"another", ttl_s=REST_S)


async def opened_breaker(ports):
    await ports.gates.put(breaker_key("worker", "thing"), msgspec.json.encode(OPEN))


async def newer_event(ports):
    key = calmed_key("worker", "thing", "")
    await ports.gates.put(key, EPOCH.replace(year=2999).isoformat().encode())


async def nothing(ports):
    """Leave all as it is."""


async def newer_tick(ports):
    await asyncio.sleep(2 * QUARTER_S)


async def told_of(app, shut, **how) -> tuple[Life, list[str], list[object]]:
    """Return an episode that arrives when its cause has been refused, news of it, dead letters."""
    async with abandoned(app, **how) as scene, scene.refusing(shut):
        episode_id = await scene.way.arrive()
        await asyncio.sleep(SOON_S)
        return await life(scene.ports, episode_id), scene.news, await scene.letters()


@pytest.mark.parametrize(
    ("app", "shut"),
    [(COOLED, cooldown_of_another), (BROKEN, opened_breaker), (CALMED, newer_event)],
    ids=["a cooldown", "a breaker", "a newer event"],
)
def test_the_end_of_an_episode_that_arrives_after_its_cause_was_refused_is_told(app, shut):
    """All of it was one commit. Whoever follows the journal asks nothing of its cause."""
    left, news, letters = simulate(told_of(app, shut))
    assert (left.end.status, len(left.records)) == (EndStatus.DONE, 1)
    assert (news, letters) == (TOLD, [])


def test_so_is_that_of_a_tick_which_is_too_old_when_it_comes_again():
    async def story():
        async with abandoned(TICKED, after_s=QUARTER_S) as scene, scene.refusing(newer_tick):
            episode_id = await scene.way.arrive()
            await asyncio.sleep(SOON_S)
            return [name for name, said in told(scene.ports) if said["episode_id"] == episode_id]

    assert simulate(story()) == TOLD


def test_one_that_was_only_opened_is_begun():
    """Whoever opened it is gone."""
    left, _, letters = simulate(told_of(COOLED, cooldown_of_another, mode=NodeMode.TRIGGER_ONLY))
    assert [len(left.of(each)) for each in (EpisodeStarted, EpisodeFinished)] == [1, 1]
    assert letters == []


def test_so_is_one_that_was_opened_for_a_lane():
    async def story():
        async with abandoned(LANED) as scene, scene.refusing(cooldown_of_another):
            await asyncio.sleep(REFUSED_S)
            episode_id = await scene.way.arrive()
            await asyncio.sleep(ARRIVES_S_MAX)
            return (await life(scene.ports, episode_id)).end.status, await scene.letters()

    assert simulate(story()) == (EndStatus.DONE, [])


def test_of_one_that_never_arrives_nothing_is_left():
    async def story():
        async with abandoned(LANED) as scene, scene.refusing(cooldown_of_another):
            await asyncio.sleep(REFUSED_S)
            asked = await scene.ports.timers.keys("worker", PLACE)
            await asyncio.sleep(2 * ARRIVES_S_MAX)
            left = await scene.ports.timers.keys("worker", PLACE)
            return len(asked), left, scene.news, await scene.letters()

    assert simulate(story()) == (1, [], [], [])


def test_nor_where_turns_have_ended_meanwhile():
    async def story():
        async with (
            abandoned(LANED) as scene,
            scene.refusing(cooldown_of_another),
        ):
            await asyncio.sleep(REFUSED_S)
        async with running(COOLED, scene.ports, "n3", clock=SimClock()):
            await asyncio.sleep(2 * ARRIVES_S_MAX)
            return await scene.ports.commands.backlog("worker"), await scene.letters()

    assert simulate(story()) == (0, [])


def test_it_goes_on_also_while_its_actor_is_paused():
    async def story():
        async with abandoned() as scene, scene.refusing(cooldown_of_another):
            await scene.ports.registry.put(pause_key("worker"), b"{}")
            await scene.way.arrive()
            await asyncio.sleep(SOON_S)
            return scene.news

    assert simulate(story()) == TOLD


async def one_that_has_the_only_place(ports):
    other = Ticket(episode_id="other", expectation_id="thing", number=1)
    moved = LaneMoved(placed=(other,), admitted=("other",))
    commit = Commit(id="by-hand", at=EPOCH, events=(moved,))
    await ports.log.append(ports.stack.lane("worker"), commit, after=START)


def test_an_episode_that_arrives_after_the_next_scheduler_dropped_its_cause_is_canceled():
    """It has no place, and whoever opened it is gone: nothing else would call anybody to it."""

    async def story():
        async with (
            abandoned(laned(overflow="drop")) as scene,
            scene.refusing(one_that_has_the_only_place),
        ):
            await asyncio.sleep(LEASE_S)
            news = scene.news
            episode_id = await scene.way.arrive()
            await asyncio.sleep(ARRIVES_S_MAX)
            return news, (await life(scene.ports, episode_id)).end.status

    assert simulate(story()) == (["episode.dropped"], EndStatus.CANCELED)


@pytest.mark.parametrize("events", [1, 400])
def test_all_that_a_dead_scheduler_had_is_looked_for_by_the_next_one_that_refuses_it(events):
    async def story():
        async with (
            abandoned(LANED, events=events) as scene,
            scene.refusing(cooldown_of_another),
        ):
            await asyncio.sleep(LEASE_S)
            return len(await scene.ports.timers.keys("worker", PLACE))

    assert simulate(story()) == events


def test_a_cause_that_is_dropped_when_it_comes_first_is_not_looked_for():
    async def story():
        ports = memory_ports(clock=SimClock())
        await one_that_has_the_only_place(ports)
        async with running(laned(overflow="drop"), ports, clock=SimClock()):
            await asyncio.sleep(LEASE_S)
            await ports.domain_events.publish(HAPPENED, {}, id="x1")
            await asyncio.sleep(1)
            news = [name for name, _ in told(ports)]
            return news, await ports.timers.keys("worker", PLACE)

    assert simulate(story()) == (["episode.dropped"], [])


CHANGES = {
    "a filter": (app_of(Scripted()), app_of(Scripted(), on=OTHERS)),
    "a sample": (app_of(Scripted()), app_of(Scripted(), sample=1e-9)),
    "a filter in a lane": (laned(), laned(thing={"on": OTHERS})),
}


def done_after(before: App, changed: App, *, arrives_late: bool, within_s: float):
    """Return how an episode ends whose cause is refused by the next deploy of its actor."""

    async def story():
        async with abandoned(before, mode=NodeMode.TRIGGER_ONLY) as scene:
            if not arrives_late:
                await scene.way.arrive()
            async with scene.refusing(nothing, app=changed):
                await asyncio.sleep(LEASE_S)
                if arrives_late:
                    await scene.way.arrive()
                await asyncio.sleep(within_s)
                (((subject, *_),), ports) = scene.way.sent, scene.ports
                left = await life(ports, ports.stack.aggregate_of(subject)[1])
                return left.end.status, await scene.letters()

    return simulate(story())


@pytest.mark.parametrize("change", CHANGES)
def test_an_episode_whose_cause_the_next_deploy_refuses_is_begun(change):
    """It was opened, and its node is gone before anybody was called to it."""
    done = done_after(*CHANGES[change], arrives_late=False, within_s=SOON_S)
    assert done == (EndStatus.DONE, [])


@pytest.mark.parametrize("change", CHANGES)
def test_so_is_one_that_arrives_after_the_next_deploy_refused_its_cause(change):
    done = done_after(*CHANGES[change], arrives_late=True, within_s=ARRIVES_S_MAX)
    assert done == (EndStatus.DONE, [])


def test_an_event_that_a_dedupe_function_was_not_made_for_leaves_no_letter():
    def key_of(event):
        return event.payload["order"]

    changed = app_of(Scripted(), on=OTHERS, dedupe=key_of)

    async def story():
        async with abandoned(app_of(Scripted())) as scene, scene.refusing(nothing, app=changed):
            left = await scene.ports.domain_events.backlog("worker")
            return left, await scene.letters()

    assert simulate(story()) == (0, [])


class LateToLook:
    """A world whose source stands still with the first event, before anybody has looked at it."""

    def __init__(self, world):
        self._domain_events, self.is_still = world, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._domain_events, name)

    async def open(self, *args, **options):
        return LateSource(await self._domain_events.open(*args, **options), self.is_still)


class LateSource:
    def __init__(self, source, is_still):
        self._source, self._is_still = source, is_still

    def __getattr__(self, name):
        return getattr(self._source, name)

    async def receive(self, **options):
        deliveries = await self._source.receive(**options)
        if deliveries and not self._is_still.is_set():
            self._is_still.set()
            await asyncio.sleep(1.5 * ACK_WAIT_S)
        return deliveries


def test_who_stood_still_with_an_event_opens_nothing_that_others_have_refused_meanwhile():
    async def story():
        ports = memory_ports(clock=SimClock())
        late = LateToLook(ports.domain_events)
        async with running(COOLED, replace(ports, domain_events=late), "n1", clock=SimClock()):
            await asyncio.sleep(1)
            await cooldown_of_another(ports)
            await ports.domain_events.publish(HAPPENED, {}, id="x1")
            await late.is_still.wait()
            async with running(COOLED, ports, "n2", clock=SimClock()):
                await asyncio.sleep(1.2 * ACK_WAIT_S)
                await ports.gates.delete(COOLDOWN)
                await asyncio.sleep(2 * ACK_WAIT_S)
        return told(ports), await ports.domain_events.backlog("worker")

    assert simulate(story()) == ([], 0)


class LateTimers(LateToLook):
    """Timers whose source stands still with the first that is due."""

    def __init__(self, timers):
        super().__init__(timers)
        self.armed = []

    async def arm(self, timer, **how):
        self.armed.append((self.is_still.is_set(), timer.purpose))
        return await self._domain_events.arm(timer, **how)


class Fast(SimClock):
    """A clock that is ahead."""

    def now(self):
        return super().now() + timedelta(minutes=5)


def test_who_stood_still_with_a_tick_arms_nothing_that_others_have_to_answer_for():
    """Its clock is wrong: it would ask the server for the time, and all had it once more."""

    async def story():
        ports = memory_ports(clock=SimClock())
        late = LateTimers(ports.timers)
        async with running(TICKED, replace(ports, timers=late), "n1", clock=Fast()):
            await late.is_still.wait()
            async with running(TICKED, ports, "n2", clock=SimClock()):
                await asyncio.sleep(3 * ACK_WAIT_S)
        ticks = [name for name, _ in told(ports)]
        return [purpose for is_still, purpose in late.armed if is_still], ticks

    assert simulate(story()) == ([], ["episode.started", "episode.completed"])


class SlowToLook(MemoryBucket):
    """A bucket whose first look at a cooldown takes until others have the cause."""

    _has_frozen = False

    async def get(self, key):
        if key == COOLDOWN and not self._has_frozen:
            self._has_frozen = True
            await asyncio.sleep(1.5 * ACK_WAIT_S)
        return await super().get(key)


def test_who_refuses_what_others_may_have_let_in_meanwhile_asks_for_a_place():
    """It answers for them: the cause comes to nobody any more, should they be gone."""

    async def story():
        clock = SimClock()
        ports = replace(memory_ports(clock=clock), gates=SlowToLook(clock))
        await cooldown_of_another(ports)
        evaluator = evaluator_of(crew_of(COOLED, ports, clock=clock))
        source = await ports.domain_events.open("worker", [HAPPENED])
        await ports.domain_events.publish(HAPPENED, {}, id="x1")
        (delivery,) = await source.receive(room=1, wait_s=1)
        (part,) = await evaluator.rule(delivery.content, is_repeat=False)
        since_s = clock.monotonic_s()
        ack = Acknowledgement(delivery, parts=1, room=Slots(1), clock=clock, since_s=since_s)
        opened = await evaluator.evaluate(part, is_late=lambda: ack.is_overdue)
        await source.close()
        return opened, len(await ports.timers.keys("worker", PLACE))

    assert simulate(story()) == (None, 1)


def test_what_is_refused_when_it_comes_first_asks_for_nothing():
    """So it costs nothing."""

    async def story():
        ports = memory_ports(clock=SimClock())
        await cooldown_of_another(ports)
        async with running(COOLED, ports, clock=SimClock()):
            await asyncio.sleep(1)
            await ports.domain_events.publish(HAPPENED, {}, id="x1")
            await asyncio.sleep(1)
            return await ports.timers.keys("worker", PLACE)

    assert simulate(story()) == []


def test_an_event_that_comes_first_and_does_not_fit_asks_for_nothing():
    async def story():
        ports = memory_ports(clock=SimClock())
        async with running(app_of(Scripted(), on=OTHERS), ports, clock=SimClock()):
            await asyncio.sleep(1)
            await ports.domain_events.publish(HAPPENED, {}, id="x1")
            await asyncio.sleep(1)
            return await ports.timers.keys("worker", PLACE)

    assert simulate(story()) == []


def test_an_event_that_does_not_fit_asks_for_a_place_where_a_node_stood_still_with_it():
    async def story():
        ports = memory_ports(clock=SimClock())
        late = replace(ports, domain_events=LateToLook(ports.domain_events))
        async with running(app_of(Scripted(), on=OTHERS), late, clock=SimClock()):
            await asyncio.sleep(1)
            await ports.domain_events.publish(HAPPENED, {}, id="x1")
            await asyncio.sleep(1.6 * ACK_WAIT_S)
            return len(await ports.timers.keys("worker", PLACE))

    assert simulate(story()) == 1

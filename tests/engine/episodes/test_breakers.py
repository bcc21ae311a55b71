"""Circuit breakers: fed by every end, shared by all nodes, and what they cancel."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import msgspec
import pytest
from structlog.testing import capture_logs

from engine.app.actions import tool_call
from engine.app.checks import Breaker
from engine.episodes.attempt import RunningEpisodes
from engine.episodes.breakers.breaker import CLOSED, TRIPPED, BreakerState
from engine.episodes.breakers.store import NOTE_TRIES_MAX, Breakers, SeenBreaker
from engine.node.node import Node
from engine.runtime import watch
from streams.errors import RevisionConflict, Unavailable, UnknownOutcome
from streams.keys import BREAKERS, breaker_key
from streams.memory import memory_ports
from streams.memory.bucket import MemoryBucket
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    StepRecorded,
)
from streams.model.modes import NodeMode
from streams.model.triggers import ManualTrigger, Mode
from tests.engine.crew import attempt_of
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    LEASE_TTL_S,
    LOOK_S,
    STARTED,
    WAIT_S,
    Counter,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    eventually,
    leave,
    life,
    lived,
    open_episode,
    opening,
    ports_in_memory,
    running,
    told,
    write,
)
from tests.simulation.time import SimClock, simulate
from tests.spec import EPOCH

KEY = breaker_key("worker", "thing")
FAILED = EpisodeFinished(status=EndStatus.FAILED, error_class="crash")
DONE = EpisodeFinished(status=EndStatus.DONE)
OPEN = BreakerState(status="open", failures=("e1",), opened_at=EPOCH.replace(year=2999))
TRIPS = Breaker(threshold=1, half_open_after_s=60, cancel_in_flight=True)


class Ailing(Scripted):
    """Fails at once if its event says so, else asks for its plan."""

    def init(self, episode, trigger):
        if trigger.payload.get("ails"):
            raise RuntimeError("the outside is down")
        return self.State()


def breakers_of(app, ports, *, node="n1", clock=CLOCK, running=None) -> Breakers:
    actor = app.actors["worker"]
    return Breakers(actor, ports, clock, node=node, running=running or RunningEpisodes())


def thing(app):
    return app.actors["worker"].expectations["thing"]


def opened_as(app, number) -> EpisodeOpened:
    return opening(app, id_=f"x{number}")


async def state_of(ports) -> BreakerState:
    entry = await ports.gates.get(KEY)
    return CLOSED if entry is None else msgspec.json.decode(entry.value, type=BreakerState)


async def trip(ports, state=OPEN) -> None:
    await ports.gates.put(KEY, msgspec.json.encode(state))


async def watched(ports, app) -> None:
    """Have events wait for the actor, whoever runs it."""
    actor = app.actors["worker"]
    await (await ports.domain_events.open(actor.id, actor.event_names())).close()


async def publish(ports, id_, **payload) -> None:
    await ports.domain_events.publish(HAPPENED, payload, id=id_)


async def ended(ports, app, id_):
    """Wait until the episode that the event `id_` opened has ended, and return its life."""
    return await lived(ports, opening(app, id_=id_).episode_id)


# What is kept.


async def test_a_breaker_that_nobody_has_told_anything_is_closed(ports):
    app = app_of(Scripted(), breaker=Breaker())
    assert await breakers_of(app, ports).read(thing(app)) == SeenBreaker(CLOSED, 0)


async def test_whoever_names_the_revision_that_it_saw_changes_the_breaker(ports):
    app = app_of(Scripted(), breaker=Breaker())
    one, other = breakers_of(app, ports), breakers_of(app, ports, node="n2")
    assert await one.keep(thing(app), OPEN, after=0)
    assert not await other.keep(thing(app), CLOSED, after=0)
    seen = await other.read(thing(app))
    assert seen.state == OPEN
    assert await other.keep(thing(app), CLOSED, after=seen.revision)


@pytest.mark.parametrize(
    "value", [b"nonsense", b'{"status":"ajar"}', b'{"opened_at":"2026-01-01T00:00:00"}', b"\xff"]
)
async def test_a_value_that_cannot_be_read_counts_as_closed_is_logged_once_and_goes(ports, value):
    app = app_of(Scripted(), breaker=Breaker())
    breakers = breakers_of(app, ports)
    revision = await ports.gates.put(KEY, value)
    with capture_logs() as logs:
        assert await breakers.read(thing(app)) == SeenBreaker(CLOSED, revision)
        assert await breakers.read(thing(app)) == SeenBreaker(CLOSED, revision)
    assert [line["key"] for line in logs] == [KEY]
    assert await breakers.keep(thing(app), OPEN, after=revision)


async def test_the_breaker_of_a_node_is_its_own(ports):
    app = app_of(Scripted(), breaker=Breaker(threshold=1, scope="node"))
    here, there = breakers_of(app, ports), breakers_of(app, ports, node="n2")
    await here.record_end(opened_as(app, 1), FAILED, seq=7)
    seen = await here.read(thing(app))
    assert seen.state.status == "open"
    assert (await there.read(thing(app))).state == CLOSED
    assert not await ports.gates.entries()
    assert not await here.keep(thing(app), CLOSED, after=seen.revision - 1)
    assert await here.keep(thing(app), CLOSED, after=seen.revision)
    (news,) = told(ports)
    assert (news[1]["scope"], news[1]["node"]) == ("node", "n1")


# What feeds it.


class Away(MemoryBucket):
    """Cannot be read nor written."""

    async def get(self, key):
        raise Unavailable(key, detail="away")

    async def put(self, key, value, *, after=None, ttl_s=None):
        raise Unavailable(key, detail="away")


async def test_an_expectation_without_a_breaker_is_nothing_to_the_gates(ports):
    app = app_of(Scripted())
    breakers = breakers_of(app, replace(ports, gates=Away(CLOCK)))
    await breakers.record_end(opened_as(app, 1), FAILED, seq=7)
    await breakers.check(attempt_of(opened_as(app, 1)))
    assert (await breakers.read(thing(app))).state == CLOSED


async def test_an_end_that_changes_nothing_is_not_written(ports):
    app = app_of(Scripted(), breaker=Breaker())
    breakers = breakers_of(app, ports)
    await breakers.record_end(opened_as(app, 1), DONE, seq=7)
    assert await ports.gates.get(KEY) is None
    await breakers.record_end(opened_as(app, 2), FAILED, seq=7)
    before = await ports.gates.get(KEY)
    await breakers.record_end(opened_as(app, 2), FAILED, seq=7)
    await breakers.record_end(opened_as(app, 3), EpisodeFinished(status=EndStatus.CANCELED), seq=7)
    assert await ports.gates.get(KEY) == before


async def test_an_end_of_an_expectation_that_this_version_lacks_is_let_pass(ports):
    app = app_of(Scripted(), breaker=Breaker())
    begun = msgspec.structs.replace(opened_as(app, 1), expectation_id="gone")
    await breakers_of(app, ports).record_end(begun, FAILED, seq=7)
    await breakers_of(app, ports).check(attempt_of(begun))
    await breakers_of(app, ports).look_again("gone")
    assert not await ports.gates.entries()


class Slow(MemoryBucket):
    """Lets others come between a reading and a writing."""

    async def put(self, key, value, *, after=None, ttl_s=None):
        await asyncio.sleep(0)
        return await super().put(key, value, after=after, ttl_s=ttl_s)


def test_ends_that_two_nodes_note_at_the_same_time_all_count():
    async def fight() -> BreakerState:
        ports = memory_ports(clock=SimClock())
        ports = replace(ports, gates=Slow(SimClock()))
        app = app_of(Scripted(), breaker=Breaker(threshold=12))
        nodes = [breakers_of(app, ports, node=node, clock=SimClock()) for node in ("n1", "n2")]
        notes = [nodes[i % 2].record_end(opened_as(app, i), FAILED, seq=7) for i in range(12)]
        await asyncio.gather(*notes)
        return await state_of(ports)

    state = simulate(fight())
    assert (state.status, len(set(state.failures))) == ("open", 12)


class Contested(MemoryBucket):
    """Somebody else is always faster."""

    tries = 0

    async def put(self, key, value, *, after=None, ttl_s=None):
        self.tries += 1
        raise RevisionConflict(key, expected=after or 0)


def test_a_breaker_that_is_fought_over_without_end_is_left_for_another_time():
    async def fight() -> int:
        gates = Contested(SimClock())
        ports = replace(memory_ports(clock=SimClock()), gates=gates)
        app = app_of(Scripted(), breaker=Breaker())
        with pytest.raises(Unavailable, match="other nodes changed it"):
            await breakers_of(app, ports, clock=SimClock()).record_end(
                opened_as(app, 1), FAILED, seq=7
            )
        return gates.tries

    assert simulate(fight()) == NOTE_TRIES_MAX


class Deaf(MemoryBucket):
    """Loses the answer to each writing that it does."""

    async def put(self, key, value, *, after=None, ttl_s=None):
        await super().put(key, value, after=after, ttl_s=ttl_s)
        raise UnknownOutcome(key, detail="lost")


async def test_an_end_whose_noting_was_not_answered_counts_once_and_is_told(ports):
    ports = replace(ports, gates=Deaf(CLOCK))
    app = app_of(Scripted(), breaker=Breaker(threshold=1))
    await breakers_of(app, ports).record_end(opened_as(app, 1), FAILED, seq=7)
    assert (await state_of(ports)).failures == (opened_as(app, 1).episode_id,)
    assert [name for name, _ in told(ports)] == ["circuit_breaker.opened"]


async def test_a_crash_between_an_end_and_its_noting_is_made_good_by_the_next_node(ports):
    app = app_of(Scripted(), breaker=Breaker(threshold=1))
    begun = opening(app)
    await write(ports, begun.episode_id, begun)
    await write(ports, begun.episode_id, STARTED, FAILED)
    await ask_start(ports, begun.episode_id)
    async with running(app, ports):
        await all_answered(ports.commands)
    assert (await state_of(ports)).failures == (begun.episode_id,)
    end = (await life(ports, begun.episode_id)).records[-1]
    assert {name: payload["journal_seq"] for name, payload in told(ports)} == {
        "episode.started": end.seq,
        "episode.failed": end.seq,
        "circuit_breaker.opened": end.seq,
    }


async def test_a_crash_between_noting_and_telling_is_made_good_by_the_next_node(ports):
    app = app_of(Scripted(), breaker=Breaker(threshold=1))
    begun = opening(app)
    await trip(ports, msgspec.structs.replace(OPEN, failures=(begun.episode_id,)))
    await breakers_of(app, ports).record_end(begun, FAILED, seq=7)
    await breakers_of(app, ports).record_end(begun, FAILED, seq=7)
    assert [name for name, _ in told(ports)] == ["circuit_breaker.opened"]


def test_an_episode_whose_end_cannot_be_noted_is_not_let_go():
    """The claim lapses, and whoever comes then notes the end."""

    async def scenario() -> tuple[BreakerState, int]:
        ports = memory_ports(clock=SimClock(), lease_ttl_s=LEASE_TTL_S)
        app = app_of(Scripted(tool_call("nowhere", "go")), breaker=Breaker(threshold=1))
        app.actors["worker"].expectations["thing"].strategy.converge = lambda *_: 1 / 0
        away = replace(ports, gates=Away(SimClock()))
        async with running(app, away, clock=SimClock()):
            await lived(ports, episode_id := await open_episode(ports, app))
        before = await state_of(ports)
        async with running(app, ports, "n2", clock=SimClock()), ports.gates.watch() as watch:
            async with asyncio.timeout(WAIT_S):
                while not (await state_of(ports)).failures:
                    await watch.receive(most=100, wait_s=WAIT_S)
        return before, len((await life(ports, episode_id)).of(EpisodeStarted))

    assert simulate(scenario()) == (CLOSED, 1)


# What it does to events.


async def test_failures_on_two_nodes_open_it_for_both(ports):
    app = app_of(Ailing(), breaker=Breaker(threshold=3))
    await watched(ports, app)
    async with running(app, ports, "n1"):
        for id_ in ("x1", "x2"):
            await publish(ports, id_, ails=True)
            await ended(ports, app, id_)
    async with running(app, ports, "n2"):
        await publish(ports, "x3", ails=True)
        await ended(ports, app, "x3")
        await all_answered(ports.domain_events)
        await publish(ports, "x4")
        await all_answered(ports.domain_events)
    assert not (await life(ports, opening(app, id_="x4").episode_id)).records
    name, payload = next(news for news in told(ports) if news[0].startswith("circuit"))
    assert (name, payload["scope"], payload["node"]) == ("circuit_breaker.opened", "cluster", "")
    assert payload["failures"] == [opening(app, id_=f"x{n}").episode_id for n in (1, 2, 3)]
    assert (payload["actor_id"], payload["expectation_id"]) == ("worker", "thing")
    end = (await life(ports, payload["episode_id"])).records[-1]
    assert payload["journal_seq"] == end.seq


def test_after_its_time_one_probe_is_let_through_and_closes_it():
    async def scenario():
        ports = memory_ports(clock=SimClock(), lease_ttl_s=LEASE_TTL_S)
        tool = Counter(open_=False)
        strategy = Ailing(tool_call("tool", "a"))
        rules = Breaker(threshold=1, half_open_after_s=60, cancel_in_flight=True)
        app = app_of(strategy, tools={"tool": tool}, breaker=rules)
        await watched(ports, app)
        async with running(app, ports, clock=SimClock()):
            await publish(ports, "x1", ails=True)
            await ended(ports, app, "x1")
            await all_answered(ports.domain_events)
            await asyncio.sleep(60)
            await publish(ports, "probe")
            await asyncio.wait_for(tool.called.wait(), WAIT_S)
            await publish(ports, "x2")
            await asyncio.sleep(1)
            assert tool.calls == ["a"]
            tool.gate.set()
            assert (await ended(ports, app, "probe")).end.status is EndStatus.DONE
            await all_answered(ports.domain_events)
            await publish(ports, "x3")
            assert (await ended(ports, app, "x3")).end.status is EndStatus.DONE
        changes = [name for name, _ in told(ports) if name.startswith("circuit")]
        return changes, (await life(ports, opening(app, id_="x2").episode_id)).records

    changes, refused = simulate(scenario())
    assert changes == [
        "circuit_breaker.opened", "circuit_breaker.half_opened", "circuit_breaker.closed",
    ]  # fmt: skip
    assert refused == ()


# What it does to episodes that run, or wait to.


async def test_what_runs_on_another_node_is_canceled_when_it_opens(ports):
    tool = Counter(open_=False)
    app = app_of(Ailing(tool_call("tool", "a")), tools={"tool": tool}, breaker=TRIPS, most=1)
    await watched(ports, app)
    async with running(app, ports, "n1"):
        await publish(ports, "waits")
        await asyncio.wait_for(tool.called.wait(), WAIT_S)  # From now on n1 is full.
        async with running(app, ports, "n2"):
            await publish(ports, "x1", ails=True)
            await ended(ports, app, "x1")
            life_ = await ended(ports, app, "waits")
    assert (life_.end.status, life_.end.error_class) == (EndStatus.CANCELED, TRIPPED)
    assert not life_.of(StepRecorded)
    assert "episode.canceled" in [name for name, _ in told(ports)]
    assert len((await state_of(ports)).failures) == 1


async def test_without_cancel_in_flight_what_runs_goes_on(ports):
    tool = Counter(open_=False)
    rules = Breaker(threshold=1, half_open_after_s=60)
    app = app_of(Ailing(tool_call("tool", "a")), tools={"tool": tool}, breaker=rules)
    await watched(ports, app)
    async with running(app, ports):
        await publish(ports, "waits")
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        await publish(ports, "x1", ails=True)
        await ended(ports, app, "x1")
        await all_answered(ports.domain_events)
        tool.gate.set()
        assert (await ended(ports, app, "waits")).end.status is EndStatus.DONE


async def test_a_breaker_of_the_node_cancels_what_runs_on_it(ports):
    tool = Counter(open_=False)
    rules = msgspec.structs.replace(TRIPS, scope="node")
    app = app_of(Ailing(tool_call("tool", "a")), tools={"tool": tool}, breaker=rules)
    await watched(ports, app)
    async with running(app, ports):
        await publish(ports, "waits")
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        await publish(ports, "x1", ails=True)
        assert (await ended(ports, app, "waits")).end.error_class == TRIPPED


async def test_an_episode_that_is_queued_is_canceled_before_any_of_its_code_runs(ports):
    strategy = Scripted()
    strategy.init = lambda *_: pytest.fail("its code ran")
    app = app_of(strategy, breaker=TRIPS)
    await trip(ports)
    async with running(app, ports):
        life_ = await lived(ports, await open_episode(ports, app))
    assert (life_.end.status, life_.end.error_class) == (EndStatus.CANCELED, TRIPPED)
    assert not life_.of(EpisodeStarted)
    assert [name for name, _ in told(ports)] == [
        "episode.canceled", "circuit_breaker.canceled_episode",
    ]  # fmt: skip


async def test_an_episode_that_a_node_left_in_the_middle_is_canceled_by_the_next(ports):
    tool = Counter()
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool}, breaker=TRIPS)
    await trip(ports)
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app))
    assert (life_.end.error_class, tool.calls) == (TRIPPED, [])
    assert [one.attempt for one in life_.of(EpisodeStarted)] == [1]


async def test_what_is_true_already_is_carried_out_although_it_is_open(ports):
    app = app_of(Scripted(), breaker=TRIPS)
    await trip(ports)
    async with running(app, ports):
        life_ = await lived(ports, await leave(ports, app, EpisodeConverged()))
    assert life_.end.status is EndStatus.DONE


@pytest.mark.parametrize(
    "changed",
    [{"trigger": ManualTrigger(requested_by="ada")}, {"mode": Mode.DRY_RUN}],
    ids=["by hand", "dry run"],
)
async def test_what_stands_outside_runs_although_it_is_open(ports, changed):
    app = app_of(Scripted(), breaker=TRIPS)
    begun = msgspec.structs.replace(opening(app), **changed)
    await trip(ports)
    await write(ports, begun.episode_id, begun)
    await ask_start(ports, begun.episode_id)
    async with running(app, ports):
        assert (await lived(ports, begun.episode_id)).end.status is EndStatus.DONE


class Turning(MemoryBucket):
    """The breaker opens as soon as somebody has seen it closed."""

    async def get(self, key):
        seen = await super().get(key)
        if key == KEY and seen is None:
            await self.put(KEY, msgspec.json.encode(OPEN))
        return seen


async def test_one_that_begins_while_the_breaker_opens_is_canceled(ports):
    ports = replace(ports, gates=Turning(CLOCK))
    app = app_of(
        Scripted(tool_call("tool", "a")), tools={"tool": Counter(open_=False)}, breaker=TRIPS
    )
    async with running(app, ports):
        life_ = await lived(ports, await open_episode(ports, app))
    assert life_.end.error_class == TRIPPED


async def test_old_news_of_a_breaker_do_not_cancel_the_probe_of_today(ports):
    app, node = app_of(Scripted(), breaker=TRIPS), RunningEpisodes()
    probe, other = attempt_of(opened_as(app, 1)), attempt_of(opened_as(app, 2))
    await trip(ports, BreakerState(status="half_open", probe=probe.opened.episode_id))
    with node.during(probe), node.during(other):
        await breakers_of(app, ports, running=node).look_again("thing")
    assert (probe.canceled, other.canceled is not None) == (None, True)


class Watched(MemoryBucket):
    """A bucket that counts how often its breakers were looked for."""

    looks = 0

    @asynccontextmanager
    async def watch(self, *, under=""):
        async with super().watch(under=under) as watch:
            if under == BREAKERS:
                watch.receive = partial(self._look, watch.receive)
            yield watch

    async def _look(self, receive, **how):
        self.looks += 1
        return await receive(**how)


async def test_a_breaker_cancels_what_runs_on_a_node_that_is_stopping(monkeypatch):
    monkeypatch.setattr(watch, "WAIT_S", LOOK_S)
    gates, tool = Watched(CLOCK), Counter(open_=False)
    ports = replace(ports_in_memory(), gates=gates)
    app = app_of(Ailing(tool_call("tool", "a")), tools={"tool": tool}, breaker=TRIPS)
    await watched(ports, app)
    async with running(app, ports, "n1") as node:
        await publish(ports, "waits")
        await asyncio.wait_for(tool.called.wait(), WAIT_S)
        node.stop()
        until = gates.looks + 3
        await eventually(lambda: gates.looks >= until)
        await trip(ports)
        life_ = await ended(ports, app, "waits")
    assert (life_.end.status, life_.end.error_class) == (EndStatus.CANCELED, TRIPPED)


# Breakers of nodes.


@asynccontextmanager
async def at_work(app, ports, name, **options):
    """A node that does only part of the work while the context lasts."""
    node = Node(app, ports, name=name, clock=CLOCK, **options)
    task = asyncio.create_task(node.run())
    try:
        yield
    finally:
        node.stop()
        await task


def handed_back(ports):
    """Return whether a command has been handed back more than once."""
    waiting = [one for q in ports.commands._durables.values() for one in q._unanswered.values()]
    return any(one.deliveries > 2 for one in waiting)


async def test_what_others_have_opened_is_not_begun_on_a_node_whose_breaker_is_open(ports):
    """The node that opens episodes runs none, so it knows of no failure."""
    rules = Breaker(threshold=2, half_open_after_s=60, scope="node")
    broken, sound = app_of(Ailing(), breaker=rules), app_of(Scripted(), breaker=rules)
    await watched(ports, broken)
    opens = at_work(broken, ports, "n1", mode=NodeMode.TRIGGER_ONLY)
    async with opens, at_work(broken, ports, "n2", never_wakes=True):
        for id_ in ("x1", "x2"):
            await publish(ports, id_, ails=True)
            assert (await ended(ports, broken, id_)).end.status is EndStatus.FAILED
        await publish(ports, "x3", ails=True)
        await eventually(lambda: handed_back(ports))
        async with at_work(sound, ports, "n3", never_wakes=True):
            life_ = await ended(ports, broken, "x3")
    assert life_.end.status is EndStatus.DONE
    assert [one.node for one in life_.of(EpisodeStarted)] == ["n3"]


def test_a_node_whose_breaker_is_open_begins_one_probe_when_its_time_has_come():
    async def scenario():
        ports, clock = memory_ports(clock=SimClock()), SimClock()
        app = app_of(Ailing(), breaker=Breaker(threshold=1, scope="node"))
        breakers = breakers_of(app, ports, clock=clock)
        await breakers.record_end(opened_as(app, 1), FAILED, seq=7)
        first, second = opened_as(app, 2), opened_as(app, 3)
        by_hand = msgspec.structs.replace(second, trigger=ManualTrigger(requested_by="ann"))
        at_once = [await breakers.turns_away(each) for each in (first, second, by_hand)]
        await clock.sleep(60)
        then = [await breakers.turns_away(each) for each in (first, second, first)]
        await breakers.record_end(first, DONE, seq=7)
        return at_once, then, await breakers.turns_away(second)

    assert simulate(scenario()) == ([True, True, False], [False, True, False], False)


async def test_a_breaker_of_the_cluster_turns_away_nothing_that_was_opened(ports):
    app = app_of(Ailing(), breaker=Breaker(threshold=1))
    breakers = breakers_of(app, ports)
    await breakers.record_end(opened_as(app, 1), FAILED, seq=7)
    assert not await breakers.turns_away(opened_as(app, 2))

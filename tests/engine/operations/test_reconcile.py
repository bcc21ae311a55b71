"""What a deploy left behind is ended, and what it brought begins; whatever nodes do meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial

import pytest

from engine.app.actions import approval, wait
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event, every
from engine.cluster.modes import SWITCHES
from engine.cluster.nodes import NodeInfo, actor_info, encoded
from engine.episodes.episode import Status
from engine.errors import BadRequest
from engine.operations import reconcile as reconciler
from engine.operations.census import blocked_episodes, open_episodes
from engine.operations.drift import REASON_MAX, Outcome
from engine.operations.reconcile import reconcile
from engine.triggers.debounce import PURPOSE as CALM
from engine.triggers.schedule import PURPOSE as TICK
from engine.triggers.schedule import Ticker
from engine.waits.requests import resolve
from streams.errors import Unavailable
from streams.keys import breaker_key, calmed_key, cooldown_key, ends_key, node_key
from streams.memory import memory_ports
from streams.memory.bucket import MemoryBucket
from streams.memory.domain_events import MemoryDomainEvents
from streams.memory.timers import MemoryTimers
from streams.model.events import EndStatus
from streams.model.modes import NodeMode
from streams.ports.timers import Timer
from tests.engine.crew import crew_of
from tests.engine.stage import STARTED, Scripted, life, lived, open_episode, running, write
from tests.simulation.time import EPOCH, SimClock, simulate

CLOCK = SimClock()
ASK = approval({"restart": "db1"}, summary="restart it")
QUARTER, HOUR = timedelta(minutes=15), timedelta(hours=1)
QUARTERS, HOURS = "every 900s", "every 3600s"


def app_of(*, plan=(), **expectations) -> App:
    """Return an app whose actor `worker` expects these: name → what fires each."""
    worker = Actor("worker")
    for name, on in expectations.items():
        worker.expect(name, Scripted(*plan), on=on)
    return App(actors=[worker])


def simulated(work, **replaced):
    """Return what `work` returns, which is given ports in simulated time.

    Args:
        work: what to do.
        replaced: ports of another kind: name → what makes one of the plain one.
    """

    async def run():
        ports = memory_ports(clock=CLOCK)
        made = {name: make(getattr(ports, name)) for name, make in replaced.items()}
        return await work(dataclasses.replace(ports, **made))

    return simulate(run())


async def be_there(ports, app, name="n1", *, mode=NodeMode.FULL):
    """Say what a node of `app` says of itself while it lives."""
    actors = {id_: actor_info(actor, SWITCHES[mode]) for id_, actor in app.actors.items()}
    said = NodeInfo(
        name=name,
        host="h",
        pid=1,
        since=EPOCH,
        mode=mode,
        setting=mode,
        lease_s=30.0,
        actors=actors,
    )
    await ports.gates.put(node_key(name), encoded(said))


async def arm(ports, key, *, purpose=TICK, actor="worker", at=EPOCH + HOUR):
    timer = Timer(actor=actor, purpose=purpose, key=key, payload={"key": key})
    return await ports.timers.arm(timer, at=at)


async def armed(ports, actor="worker"):
    """Return the keys of what an actor has armed, by purpose."""
    keys = {purpose: await ports.timers.keys(actor, purpose) for purpose in (TICK, CALM)}
    return {purpose: sorted(each) for purpose, each in keys.items() if each}


def told(done):
    """Return what was to be done, and what came of it."""
    return [(each.action.name, each.action.about, each.outcome.value) for each in done.steps]


async def reconciled(ports, **options):
    return await reconcile(ports, by="ada", clock=CLOCK, **options)


NOTHING = ("disarm", "arm", "cancel", "forget", "unwatch")
"""What may be done."""

# A deploy.


def test_a_deploy_that_changes_an_interval_ticks_by_the_new_one_and_the_old_one_is_disarmed():
    async def work(ports):
        async with running(app_of(look=every("15m")), ports, clock=CLOCK):
            await asyncio.sleep(60)
        async with running(app_of(look=every("1h")), ports, "n2", clock=CLOCK):
            await asyncio.sleep(60)
            both = await armed(ports)
            done = await reconciled(ports)
            pending = await ports.timers.pending("worker", TICK, f"look/{HOURS}")
            return both, told(done), await armed(ports), pending.due_at

    both, done, left, due_at = simulated(work)
    assert both == {TICK: [f"look/{HOURS}", f"look/{QUARTERS}"]}
    assert done == [("disarm", f"tick {QUARTERS}", "done")]
    assert left == {TICK: [f"look/{HOURS}"]}
    assert due_at == EPOCH + HOUR


def test_a_deploy_that_drops_an_expectation_ends_what_waits_of_it_and_says_who_wanted_that():
    async def work(ports):
        old = app_of(plan=[ASK], look=event("thing.happened"), stay=event("thing.stays"))
        async with running(old, ports, clock=CLOCK):
            await asyncio.sleep(1)
            for name in ("happened", "stays"):
                await ports.domain_events.publish(f"thing.{name}", {}, id=name)
            await asyncio.sleep(1)
            ids = await blocked(ports)
        new = app_of(plan=[ASK], stay=event("thing.stays"))
        async with running(new, ports, "n2", clock=CLOCK):
            await asyncio.sleep(1)
            done = await reconciled(ports, reason="no looks")
            ended = await lived(ports, ids["look"])
            again = await reconciled(ports)
            return ids, told(done), ended.end, told(again), await blocked(ports)

    ids, done, end, again, left = simulated(work)
    assert done == [
        ("cancel", f"episode {ids['look']}", "done"),
        ("unwatch", "stops watching thing.happened", "done"),
    ]
    assert (end.status, end.error_class) == (EndStatus.CANCELED, "canceled")
    assert end.error_detail == "by ada: orphan_cleanup: no looks"
    assert (again, left) == ([], {"stay": ids["stay"]})


async def blocked(ports):
    """Return the episodes that wait: expectation → id."""
    found = await blocked_episodes(ports, {"worker"})
    return {each.expectation_id: each.episode_id for each in found}


def test_what_is_queued_or_runs_of_an_expectation_that_is_gone_goes_on():
    async def work(ports):
        app = app_of(thing=event("thing.happened"))
        queued = await open_episode(ports, app, id_="queued")
        runs = await open_episode(ports, app, id_="runs")
        await write(ports, runs, STARTED)
        await be_there(ports, app_of(other=event("other.happened")))
        unended = await open_episodes(ports, "worker", "thing")
        return told(await reconciled(ports)), unended == [queued, runs]

    assert simulated(work) == ([], True)


def test_what_gates_remember_of_an_expectation_that_is_gone_is_forgotten_and_nothing_else():
    async def work(ports):
        keys = [
            make("worker", name, *more)
            for name in ("gone", "look")
            for make, more in (
                (cooldown_key, ("a.b",)),
                (calmed_key, ("",)),
                (breaker_key, ()),
                (ends_key, ()),
            )
        ]
        for key in [*keys, cooldown_key("worker2", "gone", "")]:
            await ports.gates.put(key, b"", ttl_s=3_600)
        await be_there(ports, app_of(look=event("thing.happened")))
        done = await reconciled(ports)
        stand = {key for key in await ports.gates.entries() if not key.startswith("node.")}
        return keys, done.counts, stand

    keys, counts, stand = simulated(work)
    assert counts == {"disarm": 0, "arm": 0, "cancel": 0, "forget": 4, "unwatch": 0}
    assert stand == {*keys[4:], cooldown_key("worker2", "gone", "")}


def test_a_schedule_that_lost_its_timer_ticks_again():
    async def work(ports):
        await be_there(ports, app_of(look=every("15m")))
        done, again = await reconciled(ports), await reconciled(ports)
        pending = await ports.timers.pending("worker", TICK, f"look/{QUARTERS}")
        return done.counts["arm"], told(again), pending.due_at

    assert simulated(work) == (1, [], EPOCH + QUARTER)


# What is not touched.


def test_nothing_is_touched_that_an_old_node_still_knows_while_a_deploy_rolls():
    async def work(ports):
        for key, purpose in ((f"old/{QUARTERS}", TICK), ("old/web-1", CALM)):
            await arm(ports, key, purpose=purpose)
        await be_there(ports, app_of(old=every("15m")), "n1")
        await be_there(ports, app_of(new=every("15m")), "n2")
        rolling = told(await reconciled(ports))
        await ports.gates.delete(node_key("n1"))
        return rolling, told(await reconciled(ports))

    rolling, rolled = simulated(work)
    assert [name for name, *_ in rolling] == ["arm"]
    assert [name for name, *_ in rolled] == ["disarm", "disarm"]


def test_nothing_is_touched_of_an_actor_that_no_node_has():
    async def work(ports):
        await arm(ports, f"old/{QUARTERS}", actor="retired")
        alone = await reconciled(ports, actors=["retired"])
        await be_there(ports, app_of(look=event("thing.happened")))
        everyone = await reconciled(ports)
        asked = await reconciled(ports, actors=["retired", "worker"])
        return alone, everyone, asked, await armed(ports, "retired")

    alone, everyone, asked, left = simulated(work)
    assert (alone.steps, everyone.steps, asked.steps) == ([], [], [])
    assert alone.skipped == asked.skipped == {"retired": "no node that is up has it"}
    assert (everyone.skipped, everyone.compared) == ({}, ["worker"])
    assert left == {TICK: [f"old/{QUARTERS}"]}


def test_only_the_actors_that_are_asked_for_are_touched():
    async def work(ports):
        app = app_of(look=event("thing.happened"))
        await be_there(ports, app)
        other = Actor("other")
        other.expect("look", Scripted(), on=event("thing.happened"))
        await be_there(ports, App(actors=[other]), "n2")
        for actor in ("worker", "other"):
            await arm(ports, "gone/web-1", purpose=CALM, actor=actor)
        await reconciled(ports, actors=["other"])
        return await armed(ports), await armed(ports, "other")

    assert simulated(work) == ({CALM: ["gone/web-1"]}, {})


def test_a_dry_run_says_what_there_is_to_do_and_does_nothing():
    async def work(ports):
        await arm(ports, "gone/web-1", purpose=CALM)
        await be_there(ports, app_of(look=every("15m")))
        return told(await reconciled(ports, dry_run=True)), await armed(ports)

    planned, left = simulated(work)
    assert planned == [
        ("disarm", "debounce web-1", "planned"),
        ("arm", f"tick {QUARTERS}, next 2030-01-01T00:15:00+00:00", "planned"),
    ]
    assert left == {CALM: ["gone/web-1"]}


def test_one_go_does_no_more_than_so_much_and_says_what_is_left(monkeypatch):
    monkeypatch.setattr(reconciler, "ACTIONS_MAX", 2)

    async def work(ports):
        for number in range(3):
            await arm(ports, f"gone/web-{number}", purpose=CALM)
        await be_there(ports, app_of(look=event("thing.happened")))
        first, second = await reconciled(ports), await reconciled(ports)
        return first.left, second.left, await armed(ports)

    assert simulated(work) == (1, 0, {})


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"by": ""}, "by"),
        ({"by": "ada", "reason": "x" * (REASON_MAX + 1)}, "reason"),
        ({"by": "ada", "actors": ["a b"]}, "actor"),
    ],
)
def test_impossible_values_are_refused_by_their_names(options, field):
    with pytest.raises(BadRequest) as refused:
        simulated(lambda ports: reconcile(ports, clock=CLOCK, **options))
    assert refused.value.field == field


def as_(kind):
    """Return what makes a port one of `kind`, which does something more."""

    def made(plain):
        plain.__class__ = kind
        return plain

    return made


# Beside nodes.


def test_a_timer_that_a_node_relied_on_before_it_was_seen_is_put_back_as_it_was():
    async def work(ports):
        app = app_of(look=every("15m"))
        ticker = Ticker(crew_of(app, ports, clock=CLOCK))
        await ticker.ensure()
        before = await ports.timers.pending("worker", TICK, f"look/{QUARTERS}")
        await be_there(ports, app_of(other=event("thing.happened")), "n1")
        await ticker.ensure()  # It comes up, and is content with what is armed,
        doing = asyncio.create_task(reconciled(ports))
        await asyncio.sleep(reconciler.SETTLE_S * 1.5)
        disarmed = await armed(ports)
        await be_there(ports, app, "n2")  # and is seen a moment later.
        after = await doing, await ports.timers.pending("worker", TICK, f"look/{QUARTERS}")
        return before, disarmed, after

    before, disarmed, (done, after) = simulated(work)
    assert disarmed == {}
    assert told(done) == [("disarm", f"tick {QUARTERS}", "overtaken")]
    assert (after.payload, after.due_at) == (before.payload, before.due_at)


class Behind(MemoryBucket):
    """Gates of which one replica, that anybody may ask, lacks a node."""

    lacks = node_key("n2")

    async def entries(self, *, under="", from_leader=False):
        found = await super().entries(under=under)
        return {key: each for key, each in found.items() if from_leader or key != self.lacks}


def test_a_node_that_a_replica_does_not_know_yet_keeps_all_that_it_declares():
    async def work(ports):
        new, old = app_of(look=every("15m")), app_of(old=every("15m"))
        await ports.gates.put(cooldown_key("worker", "old", ""), b"")
        await arm(ports, f"old/{QUARTERS}")
        await be_there(ports, new, "n1")
        await be_there(ports, old, "n2")
        return [(await reconciled(ports, dry_run=dry)).counts for dry in (True, False)]

    only_armed = dict.fromkeys(NOTHING, 0) | {"arm": 1}
    assert simulated(work, gates=as_(Behind)) == [only_armed, only_armed]


def test_what_a_node_declares_that_comes_up_a_moment_later_is_neither_ended_nor_forgotten():
    async def work(ports):
        old = app_of(plan=[ASK], thing=event("thing.happened"))
        async with running(old, ports, clock=CLOCK):
            id_ = await open_episode(ports, old)
            await lived(ports, id_, lambda so_far: so_far.episode.status is Status.BLOCKED)
        await ports.gates.put(cooldown_key("worker", "thing", ""), b"")
        await be_there(ports, app_of(other=event("other.happened")))
        doing = asyncio.create_task(reconciled(ports))
        await asyncio.sleep(reconciler.SETTLE_S / 2)
        await be_there(ports, old, "n2")
        done, waits = told(await doing), (await life(ports, id_)).episode.status
        return done, waits, await ports.gates.get(cooldown_key("worker", "thing", ""))

    done, waits, cooldown = simulated(work)
    assert {outcome for *_, outcome in done} == {"overtaken"}
    assert [name for name, *_ in done] == ["cancel", "forget", "unwatch"]
    assert (waits, cooldown.value) == (Status.BLOCKED, b"")


class Refusing(MemoryBucket):
    """Gates that let nobody forget."""

    async def delete(self, key, *, after=None):
        raise Unavailable(key, detail="away")


def test_no_event_that_waits_for_calm_is_taken_before_all_else_is_done():
    async def work(ports):
        await arm(ports, "gone/web-1", purpose=CALM)
        await ports.gates.put(cooldown_key("worker", "gone", ""), b"")
        await be_there(ports, app_of(look=event("thing.happened")))
        with pytest.raises(Unavailable):
            await reconciled(ports)
        return await armed(ports)

    assert simulated(work, gates=as_(Refusing)) == {CALM: ["gone/web-1"]}


class Unsure(MemoryTimers):
    """Timers of which one is canceled, and nobody hears of it; others take long."""

    async def cancel(self, actor, purpose, key, *, expecting=None):
        if key != "look/web-1":
            await asyncio.sleep(2 * reconciler.SETTLE_S)
        await super().cancel(actor, purpose, key, expecting=expecting)
        if key == "look/web-1":
            raise Unavailable(key, detail="no answer")


def test_what_was_disarmed_and_is_declared_is_armed_again_though_something_has_failed():
    keys = ["look/web-1", "look/web-2"]

    async def work(ports):
        for key in keys:
            await arm(ports, key, purpose=CALM)
        await be_there(ports, app_of(other=event("other.happened")))
        doing = asyncio.create_task(reconciled(ports))
        await asyncio.sleep(reconciler.SETTLE_S * 1.5)
        disarmed = await armed(ports)
        await be_there(ports, app_of(look=event("thing.happened")), "n2")
        with pytest.raises(Unavailable):
            await doing
        await asyncio.sleep(2 * reconciler.SETTLE_S)
        return disarmed, await armed(ports)

    assert simulated(work, timers=as_(Unsure)) == ({CALM: keys[1:]}, {CALM: keys})


# What an actor's queue is for.


async def watch(ports, *names):
    await (await ports.domain_events.open("worker", names)).close()


def test_a_queue_holds_no_event_any_more_that_no_node_watches():
    async def work(ports):
        await watch(ports, "thing.a", "thing.b", "thing.c")
        await be_there(ports, app_of(one=event("thing.b")), "n1")
        await be_there(ports, app_of(one=event("thing.c")), "n2", mode=NodeMode.DISABLED)
        return told(await reconciled(ports)), await ports.domain_events.watched("worker")

    done, watched = simulated(work)
    assert done == [("unwatch", "stops watching thing.a", "done")]
    assert watched == {"thing.b", "thing.c"}


def test_a_queue_holds_again_what_a_node_relies_on_that_comes_up_meanwhile():
    async def work(ports):
        await watch(ports, "thing.a", "thing.b")
        await be_there(ports, app_of(one=event("thing.b")))
        doing = asyncio.create_task(reconciled(ports))
        await asyncio.sleep(reconciler.SETTLE_S * 1.5)
        narrowed = await ports.domain_events.watched("worker")
        await be_there(ports, app_of(one=event("thing.a")), "n2")
        return narrowed, told(await doing)[0][2], await ports.domain_events.watched("worker")

    narrowed, outcome, watched = simulated(work)
    assert (narrowed, outcome) == ({"thing.b"}, "overtaken")
    assert watched == {"thing.a", "thing.b"}


def test_an_event_that_a_node_adds_in_the_moment_of_narrowing_is_added_again():
    class Overwritten(MemoryDomainEvents):
        async def unwatch(self, actor, names):
            await super().unwatch(actor, {*names, "thing.new"})

    async def work(ports):
        await watch(ports, "thing.a", "thing.b", "thing.new")
        await be_there(ports, app_of(one=event("thing.b", "thing.new")))
        return told(await reconciled(ports))[0][2], await ports.domain_events.watched("worker")

    outcome, watched = simulated(work, domain_events=as_(Overwritten))
    assert (outcome, watched) == ("done", {"thing.b", "thing.new"})


class Raced(MemoryTimers):
    """Timers beside which something else happens once, just after somebody has looked."""

    meanwhile: Mapping[str, Callable[[], Awaitable[object]]] = {}
    """What they were asked for → what happens then."""

    async def pending(self, actor, purpose, key):
        found = await super().pending(actor, purpose, key)
        await self._race("pending")
        return found

    async def keys(self, actor, purpose):
        found = await super().keys(actor, purpose)
        await self._race("keys")
        return found

    async def _race(self, asked):
        if asked in self.meanwhile:
            happens, self.meanwhile = self.meanwhile[asked], {}
            await happens()


def test_an_event_that_is_held_between_a_look_and_the_deed_is_kept():
    async def work(ports):
        await arm(ports, "gone/web-1", purpose=CALM)
        await be_there(ports, app_of(look=event("thing.happened")))
        newer = partial(arm, ports, "gone/web-1", purpose=CALM, at=EPOCH + 2 * HOUR)
        ports.timers.meanwhile = {"pending": newer}
        done = await reconciled(ports)
        return told(done), (await ports.timers.pending("worker", CALM, "gone/web-1")).due_at

    done, due_at = simulated(work, timers=as_(Raced))
    assert done == [("disarm", "debounce web-1", "overtaken")]
    assert due_at == EPOCH + 2 * HOUR


def test_a_schedule_that_a_node_arms_at_the_same_time_is_armed_once_and_by_the_node():
    async def work(ports):
        await be_there(ports, app_of(look=every("15m")))
        ports.timers.meanwhile = {"keys": partial(arm, ports, f"look/{QUARTERS}")}
        done = await reconciled(ports)
        return told(done)[0][2], await ports.timers.pending("worker", TICK, f"look/{QUARTERS}")

    outcome, pending = simulated(work, timers=as_(Raced))
    assert (outcome, pending.due_at) == ("overtaken", EPOCH + HOUR)


def test_a_cooldown_that_a_node_renews_meanwhile_stays():
    class Renewed(MemoryBucket):
        async def delete(self, key, *, after=None):
            await self.put(key, b"again")
            await super().delete(key, after=after)

    async def work(ports):
        await ports.gates.put(cooldown_key("worker", "gone", ""), b"")
        await be_there(ports, app_of(look=event("thing.happened")))
        done = await reconciled(ports)
        return told(done)[0][2], await ports.gates.get(cooldown_key("worker", "gone", ""))

    outcome, entry = simulated(work, gates=as_(Renewed))
    assert (outcome, entry.value) == ("overtaken", b"again")


def test_an_episode_that_is_answered_meanwhile_is_not_canceled():
    async def work(ports):
        old = app_of(plan=[wait("payment:42")], thing=event("thing.happened"))
        async with running(old, ports, clock=CLOCK):
            id_ = await open_episode(ports, old)
            await lived(ports, id_, lambda so_far: so_far.episode.status is Status.BLOCKED)

        async def answer():
            async with running(old, ports, clock=CLOCK):
                await resolve(ports, "payment:42", by="ada")
                await lived(ports, id_)

        await be_there(ports, app_of(other=event("thing.happened")), "n2")
        ports.timers.meanwhile = {"keys": answer}
        return told(await reconciled(ports)), (await life(ports, id_)).end.status

    ((_, _, outcome),), status = simulated(work, timers=as_(Raced))
    assert (outcome, status) == (Outcome.OVERTAKEN.value, EndStatus.DONE)


def test_a_timer_that_only_a_newer_version_can_read_is_left_to_it():
    async def work(ports):
        subject = ports.stack.timer("worker", CALM, "gone/web-1")
        await arm(ports, "gone/web-1", purpose=CALM)
        held = ports.timers._armed[subject]
        ports.timers._armed[subject] = type(held)(
            target=held.target,
            fires_at=held.fires_at,
            revision=held.revision,
            data=b"\x00",
            headers=held.headers,
        )
        await be_there(ports, app_of(look=event("thing.happened")))
        return told(await reconciled(ports))[0][2], await armed(ports)

    assert simulated(work) == ("overtaken", {CALM: ["gone/web-1"]})

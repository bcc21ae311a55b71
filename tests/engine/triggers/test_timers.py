"""What comes due for an actor: it is answered for once, by a node that knows what it is for."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from engine.app.actions import observe
from engine.app.actor import Actor
from engine.app.app import App
from engine.app.checks import Breaker
from engine.app.conditions import gt
from engine.app.triggers import event, every, manual
from engine.episodes import fire as firing
from engine.episodes.breakers.breaker import BreakerState
from engine.episodes.fire import fire, fired_episode_id
from engine.errors import BadRequest
from engine.triggers import admit, debounce, schedule, timers
from engine.triggers.debounce import PendingDebounce
from engine.triggers.evaluate import cooldown_in
from streams.keys import breaker_key, calmed_key, cooldown_key
from streams.layout import Stream
from streams.model.events import (
    DeadLettered,
    EndStatus,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
)
from streams.model.triggers import Budget, LogStrategy, Mode, PublicEvents
from streams.ports.domain_events import DomainEvent
from streams.ports.timers import Timer
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    STARTED,
    Scripted,
    all_answered,
    app_of,
    doomed,
    eventually,
    life,
    lived,
    opening,
    running,
    write,
)
from tests.spec import EPOCH

OPEN = BreakerState(status="open", failures=("e1",), opened_at=EPOCH.replace(year=2999))


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Have what a node hands back come again at once."""
    monkeypatch.setattr(admit, "STRANGE_S", 0.001)
    monkeypatch.setattr(admit, "STRANGE_MAX_S", 0.001)


async def say(ports, purpose, payload, *, id_="t1"):
    timer = Timer(actor="worker", purpose=purpose, key="k", payload=payload)
    await ports.timers.send(timer, id=id_)


def calmed(expectation, id_="x1"):
    """Return what a timer for calm says, for the event `id_`."""
    happened = DomainEvent(id=id_, name=HAPPENED, payload={}, seq=1, at=EPOCH)
    return debounce.payload_of(
        PendingDebounce(expectation=expectation, event=happened, since=EPOCH)
    )


def of_two_versions(**options):
    """An app, and the next version of it, which expects one thing more."""
    old, new = app_of(Scripted()), app_of(Scripted())
    new.actors["worker"].expect("other", Scripted(), **{"on": event(HAPPENED), **options})
    return old, new


async def records(ports, kind, stream=Stream.JOURNAL):
    async with ports.log.follow(stream) as follower:
        found = await follower.receive(most=1_000, wait_s=0)
    return [one for record in found for one in record.commit.events if isinstance(one, kind)]


async def opened(ports):
    return await records(ports, EpisodeOpened)


async def letters(ports):
    return await records(ports, DeadLettered, Stream.DEAD)


def given_again(ports, times):
    """Return whether what is due has been handed back so often."""
    queues = ports.timers._durables.values()
    waiting = [one for queue in queues for one in queue._unanswered.values()]
    return any(one.deliveries > times for one in waiting)


CALLS_FOR_OTHER = (
    (debounce.PURPOSE, calmed("other"), {"debounce_s": 1}),
    (
        schedule.PURPOSE,
        {"expectation": "other", "schedule": "every 3600s", "at": EPOCH.isoformat()},
        {"on": every("1h")},
    ),
    (firing.PURPOSE, {"expectation": "other", "requested_by": "me", "key": "k1"}, {}),
)


@pytest.mark.parametrize(("purpose", "payload", "declared"), CALLS_FOR_OTHER)
async def test_what_only_a_newer_node_knows_waits_for_one(ports, purpose, payload, declared):
    """A rolling deploy: the old node takes it first."""
    old, new = of_two_versions(**declared)
    async with running(old, ports, "old"):
        await say(ports, purpose, payload)
        await eventually(lambda: given_again(ports, 3))
        assert await opened(ports) == []
        async with running(new, ports, "new"):
            await all_answered(ports.timers)
    assert [one.expectation_id for one in await opened(ports)] == ["other"]
    assert await letters(ports) == []


@pytest.mark.parametrize(
    ("purpose", "payload"),
    [
        (debounce.PURPOSE, calmed("other")),
        (debounce.PURPOSE, {"no": "calming"}),
        (firing.PURPOSE, {"expectation": "other", "requested_by": "me", "key": "k1"}),
        ("surprise", {"any": "thing"}),
    ],
)
async def test_what_no_node_has_known_for_long_is_a_dead_letter(
    ports, monkeypatch, purpose, payload
):
    """I5."""
    monkeypatch.setattr(timers, "STRANGE_DELIVERIES_MAX", 5)
    async with running(app_of(Scripted()), ports):
        await say(ports, purpose, payload)
        await all_answered(ports.timers)
    (letter,) = await letters(ports)
    assert (letter.reason, letter.actor_id) == ("not_watched", "worker")
    assert msgspec.json.decode(letter.payload)["payload"] == payload
    assert await opened(ports) == []


@pytest.mark.parametrize("payload", [CALLS_FOR_OTHER[1][1], {"no": "tick"}])
async def test_a_tick_that_no_node_has_known_for_long_just_ends(ports, monkeypatch, payload):
    monkeypatch.setattr(timers, "STRANGE_DELIVERIES_MAX", 5)
    async with running(app_of(Scripted()), ports):
        await say(ports, schedule.PURPOSE, payload)
        await all_answered(ports.timers)
    assert (await opened(ports), await letters(ports)) == ([], [])


@pytest.mark.parametrize(
    "payload",
    [
        {"expectation": "thing"},
        {"expectation": "thing", "requested_by": "", "key": "k1"},
        {"expectation": "thing", "requested_by": "me", "key": "k1", "priority": 10**9},
    ],
)
async def test_a_fire_that_can_never_work_is_a_dead_letter_at_once(ports, payload):
    """I5: whoever fires through the engine is told before."""
    async with running(app_of(Scripted()), ports):
        await say(ports, firing.PURPOSE, payload)
        episode_id = await fire(ports, "worker", "thing", by="me")
        await lived(ports, episode_id)
        await all_answered(ports.timers)
    (letter,) = await letters(ports)
    assert letter.reason == "unreadable"


async def test_a_timer_that_nobody_can_read_is_a_dead_letter_and_blocks_nothing(ports):
    app, due = app_of(Scripted()), ports.stack.due("worker")
    async with running(app, ports):
        ports.log._streams[ports.stack.stream_of(due)].publish(due, b"\xff", {})
        await lived(ports, await fire(ports, "worker", "thing", by="me"))
        await all_answered(ports.timers)
    (letter,) = await letters(ports)
    assert (letter.reason, letter.payload) == ("unreadable", b"\xff")


async def test_a_fire_by_hand_passes_every_gate_and_begins_the_rest_anew(ports):
    app = app_of(
        Scripted(),
        on=event(HAPPENED, filter={"floor": gt(2)}),
        cooldown_s=60,
        debounce_s=60,
        sample=1e-9,
        breaker=Breaker(threshold=1),
    )
    await ports.gates.put(cooldown_key("worker", "thing", ""), b"another", ttl_s=60)
    await ports.gates.put(breaker_key("worker", "thing"), msgspec.json.encode(OPEN))
    async with running(app, ports):
        episode_id = await fire(ports, "worker", "thing", {"floor": 1}, by="me", priority=7)
        life_ = await lived(ports, episode_id)
    (begun,) = life_.of(EpisodeOpened)
    assert (begun.trigger.payload, begun.priority, begun.mode) == ({"floor": 1}, 7, Mode.LIVE)
    rests = await ports.gates.get(cooldown_key("worker", "thing", ""))
    assert cooldown_in(rests.value).episode_id == episode_id


async def test_a_fire_may_have_another_budget_and_show_people_less(ports):
    app = app_of(Scripted(observe(1), observe(2)), budget=Budget(turns=9, tokens=7, wall_s=8))
    fired = {"budget": {"turns": 1, "wall_s": 60}, "log_strategy": "summary_only"}
    episode_id = await fire(ports, "worker", "thing", by="me", **fired)
    async with doomed(app, ports):
        await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeOpened))
    async with running(app, ports):
        life_ = await lived(ports, episode_id)
    (begun,) = life_.of(EpisodeOpened)
    assert begun.budget == Budget(turns=1, tokens=7, wall_s=60)
    assert begun.log_strategy is LogStrategy.SUMMARY_ONLY
    assert (life_.end.error_class, life_.end.error_detail) == (
        "budget_exceeded",
        "turns: 1 used of 1",
    )


async def test_a_fire_may_say_how_many_crashes_end_it(ports):
    app = app_of(Scripted(observe(1)), attempts_max=3)
    said = await fire(ports, "worker", "thing", by="me", attempts_max=1)
    unsaid = await fire(ports, "worker", "thing", by="me")
    for id_ in (said, unsaid):
        async with doomed(app, ports):
            await lived(ports, id_, lambda so_far: so_far.of(EpisodeOpened))
        (begun,) = (await life(ports, id_)).of(EpisodeOpened)
        assert begun.attempts_max == (1 if id_ == said else 0)


async def test_what_is_opened_publishes_what_its_actor_says(ports):
    actor = Actor("worker", public_events="without_starts")
    actor.expect("thing", Scripted(observe(1)), on=manual())
    async with running(App(actors=[actor]), ports):
        life_ = await lived(ports, await fire(ports, "worker", "thing", by="me"))
    (begun,) = life_.of(EpisodeOpened)
    assert begun.public_events is PublicEvents.WITHOUT_STARTS


async def test_a_log_strategy_that_there_is_not_is_refused(ports):
    with pytest.raises(BadRequest, match="log_strategy: 'loud' is not one of none, summary_only"):
        await fire(ports, "worker", "thing", by="me", log_strategy="loud")


async def test_a_fire_for_later_waits_for_its_time_and_for_a_node(ports):
    app, soon_ = app_of(Scripted()), CLOCK.now() + timedelta(seconds=0.2)
    episode_id = await fire(ports, "worker", "thing", by="me", key="k1", at=soon_)
    async with running(app, ports):
        life_ = await lived(ports, episode_id)
    assert episode_id == fired_episode_id(
        stack="vigil", actor="worker", expectation="thing", key="k1"
    )
    assert life_.records[0].commit.at >= soon_


async def test_what_was_opened_and_not_answered_for_is_completed_though_a_gate_has_shut(ports):
    """Its node died before it asked for the start; then the breaker opened."""
    app = app_of(Scripted(), breaker=Breaker(threshold=1))
    actor, begun = app.actors["worker"], opening(app)
    source = await ports.domain_events.open(actor.id, actor.event_names())
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    (delivery,) = await source.receive(room=1, wait_s=1)
    await write(ports, begun.episode_id, begun)
    await ports.gates.put(breaker_key("worker", "thing"), msgspec.json.encode(OPEN))
    await delivery.nak()
    await source.close()
    async with running(app, ports):
        life_ = await lived(ports, begun.episode_id)
        await all_answered(ports.domain_events)
    assert [len(life_.of(each)) for each in (EpisodeOpened, EpisodeStarted)] == [1, 1]


async def test_what_was_ended_and_not_answered_for_counts_at_its_breaker_though_a_gate_has_shut(
    ports,
):
    """Its node died before it informed the breaker; by then another event had fired, and rests."""
    app = app_of(Scripted(), breaker=Breaker(threshold=1), cooldown_s=60)
    actor, begun = app.actors["worker"], opening(app)
    source = await ports.domain_events.open(actor.id, actor.event_names())
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    (delivery,) = await source.receive(room=1, wait_s=1)
    failed = EpisodeFinished(status=EndStatus.FAILED, error_class="crash")
    await write(ports, begun.episode_id, begun, STARTED, failed)
    other = opening(app, id_="x0")
    await write(ports, other.episode_id, other)
    await ports.gates.put(cooldown_key("worker", "thing", ""), other.episode_id.encode(), ttl_s=60)
    await delivery.nak()
    await source.close()
    async with running(app, ports):
        await all_answered(ports.domain_events)
        await all_answered(ports.commands)
    entry = await ports.gates.get(breaker_key("worker", "thing"))
    assert entry is not None
    assert msgspec.json.decode(entry.value, type=BreakerState).failures == (begun.episode_id,)


async def test_a_cooldown_that_a_crash_left_without_an_episode_lets_its_cause_pass(ports):
    app = app_of(Scripted(), cooldown_s=60)
    actor, begun = app.actors["worker"], opening(app)
    await (await ports.domain_events.open(actor.id, actor.event_names())).close()
    taken = begun.episode_id.encode()
    await ports.gates.put(cooldown_key("worker", "thing", ""), taken, ttl_s=60)
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    await ports.domain_events.publish(HAPPENED, {}, id="x2")
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await all_answered(ports.domain_events)
        await lived(ports, begun.episode_id)
    assert [one.trigger.event_id for one in await opened(ports)] == ["x1"]


async def test_an_event_that_a_late_node_held_does_not_fire_after_a_newer_one(ports):
    app = app_of(Scripted(), debounce_s=60)
    fired = calmed_key("worker", "thing", "")
    await ports.gates.put(fired, (EPOCH + timedelta(seconds=1)).isoformat().encode())
    async with running(app, ports):
        await say(ports, debounce.PURPOSE, calmed("thing"))
        await all_answered(ports.timers)
    assert (await opened(ports), await letters(ports)) == ([], [])


async def test_a_burst_shared_by_two_nodes_fires_once_with_the_newest_which_stands_for_all(ports):
    app = app_of(Scripted(), debounce_s=0.2)
    actor = app.actors["worker"]
    await (await ports.domain_events.open(actor.id, actor.event_names())).close()
    for number in range(20):
        await ports.domain_events.publish(HAPPENED, {}, id=f"x{number:02}")
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        begun = await lived(ports, opening(app, id_="x19").episode_id)
        await all_answered(ports.timers)
    (one,) = await opened(ports)
    assert (one.trigger.event_id, one.trigger.coalesced) == ("x19", 19)
    assert begun.of(EpisodeFinished)

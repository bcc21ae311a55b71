"""What wakes an actor whose episodes take turns: events of any stream, ticks, calm, wishes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from msgspec.structs import replace as replace_struct
from structlog.testing import capture_logs

from engine.app.triggers import event, every
from engine.episodes.open import place
from engine.triggers import events
from streams.keys import cooldown_key
from streams.layout import Stream
from streams.model.events import DeadLettered, EndStatus, EpisodeOpened
from tests.engine.lane_stage import all_taken, begun, lane_reached, laned, placed, publish
from tests.engine.stage import (
    HAPPENED,
    LOOK_S,
    WAIT_S,
    Scripted,
    app_of,
    eventually,
    lived,
    opening,
    running,
    write,
)


async def events_of(ports, kind, stream=Stream.JOURNAL):
    async with ports.log.follow(stream) as follower:
        records = await follower.receive(most=10_000, wait_s=0)
    every_one = (each for record in records for each in record.commit.events)
    return [each for each in every_one if isinstance(each, kind)]


async def all_ruled_on(ports, app, sentinel="sentinel"):
    """Wait until an event after all others has been ruled on, and its episode has ended."""
    await publish(ports, sentinel, host=sentinel)
    await lived(ports, opening(app, id_=sentinel).episode_id)


class SlowAtFirst:
    """Gates that take their time over the first question about each key."""

    def __init__(self, gates):
        self._gates, self._asked = gates, set()

    def __getattr__(self, name):
        return getattr(self._gates, name)

    async def get(self, key):
        if key not in self._asked:
            self._asked.add(key)
            for _ in range(100):
                await asyncio.sleep(0)
        return await self._gates.get(key)


async def test_of_two_events_about_one_subject_the_first_has_the_cooldown(ports):
    app = laned(thing={"cooldown_s": 60, "subject_key": "host"})
    async with running(app, replace(ports, gates=SlowAtFirst(ports.gates))):
        await begun(ports)
        for number in range(40):
            await publish(ports, f"x{number}", host=f"web-{number % 4}")
        await all_ruled_on(ports, app)

    keys = {each.dedupe_key for each in await events_of(ports, EpisodeOpened)}
    assert keys == {*(f"event:x{number}" for number in range(4)), "event:sentinel"}


async def test_of_events_in_a_row_the_newest_fires_once_its_subject_is_calm(ports):
    app = laned(thing={"debounce_s": 0.2, "subject_key": "host"})
    async with running(app, ports):
        await begun(ports)
        for number in range(5):
            await publish(ports, f"x{number}", host="web-1")
        await lived(ports, opening(app, id_="x4").episode_id)

    (only,) = await events_of(ports, EpisodeOpened)
    assert only.trigger.coalesced == 4


async def test_ticks_take_turns_as_well(ports):
    app = laned(thing={"on": every(1)})
    async with running(app, ports):
        await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted)

    assert {each.trigger.schedule for each in await events_of(ports, EpisodeOpened)} == {"every 1s"}


async def test_events_of_another_stream_are_followed_in_its_order(ports):
    orders = ports.domain_events.add_stream("ORDERS")
    for number in range(20):
        orders.publish("orders.paid", b'{"k": 1}', {"Nats-Msg-Id": f"o{number}"})
    foreign = event(stream="ORDERS", subject="orders.>", start="all")
    app = placed(thing={"on": foreign, "concurrency_key": "k"})
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await lane_reached(
            ports, lambda lane: lane.newest_number == 20 and not lane.admitted + lane.waiting
        )
        await all_taken(ports)

    causes = [each.trigger.event_id for each in await events_of(ports, EpisodeOpened)]
    assert sorted(causes) == sorted(f"ORDERS/o{number}" for number in range(20))


def _warned(lines):
    return [line["event"] for line in lines if line["log_level"] == "warning"]


def _listening():
    """Return an app that listens to a stream of others, to its own events and to the clock."""
    foreign = event(stream="ORDERS", subject="orders.>")
    return laned(thing={"on": [foreign, event(HAPPENED), every(1)]})


async def test_an_actor_whose_stream_is_missing_takes_what_else_wakes_it(ports):
    app = _listening()
    with capture_logs() as lines:
        async with running(app, ports):
            await begun(ports)
            await publish(ports, "x1")
            await lived(ports, opening(app).episode_id)
            await lane_reached(ports, lambda lane: lane.newest_number > 1)

    assert _warned(lines) == [events.missing("worker", "ORDERS")]
    assert "node up" in [line["event"] for line in lines]


async def test_all_of_a_stream_that_was_missing_is_read_once_it_is_there(ports, monkeypatch):
    monkeypatch.setattr(events, "STREAM_LOOK_S", LOOK_S)
    async with running(_listening(), ports):
        await begun(ports)
        orders = ports.domain_events.add_stream("ORDERS")
        orders.publish("orders.paid", b"{}", {"Nats-Msg-Id": "o1"})
        await lived(ports, opening(_listening(), id_="ORDERS/o1").episode_id)


async def test_the_queue_of_a_stream_that_was_missing_begins_before_anything_comes(
    ports, monkeypatch
):
    monkeypatch.setattr(events, "STREAM_LOOK_S", LOOK_S)
    app = laned(thing={"on": event(stream="ORDERS", subject="orders.>", start=1)})
    with capture_logs() as lines:
        async with running(app, ports):
            await eventually(lambda: _warned(lines))
            ports.domain_events.add_stream("ORDERS")
            await begun(ports)


async def test_what_cannot_be_opened_is_a_dead_letter_and_blocks_nothing(ports):
    """I5."""
    app = laned()
    grows = b'{"n":[' + b",".join([b"1e15"] * 100_000) + b"]}"
    async with running(app, ports):
        await begun(ports)
        ports.domain_events.publish_raw(HAPPENED, grows, {})
        ports.domain_events.publish_raw(HAPPENED, b"no json", {})
        await all_ruled_on(ports, app)
        letters = await events_of(ports, DeadLettered, Stream.DEAD)

    assert {each.reason for each in letters} == {"too_large", "unreadable"}
    assert len(await events_of(ports, EpisodeOpened)) == 1


async def test_one_key_of_several_events_is_one_episode_that_takes_one_turn(ports):
    app = laned(thing={"dedupe": lambda happened: str(happened.payload["order"])})
    async with running(app, ports):
        await begun(ports)
        for number in range(10):
            await publish(ports, f"x{number}", order=7)
        await publish(ports, "last", order=8)
        await all_taken(ports)
        await lane_reached(
            ports, lambda lane: lane.newest_number == 2 and not lane.admitted + lane.waiting
        )

    keys = [each.trigger.payload["order"] for each in await events_of(ports, EpisodeOpened)]
    assert keys == [7, 8]


async def test_an_event_that_comes_again_when_its_episode_has_ended_gets_no_place(ports):
    """I1, also after the server has forgotten the message id."""
    app = placed()
    async with running(app, ports):
        await begun(ports)
        ports.domain_events.publish_raw(HAPPENED, b"{}", {"ce-id": "x1"})
        await lived(ports, opening(app).episode_id)
        await lane_reached(ports, lambda lane: lane.newest_number and not lane.admitted)
        ports.domain_events.publish_raw(HAPPENED, b"{}", {"ce-id": "x1"})
        await all_ruled_on(ports, app)
        lane = await lane_reached(ports, lambda lane: not lane.admitted)

    assert lane.newest_number == 2
    assert len(await events_of(ports, EpisodeOpened)) == 2


async def test_what_comes_again_after_its_node_opened_it_and_died_gets_its_place(ports):
    """Its own cooldown stands, and as a duplicate of itself it would not be run."""
    app = laned(thing={"cooldown_s": 600})
    actor, left = app.actors["worker"], replace_struct(opening(app), in_lane=True)
    source = await ports.domain_events.open(actor.id, actor.event_names())
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
    await ports.gates.put(cooldown_key("worker", "thing", ""), left.episode_id.encode())
    await write(ports, left.episode_id, left)
    await delivery.nak()
    await source.close()
    async with running(app, ports):
        assert (await lived(ports, left.episode_id)).end.status is EndStatus.DONE


async def test_a_wish_for_a_place_starts_an_episode_where_there_are_no_turns_any_more(ports):
    app = app_of(Scripted())
    begun_ = opening(app)
    await write(ports, begun_.episode_id, begun_)
    await ports.timers.send(place("worker", begun_.episode_id), id="wish")
    async with running(app, ports):
        assert (await lived(ports, begun_.episode_id)).end


async def test_a_wish_for_a_place_of_an_episode_that_has_ended_comes_to_nothing(ports):
    app = laned()
    async with running(app, ports):
        await begun(ports)
        await all_ruled_on(ports, app)
        done = opening(app, id_="sentinel").episode_id
        await ports.timers.send(place("worker", done), id="wish")
        queue = ports.timers._durables
        await eventually(lambda: not any(each.backlog for each in queue.values()))

    assert len(await events_of(ports, EpisodeOpened)) == 1

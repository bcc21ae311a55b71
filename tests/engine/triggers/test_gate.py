"""From domain events to episodes."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct
from structlog.testing import capture_logs

from engine.app import dedupe
from engine.app.actions import tool_call
from engine.app.conditions import gt
from engine.app.dedupe import by_value
from engine.app.triggers import event
from engine.runtime.slots import Slots
from engine.triggers import admit
from engine.triggers import events as gate_module
from engine.triggers.admit import Acknowledgement
from engine.triggers.evaluate import OpeningBuilder
from engine.triggers.rules import share_of
from streams.errors import Unavailable
from streams.layout import Stream
from streams.model.events import DeadLettered, EpisodeOpened
from streams.model.triggers import Budget
from streams.ports.domain_events import DomainEvent
from streams.wire.messages import HOPS_HEADER, MESSAGE_ID_HEADER
from tests.engine.crew import crew_of
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    LOOK_S,
    WAIT_S,
    Counter,
    Scripted,
    all_answered,
    app_of,
    eventually,
    gates,
    life,
    lived,
    opening,
    running,
    told,
    write,
)
from tests.spec import EPOCH


@pytest.fixture
async def app(ports):
    """An app whose gate has been opened once, so that events wait for it."""
    app = app_of(Scripted(), subject_key="host")
    await watch(ports, app)
    return app


async def watch(ports, app):
    actor = app.actors["worker"]
    await (await ports.domain_events.open(actor.id, actor.event_names())).close()


async def records(ports, stream=Stream.JOURNAL):
    async with ports.log.follow(stream) as follower:
        return [
            event
            for record in await follower.receive(most=1_000, wait_s=0)
            for event in record.commit.events
        ]


async def opened(ports):
    return [event for event in await records(ports) if isinstance(event, EpisodeOpened)]


async def test_an_event_opens_an_episode_that_knows_what_happened(ports, app):
    await ports.domain_events.publish(HAPPENED, {"host": "web-1", "n": 1}, id="x1", hops=2)
    async with running(app, ports):
        life_ = await lived(ports, opening(app).episode_id)

    (begun,) = life_.of(EpisodeOpened)
    assert begun.trigger.payload == {"host": "web-1", "n": 1}
    assert (begun.trigger.event_id, begun.trigger.entity_id, begun.trigger.hops) == (
        "x1",
        "web-1",
        2,
    )
    assert (begun.subject_kind, begun.dedupe_key) == ("host", "event:x1")


async def test_an_event_published_twice_opens_one_episode(ports, app):
    """I1, also after the server has forgotten the message id."""
    headers = {"ce-id": "x1"}
    for _ in range(2):
        ports.domain_events.publish_raw(HAPPENED, b"{}", headers)
    async with running(app, ports):
        await all_answered(ports.domain_events)
        await lived(ports, opening(app).episode_id)

    assert len(await opened(ports)) == 1


async def test_two_gates_share_the_events(ports, app):
    for number in range(20):
        await ports.domain_events.publish(HAPPENED, {}, id=f"x{number}")
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        for number in range(20):
            await lived(ports, opening(app, id_=f"x{number}").episode_id)

    assert len(await opened(ports)) == 20


async def test_a_crash_between_opening_and_asking_for_the_start_is_made_good(ports, app):
    begun = opening(app)
    await write(ports, begun.episode_id, begun)
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    async with running(app, ports):
        life_ = await lived(ports, begun.episode_id)

    assert len(life_.of(EpisodeOpened)) == 1
    assert life_.end


async def test_an_event_fires_every_expectation_that_wants_it(ports):
    app = app_of(Scripted())
    app.actors["worker"].expect("other", Scripted(), on=event(HAPPENED, filter={"n": 1}))
    await watch(ports, app)
    await ports.domain_events.publish(HAPPENED, {"n": 1}, id="x1")
    await ports.domain_events.publish(HAPPENED, {"n": 2}, id="x2")
    async with running(app, ports):
        await all_answered(ports.domain_events)

    assert sorted(one.expectation_id for one in await opened(ports)) == ["other", "thing", "thing"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"not json", "unreadable"), (b"[1]", "not_an_object"), (b'"x"', "not_an_object")],
)
async def test_what_is_no_event_is_one_dead_letter_and_blocks_nothing(ports, app, data, reason):
    """I5."""
    ports.domain_events.publish_raw(HAPPENED, data, {MESSAGE_ID_HEADER: "bad"})
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await lived(ports, opening(app).episode_id)
        await all_answered(ports.domain_events)

    (letter,) = await records(ports, Stream.DEAD)
    assert isinstance(letter, DeadLettered)
    assert (letter.reason, letter.payload, letter.actor_id) == (reason, data, "worker")


async def test_an_event_that_would_not_fit_an_episode_is_a_dead_letter_and_blocks_nothing(
    ports, app
):
    grows = b'{"n":[' + b",".join([b"1e15"] * 100_000) + b"]}"
    ports.domain_events.publish_raw(HAPPENED, grows, {})
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    async with running(app, ports):
        await lived(ports, opening(app).episode_id)
        await all_answered(ports.domain_events)

    (letter,) = await records(ports, Stream.DEAD)
    assert letter.reason == "too_large"


async def test_an_episode_that_nobody_could_read_is_a_dead_letter_and_blocks_nothing(ports, app):
    """Declarations are checked; this is for what slips through."""
    expectations = app.actors["worker"].expectations
    sound = expectations["thing"]
    expectations["broken"] = replace(sound, name="broken", budget=Budget(wall_s=math.inf))
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    async with running(app, ports):
        await lived(ports, opening(app).episode_id)
        await all_answered(ports.domain_events)

    (letter,) = await records(ports, Stream.DEAD)
    assert (letter.reason, letter.payload) == ("unwritable", b"{}")
    assert [one.expectation_id for one in await opened(ports)] == ["thing"]


async def test_a_missing_filter_key_is_logged_once_and_opens_nothing(ports):
    app = app_of(Scripted(), on=event(HAPPENED, filter={"mount": "/"}))
    await watch(ports, app)
    for number in range(3):
        await ports.domain_events.publish(HAPPENED, {}, id=f"x{number}")
    with capture_logs() as logs:
        async with running(app, ports):
            await all_answered(ports.domain_events)

    warnings = [line for line in logs if "lacks a key" in line["event"]]
    assert [(line["key"], line["event_id"]) for line in warnings] == [("mount", "x0")]
    assert await opened(ports) == []


async def test_a_value_that_the_filter_cannot_compare_is_logged_once_and_opens_nothing(ports):
    app = app_of(Scripted(), on=event(HAPPENED, filter={"disk.used": gt(90)}))
    await watch(ports, app)
    for number, used in enumerate(("95", None, 90)):
        await ports.domain_events.publish(HAPPENED, {"disk": {"used": used}}, id=f"x{number}")
    with capture_logs() as logs:
        async with running(app, ports):
            await all_answered(ports.domain_events)

    warnings = [line for line in logs if "cannot compare" in line["event"]]
    assert [(line["key"], line["event_id"]) for line in warnings] == [("disk.used", "x0")]
    assert await opened(ports) == []


async def test_an_event_that_fits_several_triggers_opens_one_episode(ports):
    high, lost = event(HAPPENED, filter={"used": gt(90)}), event(HAPPENED, "disk.lost")
    app = app_of(Scripted(), on=[high, lost])
    await watch(ports, app)
    await ports.domain_events.publish(HAPPENED, {"used": 95}, id="x1")
    await ports.domain_events.publish("disk.lost", {}, id="x2")
    async with running(app, ports):
        await all_answered(ports.domain_events)

    assert sorted(one.trigger.event_id for one in await opened(ports)) == ["x1", "x2"]


async def test_nodes_agree_on_the_sample_and_open_no_others(ports):
    app = app_of(Scripted(), sample=0.5)
    await watch(ports, app)
    ids = [f"x{number}" for number in range(20)]
    for id_ in ids:
        await ports.domain_events.publish(HAPPENED, {}, id=id_)
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await all_answered(ports.domain_events)

    events = {id_: DomainEvent(id=id_, name=HAPPENED, payload={}, seq=1, at=EPOCH) for id_ in ids}
    chosen = {id_ for id_, one in events.items() if share_of(id_, "vigil", "worker", "thing") < 0.5}
    assert {one.trigger.event_id for one in await opened(ports)} == chosen
    assert 0 < len(chosen) < 20


@pytest.mark.parametrize(("hops", "count"), [(16, 1), (17, 0)])
async def test_a_chain_of_engine_made_events_ends(ports, app, hops, count):
    ports.domain_events.publish_raw(
        HAPPENED, b"{}", {HOPS_HEADER: str(hops), MESSAGE_ID_HEADER: "x1"}
    )
    async with running(app, ports):
        await all_answered(ports.domain_events)
    assert len(await opened(ports)) == count


def of_two_versions():
    """An app, and the next version of it, which watches one more event."""
    old, new = app_of(Scripted()), app_of(Scripted())
    new.actors["worker"].expect("other", Scripted(), on=event("thing.new"))
    return old, new


async def test_an_event_that_only_a_newer_node_watches_waits_for_one(ports):
    """A rolling deploy: the old node pulls it first."""
    old, new = of_two_versions()
    await watch(ports, new)
    with capture_logs() as logs:
        async with running(old, ports, "old"):
            for number in range(3):
                await ports.domain_events.publish("thing.new", {}, id=f"x{number}")
            (durable,) = gates(ports.domain_events).values()
            await eventually(lambda: len(durable._unanswered) == 3)
            assert await opened(ports) == []
            async with running(new, ports, "new"):
                await all_answered(ports.domain_events)

    assert sorted(one.trigger.event_id for one in await opened(ports)) == ["x0", "x1", "x2"]
    said = [line for line in logs if "does not watch" in line["event"]]
    assert [line["event_name"] for line in said] == ["thing.new"]


async def test_an_event_that_no_node_watches_any_more_does_not_come_for_ever(ports, monkeypatch):
    monkeypatch.setattr(admit, "STRANGE_S", 0.001)
    monkeypatch.setattr(gate_module, "STRANGE_DELIVERIES_MAX", 5)
    old, new = of_two_versions()
    await watch(ports, new)
    await ports.domain_events.publish("thing.new", {}, id="x1")
    async with running(old, ports):
        await all_answered(ports.domain_events)
    assert await opened(ports) == []


async def test_what_came_before_its_queue_was_narrowed_does_not_come_for_ever(ports, monkeypatch):
    monkeypatch.setattr(admit, "STRANGE_S", 0.001)
    monkeypatch.setattr(gate_module, "QUEUE_LOOK_S", 0.01)
    old, new = of_two_versions()
    await watch(ports, new)
    await ports.domain_events.publish("thing.new", {}, id="x1")
    async with running(old, ports):
        await eventually(
            lambda: all(each._unanswered for each in gates(ports.domain_events).values())
        )
        await ports.domain_events.unwatch("worker", ["thing.new"])
        await all_answered(ports.domain_events)
    assert await opened(ports) == []


class Counted(Scripted):
    """Counts how often it was asked to begin."""

    begun = 0

    def init(self, episode, trigger):
        self.begun += 1
        return super().init(episode, trigger)


async def test_events_that_say_the_same_open_one_episode_and_run_no_code_again(ports):
    strategy = Counted()
    app = app_of(strategy, dedupe=by_value("order.id"))
    await watch(ports, app)
    async with running(app, ports):
        for number, order in enumerate(("o-1", "o-1", "o-2", "o-1")):
            await ports.domain_events.publish(HAPPENED, {"order": {"id": order}}, id=f"x{number}")
            await all_answered(ports.domain_events)

    begun = await opened(ports)
    assert [one.dedupe_key for one in begun] == ['value:order.id="o-1"', 'value:order.id="o-2"']
    assert [one.trigger.event_id for one in begun] == ["x0", "x2"]
    assert strategy.begun == 2


async def test_a_crash_is_made_good_by_the_next_event_that_says_the_same(ports):
    """The first event opened its episode, and its node died before it asked for the start.

    What comes next may be the same event, given to a node that stood still ever since.
    """
    app = app_of(Scripted(), dedupe=by_value("n"))
    actor = app.actors["worker"]
    await watch(ports, app)
    await ports.domain_events.publish(HAPPENED, {"n": 1}, id="x1")
    source = await ports.domain_events.open(actor.id, actor.event_names())
    (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
    id_ = await left_open(ports, app)
    await ports.domain_events.publish(HAPPENED, {"n": 1}, id="x2")
    async with running(app, ports):
        await lived(ports, id_)
        await delivery.nak()
        await all_answered(ports.domain_events)
    await source.close()
    assert len((await life(ports, id_)).of(EpisodeOpened)) == 1


async def test_an_episode_that_only_a_newer_version_can_read_is_opened_all_the_same(ports):
    strategy = Counted()
    app = app_of(strategy, dedupe=by_value("n"))
    await watch(ports, app)
    id_ = await left_open(ports, app)
    ports.log.publish_raw(ports.stack.episode(id_), b"{ no", {})
    await ports.domain_events.publish(HAPPENED, {"n": 1}, id="x2")
    async with running(app, ports):
        await all_answered(ports.domain_events)
    assert strategy.begun == 0
    key = replace_struct(opening(app), episode_id=id_, dedupe_key="value:n=1")
    assert await OpeningBuilder(crew_of(app, ports)).is_open(key), "it takes no second delivery"


async def left_open(ports, app):
    """Write what a node that dies after opening an episode for `n` = 1 leaves; return its id."""
    key = "value:n=1"
    id_ = dedupe.episode_id(stack="vigil", actor="worker", expectation="thing", dedupe_key=key)
    await write(ports, id_, replace_struct(opening(app), episode_id=id_, dedupe_key=key))
    return id_


def unnamed(event):
    return event.payload["name"]


@pytest.mark.parametrize(
    ("own_key", "problem"),
    [
        (unnamed, "KeyError: 'name'"),
        (lambda event: None, "dedupe= returned a value of type NoneType, not a text"),
        (lambda event: "", "dedupe= returned 0 characters"),
        (lambda event: sys.exit(), "SystemExit"),
    ],
)
async def test_an_event_that_gets_no_key_is_a_dead_letter_and_blocks_nothing(
    ports, own_key, problem
):
    """I5. What else it fires is opened."""
    app = app_of(Scripted())
    app.actors["worker"].expect("other", Scripted(), on=event(HAPPENED), dedupe=own_key)
    await watch(ports, app)
    await ports.domain_events.publish(HAPPENED, {"n": 1}, id="x1")
    await ports.domain_events.publish(HAPPENED, {}, id="x2")
    async with running(app, ports):
        await all_answered(ports.domain_events)

    letters = await records(ports, Stream.DEAD)
    assert [(one.reason, one.seq, one.payload) for one in letters] == [
        ("dedupe_failed", 1, b'{"n":1}'),
        ("dedupe_failed", 2, b"{}"),
    ]
    assert all(one.detail.startswith("expectation 'other': ") for one in letters)
    assert problem in letters[0].detail
    assert [one.expectation_id for one in await opened(ports)] == ["thing", "thing"]


class AwayAtFirst:
    """An inbox whose first answers are that the log is away."""

    def __init__(self, inbox, *, times):
        self._commands, self._times = inbox, times

    def __getattr__(self, name):
        return getattr(self._commands, name)

    async def send(self, command, *, id, trace=""):
        if self._times:
            self._times -= 1
            raise Unavailable("send", detail="away")
        await self._commands.send(command, id=id, trace=trace)


class AwayFor:
    """A log that is away for the first append of some episodes."""

    def __init__(self, log, *episode_ids):
        self._log, self._left = log, set(episode_ids)

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append(self, subject, commit, *, after):
        for id_ in tuple(self._left):
            if id_ in subject:
                self._left.remove(id_)
                raise Unavailable(subject, detail="away")
        return await self._log.append(subject, commit, after=after)


@pytest.fixture
def prompt(monkeypatch):
    """What is handed back comes again at once."""
    monkeypatch.setattr(admit, "HAND_BACK_S", 0.0)


async def test_an_event_that_comes_again_opens_its_episode_alone(ports, app):
    """It may have crashed a node; now whoever starts the episode is counted."""
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    actor = app.actors["worker"]
    source = await ports.domain_events.open(actor.id, actor.event_names())
    (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
    await delivery.nak()
    await source.close()

    id_ = opening(app).episode_id
    async with running(app, ports):
        life_ = await lived(ports, id_)
    first = life_.records[0].commit
    assert (first.id.startswith(f"open.{id_}."), len(first.events)) == (True, 1)


async def test_an_event_that_found_the_log_away_is_handed_back_and_comes_again(ports, app, prompt):
    id_ = opening(app).episode_id
    log, inbox = AwayFor(ports.log, id_), AwayAtFirst(ports.commands, times=1)
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    async with running(app, replace(ports, log=log, commands=inbox)):
        life_ = await lived(ports, id_)
    assert len(life_.of(EpisodeOpened)) == 1


async def test_an_event_is_acknowledged_when_every_episode_that_it_opens_is_durable(
    ports, app, prompt
):
    actor = app.actors["worker"]
    actor.expect("other", Scripted(), on=event(HAPPENED))
    ids = {
        name: dedupe.episode_id(
            stack="vigil", actor="worker", expectation=name, dedupe_key="event:x1"
        )
        for name in ("thing", "other")
    }
    await ports.domain_events.publish(HAPPENED, {}, id="x1")
    async with running(app, replace(ports, log=AwayFor(ports.log, ids["other"]))):
        lives = [await lived(ports, id_) for id_ in ids.values()]
        await all_answered(ports.domain_events)
    assert [len(life_.of(EpisodeOpened)) for life_ in lives] == [1, 1]


async def test_the_last_of_the_episodes_of_an_event_acknowledges_it():
    answers = []

    class Answered:
        async def ack(self):
            answers.append("ack")

    room = Slots(1)
    room.try_take()
    ack = Acknowledgement(Answered(), parts=2, room=room, clock=CLOCK, since_s=0.0)
    await ack.part_done()
    assert answers == []
    await ack.part_done()
    assert answers == ["ack"]


async def test_a_node_without_room_opens_the_episode_for_whoever_has(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool}, most=1)
    await watch(ports, app)
    async with running(app, ports):
        for id_ in ("x1", "x2", "x3"):
            await ports.domain_events.publish(HAPPENED, {}, id=id_)
        await all_answered(ports.domain_events)
        await eventually(lambda: tool.calls)  # What is answered for is not begun yet.
        assert len(tool.calls) == 1
        assert len(await opened(ports)) == 3
        tool.gate.set()
        for id_ in ("x1", "x2", "x3"):
            await lived(ports, opening(app, id_=id_).episode_id)


async def test_a_gate_sees_only_the_events_that_its_actor_names(ports, app):
    await ports.domain_events.publish("unrelated.event", {}, id="x1")
    await ports.domain_events.publish(HAPPENED, {}, id="x2")
    async with running(app, ports):
        await all_answered(ports.domain_events)
    assert [one.trigger.event_id for one in await opened(ports)] == ["x2"]


def _listening():
    return app_of(Scripted(), on=[event(stream="ORDERS", subject="orders.>"), event(HAPPENED)])


async def test_a_gate_whose_stream_is_missing_says_so_once_and_others_go_on(ports, monkeypatch):
    monkeypatch.setattr(gate_module, "STREAM_LOOK_S", LOOK_S)
    app = _listening()
    with capture_logs() as lines:
        async with running(app, ports):
            await eventually(lambda: "node up" in [line["event"] for line in lines])
            await ports.domain_events.publish(HAPPENED, {}, id="x1")
            await lived(ports, opening(app).episode_id)

    said = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert said == [gate_module.missing("worker", "ORDERS")]


async def test_a_gate_reads_all_of_a_stream_that_was_missing_once_it_is_there(ports, monkeypatch):
    monkeypatch.setattr(gate_module, "STREAM_LOOK_S", LOOK_S)
    with capture_logs() as lines:
        async with running(_listening(), ports):
            await eventually(lambda: any(line["log_level"] == "warning" for line in lines))
            orders = ports.domain_events.add_stream("ORDERS")
            orders.publish("orders.paid", b"{}", {"Nats-Msg-Id": "o1"})
            await eventually(lambda: told(ports))

    (only,) = await opened(ports)
    assert only.trigger.event_id == "ORDERS/o1"

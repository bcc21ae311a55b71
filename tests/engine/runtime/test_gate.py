"""From domain events to episodes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine import dedupe
from engine.actions import tool_call
from engine.runtime import gate as gate_module
from engine.trigger import event
from streams.errors import Unavailable
from streams.events import Budget, DeadLettered, EpisodeOpened
from streams.parsing import HOPS_HEADER, MESSAGE_ID_HEADER
from streams.subjects import Stream
from tests.engine.runtime.stage import (
    HAPPENED,
    WAIT_S,
    Counter,
    Scripted,
    all_answered,
    app_of,
    eventually,
    lived,
    opening,
    running,
    write,
)


@pytest.fixture
async def app(ports):
    """An app whose gate has been opened once, so that events wait for it."""
    app = app_of(Scripted(), subject_key="host")
    await watch(ports, app)
    return app


async def watch(ports, app):
    actor = app.actors["worker"]
    await (await ports.world.open(actor.id, actor.event_names())).close()


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
    await ports.world.publish(HAPPENED, {"host": "web-1", "n": 1}, id="x1", hops=2)
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
        ports.world.publish_raw(HAPPENED, b"{}", headers)
    async with running(app, ports):
        await all_answered(ports.world)
        await lived(ports, opening(app).episode_id)

    assert len(await opened(ports)) == 1


async def test_two_gates_share_the_events(ports, app):
    for number in range(20):
        await ports.world.publish(HAPPENED, {}, id=f"x{number}")
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        for number in range(20):
            await lived(ports, opening(app, id_=f"x{number}").episode_id)

    assert len(await opened(ports)) == 20


async def test_a_crash_between_opening_and_asking_for_the_start_is_made_good(ports, app):
    begun = opening(app)
    await write(ports, begun.episode_id, begun)
    await ports.world.publish(HAPPENED, {}, id="x1")
    async with running(app, ports):
        life_ = await lived(ports, begun.episode_id)

    assert len(life_.of(EpisodeOpened)) == 1
    assert life_.end


async def test_an_event_fires_every_expectation_that_wants_it(ports):
    app = app_of(Scripted())
    app.actors["worker"].expect("other", Scripted(), on=event(HAPPENED, filter={"n": 1}))
    await watch(ports, app)
    await ports.world.publish(HAPPENED, {"n": 1}, id="x1")
    await ports.world.publish(HAPPENED, {"n": 2}, id="x2")
    async with running(app, ports):
        await all_answered(ports.world)

    assert sorted(one.expectation_id for one in await opened(ports)) == ["other", "thing", "thing"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"not json", "unreadable"), (b"[1]", "not_an_object"), (b'"x"', "not_an_object")],
)
async def test_what_is_no_event_is_one_dead_letter_and_blocks_nothing(ports, app, data, reason):
    """I5."""
    ports.world.publish_raw(HAPPENED, data, {MESSAGE_ID_HEADER: "bad"})
    await ports.world.publish(HAPPENED, {}, id="x1")
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        await lived(ports, opening(app).episode_id)
        await all_answered(ports.world)

    (letter,) = await records(ports, Stream.DEAD)
    assert isinstance(letter, DeadLettered)
    assert (letter.reason, letter.payload, letter.actor_id) == (reason, data, "worker")


async def test_an_event_that_would_not_fit_an_episode_is_a_dead_letter_and_blocks_nothing(
    ports, app
):
    grows = b'{"n":[' + b",".join([b"1e15"] * 100_000) + b"]}"
    ports.world.publish_raw(HAPPENED, grows, {})
    await ports.world.publish(HAPPENED, {}, id="x1")
    async with running(app, ports):
        await lived(ports, opening(app).episode_id)
        await all_answered(ports.world)

    (letter,) = await records(ports, Stream.DEAD)
    assert letter.reason == "too_large"


async def test_an_episode_that_nobody_could_read_is_a_dead_letter_and_blocks_nothing(ports, app):
    """Declarations are checked; this is for what slips through."""
    expectations = app.actors["worker"].expectations
    sound = expectations["thing"]
    expectations["broken"] = replace(sound, name="broken", budget=Budget(wall_s=math.inf))
    await ports.world.publish(HAPPENED, {}, id="x1")
    async with running(app, ports):
        await lived(ports, opening(app).episode_id)
        await all_answered(ports.world)

    (letter,) = await records(ports, Stream.DEAD)
    assert (letter.reason, letter.payload) == ("unwritable", b"{}")
    assert [one.expectation_id for one in await opened(ports)] == ["thing"]


async def test_a_missing_filter_key_is_logged_once_and_opens_nothing(ports):
    app = app_of(Scripted(), on=event(HAPPENED, filter={"mount": "/"}))
    await watch(ports, app)
    for number in range(3):
        await ports.world.publish(HAPPENED, {}, id=f"x{number}")
    with capture_logs() as logs:
        async with running(app, ports):
            await all_answered(ports.world)

    warnings = [line for line in logs if "lacks a key" in line["event"]]
    assert [(line["key"], line["event_id"]) for line in warnings] == [("mount", "x0")]
    assert await opened(ports) == []


@pytest.mark.parametrize(("hops", "count"), [(16, 1), (17, 0)])
async def test_a_chain_of_engine_made_events_ends(ports, app, hops, count):
    ports.world.publish_raw(HAPPENED, b"{}", {HOPS_HEADER: str(hops), MESSAGE_ID_HEADER: "x1"})
    async with running(app, ports):
        await all_answered(ports.world)
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
                await ports.world.publish("thing.new", {}, id=f"x{number}")
            (durable,) = ports.world._durables.values()
            await eventually(lambda: len(durable._unanswered) == 3)
            assert await opened(ports) == []
            async with running(new, ports, "new"):
                await all_answered(ports.world)

    assert sorted(one.trigger.event_id for one in await opened(ports)) == ["x0", "x1", "x2"]
    said = [line for line in logs if "does not watch" in line["event"]]
    assert [line["event_name"] for line in said] == ["thing.new"]


async def test_an_event_that_no_node_watches_any_more_does_not_come_for_ever(ports, monkeypatch):
    monkeypatch.setattr(gate_module, "STRANGE_S", 0.001)
    monkeypatch.setattr(gate_module, "STRANGE_DELIVERIES_MAX", 5)
    old, new = of_two_versions()
    await watch(ports, new)
    await ports.world.publish("thing.new", {}, id="x1")
    async with running(old, ports):
        await all_answered(ports.world)
    assert await opened(ports) == []


class AwayAtFirst:
    """An inbox whose first answers are that the log is away."""

    def __init__(self, inbox, *, times):
        self._inbox, self._times = inbox, times
        self.open = inbox.open

    async def send(self, command, *, id, trace=""):  # noqa: A002
        if self._times:
            self._times -= 1
            raise Unavailable("send", detail="away")
        await self._inbox.send(command, id=id, trace=trace)


class AwayFor:
    """A log that is away for the first append of some episodes."""

    def __init__(self, log, *episode_ids):
        self._log, self._left = log, set(episode_ids)
        self.read, self.last = log.read, log.last

    async def append(self, subject, commit, *, after):
        for id_ in tuple(self._left):
            if id_ in subject:
                self._left.remove(id_)
                raise Unavailable(subject, detail="away")
        return await self._log.append(subject, commit, after=after)


@pytest.fixture
def prompt(monkeypatch):
    """What is handed back comes again at once."""
    monkeypatch.setattr(gate_module, "HAND_BACK_S", 0.0)


async def test_an_event_that_comes_again_opens_its_episode_alone(ports, app):
    """It may have crashed a node; now whoever starts the episode is counted."""
    await ports.world.publish(HAPPENED, {}, id="x1")
    actor = app.actors["worker"]
    source = await ports.world.open(actor.id, actor.event_names())
    (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
    await delivery.nak()
    await source.close()

    id_ = opening(app).episode_id
    async with running(app, ports):
        life_ = await lived(ports, id_)
    first = life_.records[0].commit
    assert (first.id, len(first.events)) == (f"open.{id_}", 1)


async def test_an_event_that_found_the_log_away_is_handed_back_and_comes_again(ports, app, prompt):
    id_ = opening(app).episode_id
    log, inbox = AwayFor(ports.log, id_), AwayAtFirst(ports.inbox, times=1)
    await ports.world.publish(HAPPENED, {}, id="x1")
    async with running(app, replace(ports, log=log, inbox=inbox)):
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
    await ports.world.publish(HAPPENED, {}, id="x1")
    async with running(app, replace(ports, log=AwayFor(ports.log, ids["other"]))):
        lives = [await lived(ports, id_) for id_ in ids.values()]
        await all_answered(ports.world)
    assert [len(life_.of(EpisodeOpened)) for life_ in lives] == [1, 1]


async def test_a_node_without_room_opens_the_episode_for_whoever_has(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool}, most=1)
    await watch(ports, app)
    async with running(app, ports):
        for id_ in ("x1", "x2", "x3"):
            await ports.world.publish(HAPPENED, {}, id=id_)
        await all_answered(ports.world)
        assert len(tool.calls) == 1
        assert len(await opened(ports)) == 3
        tool.gate.set()
        for id_ in ("x1", "x2", "x3"):
            await lived(ports, opening(app, id_=id_).episode_id)


async def test_a_gate_sees_only_the_events_that_its_actor_names(ports, app):
    await ports.world.publish("unrelated.event", {}, id="x1")
    await ports.world.publish(HAPPENED, {}, id="x2")
    async with running(app, ports):
        await all_answered(ports.world)
    assert [one.trigger.event_id for one in await opened(ports)] == ["x2"]

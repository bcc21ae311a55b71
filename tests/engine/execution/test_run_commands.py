"""What becomes of commands that a node has no room for, or whose episodes it cannot have."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest
from structlog.testing import capture_logs

from engine.app.actions import observe, tool_call
from engine.errors import Rejected
from engine.execution import commands
from engine.operations.dead_letters import DeadLetterRequests
from streams.jetstream import connect
from streams.layout import Stream
from streams.model.events import EndStatus, EpisodeStarted
from streams.ports.delivery import ACK_WAIT_S
from streams.ports.log import START
from tests.engine.stage import (
    CLOCK,
    HAPPENED,
    STARTED,
    WAIT_S,
    Counter,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    claims,
    eventually,
    kept,
    life,
    lived,
    node_of,
    open_episode,
    opening,
    play,
    running,
    write,
)

APP = app_of(Scripted(observe("seen")))


@pytest.fixture
def impatient(monkeypatch):
    """A node that has waited for minutes, and for an hour."""
    monkeypatch.setattr(commands, "BUSY_S", 0.001)
    monkeypatch.setattr(commands, "MISSING_DELIVERIES_MAX", 3)
    monkeypatch.setattr(commands, "MISSING_S", 0.0)
    monkeypatch.setattr(commands, "HINDRANCE_DELIVERIES_MAX", 4)
    monkeypatch.setattr(commands, "HINDRANCE_S", 0.0)


def without_expectation():
    """The app as a version that has never heard of the expectation `thing`."""
    app = app_of(Scripted())
    actor = app.actors["worker"]
    actor.expect("other", Scripted(), on=actor.expectations["thing"].on)
    del actor.expectations["thing"]
    return app


def full_app(hang, *, most):
    """An app whose episodes take a slot until `hang` lets them go."""
    return app_of(Scripted(tool_call("tool", "a")), tools={"tool": hang}, most=most)


async def happen(ports, count):
    """Publish events that the gate sees, though it may not have opened its queue yet."""
    await (await ports.domain_events.open("worker", [HAPPENED])).close()
    for number in range(count):
        await ports.domain_events.publish(HAPPENED, {}, id=f"happened-{number}")


async def was_given(ports):
    """Wait until a node has a command that it has not answered for."""
    durables = ports.commands._durables
    await eventually(lambda: durables and durables["inbox-worker", 0]._unanswered)


class StopsWhenAsked:
    """An inbox whose first command comes as its node begins to stop."""

    def __init__(self, inner):
        self._inner, self.stop = inner, None

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def open(self, actor):
        source = await self._inner.open(actor)
        receive = source.receive

        async def receive_and_stop(**how):
            found = await receive(**how)
            if found:
                self.stop()
            return found

        source.receive = receive_and_stop
        return source


async def letters(ports):
    async with ports.log.follow(Stream.DEAD, after=START) as follower:
        records = await follower.receive(most=100, wait_s=0)
    return [event for record in records for event in record.commit.events]


async def test_a_full_node_leaves_commands_to_one_with_room(nats, stack):
    """What it had asked for before events took its last slots comes back at once."""
    hang = Counter(open_=False)
    full, idle = full_app(hang, most=3), app_of(Scripted())
    async with (
        connect(nats.url, stack=stack) as one,
        connect(nats.url, stack=stack) as other,
        running(full, one, "full"),
    ):
        await open_episode(one, full, id_="first")
        await eventually(lambda: len(hang.calls) == 1)
        await happen(one, 2)
        await eventually(lambda: len(hang.calls) == 3)
        ids = [await open_episode(one, full, id_=f"later-{number}") for number in range(4)]
        async with running(idle, other, "idle"), asyncio.timeout(ACK_WAIT_S / 2):
            lives = [await lived(other, id_) for id_ in ids]
        hang.gate.set()
    nodes = [started.node for life_ in lives for started in life_.of(EpisodeStarted)]
    assert nodes == ["idle"] * 4


async def test_a_command_that_waits_for_a_slot_goes_to_another_node_when_its_node_stops(
    ports, monkeypatch
):
    monkeypatch.setattr(commands, "SLOT_S", 10 * WAIT_S)
    hang = Counter(open_=False)
    full = full_app(hang, most=1)
    async with running(full, ports, "stopping") as stopping:
        await eventually(lambda: ports.commands._durables)
        await happen(ports, 1)
        await hang.called.wait()
        id_ = await open_episode(ports, full)
        await was_given(ports)
        stopping.stop()
        async with running(APP, ports, "other"):
            done = await lived(ports, id_)
        hang.gate.set()
    assert [started.node for started in done.of(EpisodeStarted)] == ["other"]


async def test_a_node_that_stops_begins_nothing_that_it_was_just_given(ports):
    inbox = StopsWhenAsked(ports.commands)
    id_ = await open_episode(ports, APP)
    node = node_of(APP, dataclasses.replace(ports, commands=inbox))
    inbox.stop = node.stop
    assert await node.run()
    assert (await life(ports, id_)).of(EpisodeStarted) == []
    async with running(APP, ports, "other"):
        assert (await lived(ports, id_)).end.status is EndStatus.DONE


async def test_hand_backs_for_want_of_a_slot_do_not_make_an_episode_missing(ports, monkeypatch):
    """Its event may come again to open it: what counts is for how long it was not there."""
    monkeypatch.setattr(commands, "HINDRANCE_MAX_S", 0.001)
    begun = opening(APP)
    await ask_start(ports, begun.episode_id)
    source = await ports.commands.open("worker")
    for _ in range(2 * commands.MISSING_DELIVERIES_MAX):
        (delivery,) = await source.receive(room=1, wait_s=WAIT_S)
        await delivery.nak()
    with capture_logs() as logs:
        async with running(APP, ports):
            await eventually(
                lambda: [one for one in logs if one.get("reason") == "no_such_episode"]
            )
            await write(ports, begun.episode_id, begun)
            assert (await lived(ports, begun.episode_id)).end.status is EndStatus.DONE
    assert await letters(ports) == []


async def test_a_command_for_an_episode_that_never_was_is_a_dead_letter_in_the_end(
    ports, impatient
):
    await ask_start(ports, "nobody")
    async with running(APP, ports):
        await all_answered(ports.commands)

    (letter,) = await letters(ports)
    assert (letter.reason, letter.episode_id) == ("no_such_episode", "nobody")
    assert claims(ports) == []


async def test_an_unknown_expectation_is_left_to_a_newer_node_without_a_claim(ports):
    old = without_expectation()
    id_ = await open_episode(ports, APP)
    with capture_logs() as logs:
        async with running(old, ports, "old"):
            durables = ports.commands._durables
            await eventually(lambda: durables and given_more_than_once(durables["inbox-worker", 0]))
            made = claims(ports)
            async with running(APP, ports, "new"):
                done = await lived(ports, id_)

    assert made == []
    assert [one.node for one in done.of(EpisodeStarted)] == ["new"]
    said = [line for line in logs if line.get("reason") == "no_such_expectation"]
    assert len(said) == 1


def given_more_than_once(durable):
    return any(one.deliveries > 2 for one in durable._unanswered.values())


@pytest.mark.parametrize("reason", ["no_such_expectation", "newer_state", "unreadable_journal"])
async def test_what_no_node_can_have_for_an_hour_is_a_dead_letter_that_says_why(
    ports, impatient, reason
):
    begun = opening(APP)
    subject = ports.stack.episode(begun.episode_id)
    await write(ports, begun.episode_id, begun)
    if reason == "newer_state":
        newer = kept()
        newer = type(newer)(
            checkpoint_no=0, step_no=0, phase="init", state=newer.state, schema_version=9
        )
        await write(ports, begun.episode_id, STARTED, newer)
    if reason == "unreadable_journal":
        ports.log.publish_raw(subject, b"{ no", {})
    await ask_start(ports, begun.episode_id)
    app = without_expectation() if reason == "no_such_expectation" else APP
    with capture_logs() as logs:
        async with running(app, ports):
            await all_answered(ports.commands)

    (letter,) = await letters(ports)
    assert (letter.reason, letter.episode_id) == (reason, begun.episode_id)
    assert [line["reason"] for line in logs if line["event"] == "command handed back"] == [reason]


async def test_an_episode_that_ended_needs_no_expectation_any_more(ports, impatient):
    async with running(APP, ports):
        id_ = await open_episode(ports, APP)
        first = await lived(ports, id_)
    await ask_start(ports, id_, id_="again")
    async with running(without_expectation(), ports):
        await all_answered(ports.commands)
    assert await letters(ports) == []
    assert await life(ports, id_) == first


async def test_requeuing_the_letter_calls_a_node_to_the_same_episode(ports, impatient):
    id_ = await open_episode(ports, APP)
    async with running(without_expectation(), ports):
        await all_answered(ports.commands)
    (letter,) = await letters(ports)
    key = f"{letter.stream}.{letter.seq}"

    requeued = await DeadLetterRequests(ports, CLOCK).requeue(key, by="ann")

    assert requeued.episode_id == id_
    async with running(APP, ports):
        assert (await lived(ports, id_)).end.status is EndStatus.DONE


async def test_a_letter_for_an_episode_that_never_was_cannot_be_requeued(ports, impatient):
    await ask_start(ports, "nobody")
    async with running(APP, ports):
        await all_answered(ports.commands)
    (letter,) = await letters(ports)
    with pytest.raises(Rejected, match="does not hold its episode"):
        await DeadLetterRequests(ports, CLOCK).requeue(f"{letter.stream}.{letter.seq}", by="ann")


class LateAtFirst:
    """Leases whose first answer comes too late to be trusted, as to a node that was frozen."""

    def __init__(self, inner):
        self._inner, self.given = inner, []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def acquire(self, key, *, holder, attempt=1):
        lease = await self._inner.acquire(key, holder=holder, attempt=attempt)
        self.given.append(lease.revision)
        return (
            msgspec.structs.replace(lease, trusted_until_s=0.0) if len(self.given) == 1 else lease
        )


async def test_no_fence_is_put_up_under_a_claim_that_is_no_longer_trusted(ports):
    """I2: whoever took over may not have put up a fence yet, and the version would let us in."""
    leases = LateAtFirst(ports.leases)
    late = dataclasses.replace(ports, leases=leases)
    tools = {"tool": Counter()}
    life_ = await play(Scripted(tool_call("tool", "a")), ports=late, tools=tools)
    (started,) = life_.of(EpisodeStarted)
    assert started.claim_revision == leases.given[1]

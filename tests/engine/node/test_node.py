"""Nodes that come, go and share the work."""

from __future__ import annotations

import asyncio
import os
from copy import copy
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from engine.app.actions import observe, tool_call
from engine.app.checks import Breaker
from engine.app.tools import Tool
from engine.cluster.announce import ACTORS_TOLD_MAX, node_started
from engine.cluster.nodes import NodeInfo
from engine.node import node as module
from engine.node.node import Node
from engine.runtime.publish import EventPublisher
from streams.errors import BadName, Unavailable
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.events import DeadLettered, EndStatus, EpisodeFinished, EpisodeStarted
from streams.model.modes import NodeMode
from tests.engine.stage import (
    CLOCK,
    LOOK_S,
    WAIT_S,
    Counter,
    Scripted,
    all_answered,
    app_of,
    ask_start,
    eventually,
    gates,
    life,
    lived,
    node_of,
    open_episode,
    opening,
    running,
    told,
    write,
)

PROMPT_S = 3.0
"""What a person would call at once, on a busy machine, in seconds; less than any idle wait."""


@pytest.mark.parametrize("how", [{}, {"breaker": Breaker(threshold=3)}], ids=["covered", "claimed"])
async def test_a_stopping_node_hands_over_at_the_next_barrier_and_another_finishes(how):
    """I9."""
    ports = memory_ports(clock=CLOCK)  # No lease lapses soon, which would call for it, too.
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a"), observe("end")), tools={"tool": tool}, **how)
    async with running(app, ports, "first") as first:
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        first.stop()
        tool.gate.set()
    left = await life(ports, id_)
    async with asyncio.timeout(PROMPT_S), running(app, ports, "second"):
        life_ = await lived(ports, id_)

    assert left.of(EpisodeFinished) == []
    assert tool.calls == ["a"]
    assert [one.node for one in life_.of(EpisodeStarted)] == ["first", "second"]
    assert life_.seen == [{"call": 1}, "end"]


class Noting:
    """A bucket that notes which keys are put first."""

    def __init__(self, bucket):
        self._bucket, self.puts = bucket, []

    def __getattr__(self, name):
        return getattr(self._bucket, name)

    async def put(self, key, *given, **more):
        self.puts.append(key.partition(".")[0])
        return await self._bucket.put(key, *given, **more)


async def test_a_node_is_seen_before_it_takes_the_turn_of_a_reactor(ports):
    noting = Noting(ports.gates)
    async with running(app_of(Scripted()), replace(ports, gates=noting)):
        await eventually(lambda: "reactor" in noting.puts)
    assert noting.puts.index("node") < noting.puts.index("reactor")


class SlowToOpen:
    """A world whose queues are open only once they may be."""

    def __init__(self, world):
        self._domain_events = world
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def open(self, actor, names, *, after=None):
        self.asked.set()
        await self.may.wait()
        return await self._domain_events.open(actor, names, after=after)


async def test_a_node_says_that_it_is_up_once_whatever_is_published_will_be_seen(ports):
    world = SlowToOpen(ports.domain_events)

    def said():
        return [line["event"] for line in lines].count("node up")

    with capture_logs() as lines:
        async with running(app_of(Scripted()), replace(ports, domain_events=world)):
            await world.asked.wait()
            await asyncio.sleep(0)
            assert not said()
            world.may.set()
            await eventually(said)


class Failing:
    """An inbox whose queue breaks when it is told to."""

    def __init__(self, inbox):
        self._commands, self.breaks = inbox, asyncio.Event()
        self.send, self.is_waiting = inbox.send, inbox.is_waiting
        self.open_attending = inbox.open_attending

    async def open(self, actor):
        return Breaking(await self._commands.open(actor), self.breaks)


class Breaking:
    """A source that hands out what it has, and then breaks."""

    pending = 0

    def __init__(self, source, breaks):
        self._source, self._breaks = source, breaks
        self.close, self.pause = source.close, getattr(source, "pause", None)

    async def receive(self, *, room, wait_s):
        if self._breaks.is_set():
            raise Unavailable("the queue", detail="broken")
        return await self._source.receive(room=room, wait_s=LOOK_S)


async def test_a_node_that_stops_waits_for_what_a_broken_queue_had_brought(ports, monkeypatch):
    monkeypatch.setattr(module, "RESTART_S", WAIT_S)
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    inbox = Failing(ports.commands)
    node = node_of(app, replace(ports, commands=inbox))
    with capture_logs() as lines:
        task = asyncio.create_task(node.run())
        await open_episode(ports, app)
        await tool.called.wait()
        inbox.breaks.set()
        await eventually(lambda: "waiting for the log" in [line["event"] for line in lines])
        node.stop()
        await asyncio.sleep(0)
        tool.gate.set()
        assert await asyncio.wait_for(task, 2 * WAIT_S)
    assert len((await life(ports, opening(app).episode_id)).of(EpisodeStarted)) == 1


async def test_an_idle_node_stops_promptly(ports):
    async with asyncio.timeout(PROMPT_S), running(app_of(Scripted()), ports):
        await asyncio.sleep(0)


async def test_a_node_that_waits_for_a_tool_too_long_says_that_it_left_work_behind(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool})
    node = node_of(app, ports, grace_s=0.05)
    task = asyncio.create_task(node.run())
    await open_episode(ports, app)
    await tool.called.wait()
    node.stop()
    assert await asyncio.wait_for(task, WAIT_S) is False


class Line(Tool):
    """A tool, the server of it and a connection to that."""

    def __init__(self):
        self.server, self.happened = self, []

    def connection(self, clock):
        return self

    async def call(self, tool, args, ctx):
        self.happened.append("called")

    async def close(self):
        self.happened.append("closed")


async def test_a_node_keeps_the_connections_of_its_tools_until_it_stops(ports):
    line = Line()
    app = app_of(Scripted(tool_call("tool", "a"), tool_call("tool", "b")), tools={"tool": line})
    async with running(app, ports):
        id_ = await open_episode(ports, app)
        await lived(ports, id_)
        assert line.happened == ["called", "called"]
    assert line.happened == ["called", "called", "closed"]


async def test_two_nodes_share_the_work_and_start_every_episode_once(ports):
    tool = Counter()
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool}, most=2)
    async with running(app, ports, "n1"), running(app, ports, "n2"):
        ids = [await open_episode(ports, app, id_=f"x{number}") for number in range(30)]
        lives = [await lived(ports, id_) for id_ in ids]

    assert len(tool.calls) == 30
    assert all(len(one.of(EpisodeStarted)) == 1 for one in lives)
    assert {one.of(EpisodeStarted)[0].node for one in lives} == {"n1", "n2"}


async def test_a_node_runs_no_more_than_it_has_room_for_and_leaves_the_rest(ports):
    tool = Counter(open_=False)
    app = app_of(Scripted(tool_call("tool", "a")), tools={"tool": tool}, most=2)
    async with running(app, ports, "full"):
        ids = [await open_episode(ports, app, id_=f"x{number}") for number in range(4)]
        await eventually(lambda: len(tool.calls) == 2)
        async with running(app, ports, "free"):
            await eventually(lambda: len(tool.calls) == 4)
            tool.gate.set()
            lives = [await lived(ports, id_) for id_ in ids]

    nodes = [one.of(EpisodeStarted)[0].node for one in lives]
    assert sorted(nodes) == ["free", "free", "full", "full"]


class FailingOnce:
    """A port whose first queue cannot be opened."""

    def __init__(self, port, error):
        self._port, self._errors = port, [error]

    def __getattr__(self, name):
        return getattr(self._port, name)

    async def open(self, *args, **more):
        if self._errors:
            raise self._errors.pop()
        return await self._port.open(*args, **more)


@pytest.mark.parametrize("error", [Unavailable("open", detail="away"), KeyError("a bug")])
@pytest.mark.parametrize("port", ["commands", "domain_events"])
async def test_a_doer_that_fails_is_started_again(ports, monkeypatch, port, error):
    monkeypatch.setattr(module, "RESTART_S", 0.01)
    app = app_of(Scripted())
    failing = replace(ports, **{port: FailingOnce(getattr(ports, port), error)})
    async with running(app, failing):
        if port == "domain_events":
            await eventually(lambda: gates(ports.domain_events))
            await ports.domain_events.publish("thing.happened", {}, id="x1")
        else:
            await open_episode(ports, app)
        life_ = await lived(ports, opening(app).episode_id)
    assert life_.end.status is EndStatus.DONE


async def test_a_surprise_in_one_episode_harms_no_other_and_the_episode_recovers(ports):
    class Surprising:
        """A log that fails in an unforeseen way, once."""

        surprises = 1

        def __init__(self, log):
            self._log = log

        def __getattr__(self, name):
            return getattr(self._log, name)

        async def append(self, subject, commit, *, after):
            if self.surprises and subject.endswith(first):
                self.surprises -= 1
                raise RuntimeError("a bug")
            return await self._log.append(subject, commit, after=after)

    app = app_of(Scripted())
    first = await open_episode(ports, app, id_="x1")
    second = await open_episode(ports, app, id_="x2")
    async with running(app, replace(ports, log=Surprising(ports.log))):
        assert (await lived(ports, second)).end.status is EndStatus.DONE
        assert (await lived(ports, first)).end.status is EndStatus.DONE


async def test_a_command_for_an_episode_that_is_not_there_yet_waits_for_it(ports):
    app = app_of(Scripted())
    begun = opening(app)
    async with running(app, ports):
        await ask_start(ports, begun.episode_id)
        durable = ports.commands._durables
        await eventually(lambda: durable and durable["inbox-worker", 0]._unanswered)
        await write(ports, begun.episode_id, begun)
        life_ = await lived(ports, begun.episode_id)
    assert life_.end.status is EndStatus.DONE


async def test_a_command_that_does_not_parse_is_one_dead_letter(ports):
    """I5."""
    (work,) = (s for s in ports.log._streams.values() if s.name.endswith("-work"))
    work.publish(ports.stack.episode_inbox("worker", "e1"), b"nonsense", {})
    async with running(app_of(Scripted()), ports):
        await all_answered(ports.commands)

    async with ports.log.follow(Stream.DEAD) as dead:
        (record,) = await dead.receive(most=10, wait_s=0)
    (letter,) = record.commit.events
    assert isinstance(letter, DeadLettered)
    assert (letter.reason, letter.payload) == ("unreadable", b"nonsense")


@pytest.mark.parametrize("name", ["", "a.b", "a node"])
def test_a_node_needs_a_name(ports, name):
    with pytest.raises(BadName, match="is not a name"):
        node_of(app_of(Scripted()), ports, name)


INFO = NodeInfo(
    name="n1", host="h", pid=1, since=CLOCK.now(), lease_s=30.0,
    mode=NodeMode.FULL, setting=NodeMode.FULL,
)  # fmt: skip


def news_of_nodes(ports):
    return [(name, said) for name, said in told(ports) if name.startswith("node.")]


async def test_the_world_is_told_once_that_a_node_is_up_and_once_that_it_has_stopped(ports):
    node = Node(app_of(Scripted()), ports, name="n1", clock=CLOCK, version="7", grace_s=5.0)
    running_node = asyncio.create_task(node.run())
    await eventually(lambda: news_of_nodes(ports))
    node.stop(reason="deploy")
    node.stop()
    assert await running_node

    (began, up), (ended, down) = news_of_nodes(ports)
    assert (began, ended) == ("node.started", "node.stopped")
    assert (up["node"], up["version"], up["mode"], up["pid"]) == ("n1", "7", "full", os.getpid())
    assert up["actors"] == ["worker"]
    assert (down["since"], down["reason"], down["is_clean"]) == (up["since"], "deploy", True)


async def test_a_node_that_starts_again_is_told_again(ports):
    for number in (1, 2):
        node = Node(app_of(Scripted()), ports, name="n1", clock=CLOCK, grace_s=5.0)
        running_node = asyncio.create_task(node.run())
        await eventually(lambda number=number: len(news_of_nodes(ports)) == 2 * number - 1)
        node.stop()
        await running_node

    assert [name for name, _ in news_of_nodes(ports)] == ["node.started", "node.stopped"] * 2


async def test_the_same_event_about_a_process_is_kept_once(ports):
    publisher = EventPublisher(ports.domain_events)
    for _ in range(2):
        await publisher.publish([node_started(copy(INFO), ["a"])])

    assert len(news_of_nodes(ports)) == 1


async def test_a_node_that_is_killed_says_nothing(ports):
    node = Node(app_of(Scripted()), ports, name="n1", clock=CLOCK)
    running_node = asyncio.create_task(node.run())
    await eventually(lambda: news_of_nodes(ports))
    running_node.cancel()
    await asyncio.gather(running_node, return_exceptions=True)

    assert [name for name, _ in news_of_nodes(ports)] == ["node.started"]


async def test_a_node_that_stops_before_it_is_up_says_nothing_of_itself(ports):
    node = Node(app_of(Scripted()), ports, name="n1", clock=CLOCK)
    node.stop()
    assert await node.run()

    assert news_of_nodes(ports) == []


async def test_a_node_that_does_not_announce_itself_says_nothing_of_itself(ports):
    with capture_logs() as lines:
        async with running(app_of(Scripted()), ports):
            await eventually(lambda: "node up" in [line["event"] for line in lines])

    assert news_of_nodes(ports) == []


def test_of_many_actors_the_first_thousand_are_named():
    actors = [f"a{number:04}" for number in reversed(range(ACTORS_TOLD_MAX + 1))]
    named = node_started(INFO, actors).payload["actors"]
    assert (len(named), named[0], named[-1]) == (ACTORS_TOLD_MAX, "a0000", "a0999")

"""Nodes whose work is taken from them and given to them, live."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from structlog.testing import capture_logs

from engine.app.actions import observe, tool_call
from engine.node.node import Node
from streams.keys import mode_key, pause_key
from streams.model.events import EpisodeOpened, EpisodeStarted
from streams.model.modes import NodeMode
from tests.engine.stage import (
    HAPPENED,
    Counter,
    Scripted,
    all_answered,
    app_of,
    eventually,
    gates,
    life,
    lived,
    node_of,
    open_episode,
    opening,
    running,
)

APP = app_of(Scripted())


async def say(ports, node: str, mode: str) -> None:
    await ports.registry.put(mode_key(node), b'{"mode":"%s"}' % mode.encode())


async def happen(ports, id_: str = "x1") -> str:
    """Publish an event, and return the episode that it is to open."""
    await ports.domain_events.publish(HAPPENED, {}, id=id_)
    return opening(APP, id_=id_).episode_id


def may(node):
    return node._mode_watcher.may("worker")


def nodes_of(life_) -> list[str]:
    return [started.node for started in life_.of(EpisodeStarted)]


@pytest.fixture
def busy():
    """A tool that waits until it is let go, and an app whose first step is to call it."""
    tool = Counter(open_=False)
    return tool, app_of(Scripted(tool_call("tool", "a"), observe("end")), tools={"tool": tool})


@pytest.mark.parametrize("mode", ["trigger_only", "disabled"])
async def test_an_episode_leaves_a_node_that_may_not_run_it_any_more_at_its_next_barrier(
    ports, busy, mode
):
    tool, app = busy
    async with running(app, ports, "n1") as first:
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        await say(ports, "n1", mode)
        await eventually(lambda: not may(first).runs)
        tool.gate.set()
        async with running(app, ports, "n2"):
            done = await lived(ports, id_)

    assert nodes_of(done) == ["n1", "n2"]
    assert tool.calls == ["a"]
    assert done.takeovers == 0


async def test_an_episode_that_may_go_on_before_its_next_barrier_stays(ports, busy):
    tool, app = busy
    async with running(app, ports, "n1") as node:
        id_ = await open_episode(ports, app)
        await tool.called.wait()
        await say(ports, "n1", "disabled")
        await eventually(lambda: not may(node).runs)
        await ports.registry.delete(mode_key("n1"))
        await eventually(lambda: may(node).runs)
        tool.gate.set()
        done = await lived(ports, id_)

    assert nodes_of(done) == ["n1"]


async def test_a_node_that_may_run_again_takes_work_again(ports):
    async with running(APP, ports, "n1") as node:
        await lived(ports, await open_episode(ports, APP, id_="x1"))
        await say(ports, "n1", "disabled")
        await eventually(lambda: not may(node).runs)
        id_ = await open_episode(ports, APP, id_="x2")
        await say(ports, "n1", "full")
        assert nodes_of(await lived(ports, id_)) == ["n1"]


async def test_a_node_that_only_triggers_opens_episodes_for_others(ports):
    await say(ports, "n1", "trigger_only")
    async with running(APP, ports, "n1") as node:
        await eventually(lambda: may(node).wakes)
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports)
        await all_answered(ports.domain_events)
        requested = await life(ports, id_)
        async with running(APP, ports, "n2"):
            done = await lived(ports, id_)

    (opened,) = requested.of(EpisodeOpened)
    assert (opened.is_request, opened.opened_by) == (True, "n1")
    assert nodes_of(requested) == []
    assert nodes_of(done) == ["n2"]


async def test_what_was_said_holds_for_a_node_that_comes_back(ports):
    async with running(APP, ports, "n1") as node:
        await eventually(lambda: gates(ports.domain_events))
        await say(ports, "n1", "trigger_only")
        await eventually(lambda: not may(node).runs)
    async with running(APP, ports, "n1"):
        id_ = await happen(ports)
        await all_answered(ports.domain_events)
        assert nodes_of(await life(ports, id_)) == []


async def test_a_disabled_node_is_up_and_takes_nothing(ports):
    node = Node(APP, ports, name="n1", mode=NodeMode.DISABLED)

    def is_up() -> bool:
        return "node up" in [line["event"] for line in lines]

    with capture_logs() as lines:
        task = asyncio.create_task(node.run())
        await eventually(is_up)
        assert not ports.domain_events._durables
        assert not ports.commands._durables
        await say(ports, "n1", "full")
        await eventually(lambda: gates(ports.domain_events) and ports.commands._durables)
        node.stop()
        assert await task


async def test_a_paused_actor_is_woken_once_it_is_resumed(ports):
    await ports.registry.put(pause_key("worker"), b"{}")
    async with running(APP, ports, "n1") as node:
        queued = await open_episode(ports, APP, id_="queued")
        assert nodes_of(await lived(ports, queued)) == ["n1"], "what is queued goes on"
        await ports.registry.delete(pause_key("worker"))
        await eventually(lambda: may(node).wakes and gates(ports.domain_events))
        await ports.registry.put(pause_key("worker"), b"{}")
        await eventually(lambda: not may(node).wakes)
        id_ = await happen(ports)
        await lived(ports, await open_episode(ports, APP, id_="later"))
        assert (await life(ports, id_)).events == []
        await ports.registry.delete(pause_key("worker"))
        assert nodes_of(await lived(ports, id_)) == ["n1"]


class PausedMeanwhile:
    """A world whose first events come while their actor is being paused."""

    def __init__(self, ports):
        self._ports, self.publish = ports, ports.domain_events.publish
        self.fence, self.stored = ports.domain_events.fence, ports.domain_events.stored
        self.node = None

    async def open(self, actor, names, *, after=None):
        return PausedSource(self, await self._ports.domain_events.open(actor, names, after=after))

    async def pause(self):
        await self._ports.registry.put(pause_key("worker"), b"{}")
        await eventually(lambda: not may(self.node).wakes)
        self.has_paused = True  # From here on the pause may end.

    has_paused = False


class PausedSource:
    def __init__(self, world, source):
        self._domain_events, self._source = world, source
        self.close, self.pause = source.close, source.pause

    @property
    def pending(self):
        return self._source.pending

    async def receive(self, *, room, wait_s):
        deliveries = await self._source.receive(room=room, wait_s=wait_s)
        if deliveries and not self._domain_events.has_paused:
            await self._domain_events.pause()
        return deliveries


async def test_what_a_gate_has_pulled_and_not_ruled_on_is_handed_back(ports):
    world = PausedMeanwhile(ports)
    node = world.node = node_of(APP, dataclasses.replace(ports, domain_events=world), "n1")
    task = asyncio.create_task(node.run())
    await eventually(lambda: gates(ports.domain_events))
    id_ = await happen(ports)
    await eventually(lambda: world.has_paused)
    await lived(ports, await open_episode(ports, APP, id_="later"))
    assert (await life(ports, id_)).events == []
    await ports.registry.delete(pause_key("worker"))
    await lived(ports, id_)
    node.stop()
    assert await task


async def test_a_node_that_never_wakes_runs_what_others_opened(ports):
    node = Node(APP, ports, name="guest", never_wakes=True)
    task = asyncio.create_task(node.run())
    done = await lived(ports, await open_episode(ports, APP))
    assert nodes_of(done) == ["guest"]
    assert not gates(ports.domain_events)
    node.stop()
    assert await task

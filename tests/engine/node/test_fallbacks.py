"""Nodes that lack what an actor or a workflow needs leave it to nodes that have it, and no other.

In simulated time: `old` has one template, and `new` has another one, too.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.app.actions import approval, tool_call
from engine.app.workflow_plan import starter_id
from engine.cluster.members import live_nodes
from engine.episodes.fire import fire
from streams.keys import mode_key
from streams.memory import MemoryPorts, memory_ports
from streams.model.events import EndStatus, EpisodeFinished
from streams.model.modes import NodeMode
from streams.model.workflows import WorkflowStatus
from tests.engine.defining import (
    WORKFLOW,
    agent,
    app_with,
    apply,
    disable,
    flow,
    nodes_of,
    revision_of,
    runs,
    says,
)
from tests.engine.lane_stage import begun
from tests.engine.stage import (
    LEASE_TTL_S,
    Counter,
    Scripted,
    blocked,
    decide,
    eventually,
    lived,
    node_of,
    running,
)
from tests.engine.workflow_stage import begin, ended
from tests.simulation.time import SimClock, simulate

ASK = approval({"restart": "db1"}, summary="restart it")

MANY = 20

BY_HAND = {"by_hand": {"strategy": {"template": "newer"}, "on": {"manual": True}}}
TICKING = {"ticks": {"strategy": {"template": "newer"}, "on": {"every": "5s"}}}


def newer(config):
    return Scripted(tool_call("tool", "new"))


def asking(config):
    return Scripted(ASK)


def app_of_old(tool: Counter | None = None):
    return app_with(tool, templates={"asking": asking})


def app_of_new(tool: Counter | None = None):
    return app_with(tool, templates={"asking": asking, "newer": newer})


class Counted:
    """A port that counts what is taken from its queues."""

    def __init__(self, port, taken: list):
        self._port, self._taken = port, taken

    def __getattr__(self, name):
        found = getattr(self._port, name)
        if not name.startswith("open"):
            return found

        async def opened(*args):
            return CountedSource(await found(*args), self._taken)

        return opened


class CountedSource:
    def __init__(self, source, taken: list):
        self._source, self._taken = source, taken

    def __getattr__(self, name):
        return getattr(self._source, name)

    @property
    def pending(self):
        return self._source.pending

    async def receive(self, **how):
        taken = await self._source.receive(**how)
        self._taken += [each.content for each in taken]
        return taken


def ports_in_time() -> MemoryPorts:
    return memory_ports(clock=SimClock(), lease_ttl_s=LEASE_TTL_S)


def counted(ports: MemoryPorts, taken: list) -> MemoryPorts:
    """Return ports that count what their node takes."""
    inbox, timers = Counted(ports.commands, taken), Counted(ports.timers, taken)
    return dataclasses.replace(ports, commands=inbox, timers=timers)


@asynccontextmanager
async def old_node(ports: MemoryPorts, tool: Counter | None = None) -> AsyncIterator[list]:
    """Run the node that lacks a template, and yield what it takes from the queues."""
    taken: list = []
    async with running(app_of_old(tool), counted(ports, taken), "old", clock=SimClock()):
        yield taken


def new_node(ports: MemoryPorts, tool: Counter | None = None):
    return running(app_of_new(tool), ports, "new", clock=SimClock())


async def rests(ports: MemoryPorts) -> None:
    """Wait until the old node leaves `worker` to others."""
    await says(ports, lambda info: "agent.worker" in info.problems and not info.closed, "old")


async def serves(ports: MemoryPorts) -> None:
    await says(ports, lambda info: "worker" in info.closed, "old")


@pytest.mark.parametrize("limits", [{}, {"max_concurrent_cluster": 2}])
def test_what_is_asked_for_by_hand_is_never_taken_by_a_node_that_cannot_run_it(limits):
    async def play():
        ports = ports_in_time()
        async with old_node(ports) as taken, new_node(ports):
            await apply(ports, agent(template="newer", expectations=BY_HAND, **limits))
            await says(ports, runs(1), "new")
            await rests(ports)
            taken.clear()
            for _ in range(MANY):
                id_ = await fire(ports, "worker", "by_hand", by="ada")
                assert nodes_of(await lived(ports, id_)) == ["new"]
            return list(taken)  # Once the new node stops, the old one stands in.

    assert simulate(play()) == []


def test_ticks_are_never_taken_by_a_node_that_cannot_run_what_they_wake():
    async def play():
        ports, tool = ports_in_time(), Counter()
        async with old_node(ports) as taken, new_node(ports, tool):
            await apply(ports, agent(template="newer", expectations=TICKING))
            await says(ports, runs(1), "new")
            await rests(ports)
            taken.clear()
            await eventually(lambda: len(tool.calls) >= 3)
            return list(taken)  # Once the new node stops, the old one stands in.

    assert simulate(play()) == []


def test_instances_and_their_steps_are_never_taken_by_a_node_that_cannot_run_them():
    async def play():
        ports = ports_in_time()
        outer = {"name": "outer", "steps": {"sub": {"workflow": "w"}}}
        async with old_node(ports) as taken, new_node(ports):
            thing = {"strategy": {"template": "newer"}, "on": {"workflow": True}}
            await apply(ports, {"id": "worker", "expectations": {"thing": thing}})
            await apply(ports, flow("a", "b", "c"))
            await apply(ports, outer)
            await says(ports, runs(1, starter_id("outer")), "new")
            await says(ports, lambda info: len(info.problems) == 3 and not info.closed, "old")
            taken.clear()
            for number in range(5):
                id_ = await begin(ports, "outer", key=f"k{number}")
                assert (await ended(ports, id_)).status is WorkflowStatus.DONE
            return list(taken)  # Once the new node stops, the old one stands in.

    assert simulate(play()) == []


def test_what_is_open_is_seen_to_when_no_node_is_left_that_can_run_what_is_new_and_no_longer():
    """Under its own revision, which the old node can make."""

    async def play():
        ports, tool = ports_in_time(), Counter()
        async with old_node(ports, tool) as taken:
            async with new_node(ports):
                await apply(ports, agent(template="asking", expectations=_by_hand("asking")))
                ids = [await fire(ports, "worker", "by_hand", by="ada") for _ in range(2)]
                for each in ids:
                    await blocked(ports, each)
                await apply(ports, agent(template="newer", expectations=BY_HAND))
                await says(ports, runs(2), "new")
                await rests(ports)
            await serves(ports)
            await decide(ports, ids[0])
            first = await lived(ports, ids[0])
            async with new_node(ports):
                await says(ports, runs(2), "new")
                await rests(ports)
                taken.clear()
                await decide(ports, ids[1])
                second = await lived(ports, ids[1])
        return first, second, taken

    first, second, taken = simulate(play())
    assert [(each.end.status, revision_of(each)) for each in (first, second)] == [
        (EndStatus.DONE, 1)
    ] * 2
    assert (nodes_of(first)[-1], nodes_of(second)[-1]) == ("old", "new")
    assert taken == []


def _by_hand(template: str):
    return {"by_hand": {"strategy": {"template": template}, "on": {"manual": True}}}


def test_what_is_open_is_seen_to_when_the_node_that_can_run_what_is_new_has_crashed():
    async def play():
        ports, tool = ports_in_time(), Counter(open_=False)
        async with old_node(ports):
            node = node_of(app_of_new(tool), ports, "new", clock=SimClock())
            doomed = asyncio.create_task(node.run())
            await apply(ports, agent("a", expectations=_playing("a")))
            await says(ports, runs(1), "new")
            id_ = await fire(ports, "worker", "by_hand", by="ada")
            await lived(ports, id_, nodes_of)
            await apply(ports, agent(template="newer"))
            await rests(ports)
            doomed.cancel()
            await asyncio.gather(doomed, return_exceptions=True)
            return await lived(ports, id_)

    done = simulate(play())
    assert (done.end.status, revision_of(done), nodes_of(done)[-1]) == (EndStatus.DONE, 1, "old")


def _playing(*actions: str):
    strategy = {"template": "playing", "config": {"actions": [*actions]}}
    return {"by_hand": {"strategy": strategy, "on": {"manual": True}}}


def test_a_node_that_is_told_to_run_nothing_has_no_part():
    async def play():
        ports = ports_in_time()
        async with old_node(ports), new_node(ports):
            await apply(ports, agent(template="newer"))
            await rests(ports)
            await ports.registry.put(mode_key("new"), f'{{"mode":"{NodeMode.DISABLED}"}}'.encode())
            await serves(ports)
            await ports.registry.put(mode_key("new"), f'{{"mode":"{NodeMode.FULL}"}}'.encode())
            await rests(ports)

    simulate(play())


def test_what_waits_for_its_turn_counts_on_no_room_of_a_node_that_rests():
    async def play():
        ports = ports_in_time()
        async with old_node(ports), new_node(ports):
            await apply(ports, agent(template="newer", max_concurrent_cluster=9, most=2))
            await begun(ports)
            await rests(ports)
            return [each.closed for each in await live_nodes(ports.gates)]

    assert simulate(play()) == [{}, {}]


def test_of_what_is_disabled_only_that_is_left_to_others_which_could_not_be_made():
    async def play():
        ports = ports_in_time()
        async with old_node(ports) as taken, new_node(ports):
            await apply(ports, agent(template="newer", expectations=_by_hand("asking")))
            await apply(ports, agent(id_="other"))
            id_ = await fire(ports, "worker", "by_hand", by="ada")
            await blocked(ports, id_)
            for each in ("worker", "other"):
                await disable(ports, each)
            new = await says(ports, lambda info: len(info.closed) == 2, "new")
            old = await says(ports, lambda info: [*info.closed] == ["other"], "old")
            taken.clear()
            await decide(ports, id_)
            done = await lived(ports, id_)
            return old.fallbacks, new.fallbacks, done.end.status, taken

    assert simulate(play()) == ((), (), EndStatus.DONE, [])


def test_what_is_disabled_and_no_node_could_make_is_seen_to_by_all():
    """An episode of it may be of an earlier revision."""

    async def play():
        ports = ports_in_time()
        async with (
            old_node(ports),
            running(app_of_old(), ports, "older", clock=SimClock()),
        ):
            await apply(ports, agent(template="newer"))
            await disable(ports, "worker")
            infos = [await says(ports, lambda info: info.closed, node) for node in ("old", "older")]
            return [each.fallbacks for each in infos]

    assert simulate(play()) == [("worker",), ("worker",)]


def test_a_disabled_workflow_is_seen_to_by_all():
    """It is data alone, so any node can have its instances go on."""

    async def play():
        ports, tool = ports_in_time(), Counter(open_=False)
        async with old_node(ports, tool):
            thing = {**agent("a")["expectations"]["thing"], "on": {"workflow": True}}
            await apply(ports, {"id": "worker", "expectations": {"thing": thing}})
            await apply(ports, flow("a", "b"))
            await says(ports, runs(1, starter_id("w")), "old")
            id_ = await begin(ports, "w")
            await eventually(lambda: tool.calls)
            await disable(ports, "w", WORKFLOW)
            await says(ports, lambda info: starter_id("w") not in info.actors, "old")
            tool.gate.set()
            return (await ended(ports, id_)).status

    assert simulate(play()) is WorkflowStatus.DONE


def test_of_nodes_that_all_lack_something_each_sees_to_what_is_open():
    async def play():
        ports, tool = ports_in_time(), Counter(open_=False)
        async with old_node(ports, tool) as taken:
            await apply(ports, agent("a", expectations=_playing("a", "b")))
            id_ = await fire(ports, "worker", "by_hand", by="ada")
            await eventually(lambda: tool.calls)
            await apply(ports, agent(template="missing"))
            await serves(ports)
            async with running(app_of_old(), ports, "other", clock=SimClock()):
                await says(ports, lambda info: "worker" in info.closed, "other")
                await serves(ports)
            tool.gate.set()
            done = await lived(ports, id_, lambda so_far: so_far.of(EpisodeFinished))
            return done.end.status, bool(taken)

    assert simulate(play()) == (EndStatus.DONE, True)

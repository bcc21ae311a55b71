"""Actors and workflows that come, change and go while a node runs."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from types import CoroutineType

import pytest

from engine.app.actions import tool_call
from engine.episodes.cancel import cancel
from streams.keys import node_key, pause_key
from streams.model.events import EndStatus, EpisodeOpened
from streams.model.workflows import WorkflowStatus
from tests.engine.defining import (
    WORKFLOW,
    agent,
    app_with,
    apply,
    disable,
    flow,
    happen,
    nodes_of,
    revision_of,
    runs,
    says,
)
from tests.engine.stage import (
    WAIT_S,
    Counter,
    Scripted,
    doomed,
    eventually,
    gates,
    lived,
    node_of,
    running,
)
from tests.engine.workflow_stage import begin, ended
from vigil import raise_finding

TURNS = 200
"""Of the event loop: as many as a dispatcher takes to drop something, and more."""

FOUND = raise_finding("disk:a", class_="full", severity="high", subject=("host", "a"))


async def test_what_is_applied_while_a_node_runs_is_run_within_moments(ports):
    tool = Counter()
    async with running(app_with(tool), ports):
        await says(ports, lambda info: not info.actors)
        await apply(ports, agent("a"))
        info = await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        done = await lived(ports, await happen(ports))
    assert done.end.status is EndStatus.DONE
    assert info.problems == {}
    assert info.actors["worker"].wakes


async def test_a_new_revision_takes_what_comes_and_what_runs_ends_as_it_began(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("old", "old"))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        first = await happen(ports, "x1")
        await eventually(lambda: tool.calls == ["old"])
        await apply(ports, agent("new"))
        await says(ports, runs(2))
        second = await happen(ports, "x2")
        await eventually(lambda: tool.calls == ["old", "new"])
        tool.gate.set()
        ends = [await lived(ports, each) for each in (first, second)]
    assert tool.calls == ["old", "new", "old"]
    assert [revision_of(each) for each in ends] == [1, 2]
    assert [len(nodes_of(each)) for each in ends] == [1, 1], "nobody had to take over"


async def test_episodes_of_all_revisions_together_are_no_more_than_there_is_room_for(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("old", most=3))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        ids = [await happen(ports, f"x{number}") for number in range(3)]
        await eventually(lambda: len(tool.calls) == 3)
        await apply(ports, agent("new", most=4))
        await says(ports, runs(2))
        ids += [await happen(ports, f"x{number}") for number in range(3, 6)]
        await eventually(lambda: "new" in tool.calls)
        for each in ids[3:]:
            await lived(ports, each, lambda so_far: so_far.of(EpisodeOpened))
        assert tool.calls.count("new") == 1
        tool.gate.set()
        for each in ids:
            await lived(ports, each)
    assert tool.calls.count("new") == 3


async def test_a_node_that_is_stopped_while_it_replaces_an_actor_hands_all_over(ports):
    """I9."""
    tool = Counter(open_=False)
    async with running(app_with(tool), ports, "n1") as first:
        await apply(ports, agent("old", "end"))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        old = await happen(ports, "x1")
        await eventually(lambda: tool.calls == ["old"])
        await apply(ports, agent("new", "end"))
        await says(ports, runs(2))
        new = await happen(ports, "x2")
        await eventually(lambda: tool.calls == ["old", "new"])
        first.stop()
        tool.gate.set()
    async with running(app_with(tool), ports, "n2"):
        ends = [await lived(ports, each) for each in (old, new)]
    assert sorted(tool.calls) == ["end", "end", "new", "old"]
    assert [nodes_of(each) for each in ends] == [["n1", "n2"], ["n1", "n2"]]
    assert [each.takeovers for each in ends] == [0, 0]


async def test_a_node_that_is_killed_while_it_replaces_an_actor_loses_nothing(ports):
    """I4."""
    await apply(ports, agent("old", "end"))
    tool = Counter(open_=False)
    async with doomed(app_with(tool), ports):
        await says(ports, runs(1), "doomed")
        await eventually(lambda: gates(ports.domain_events))
        old = await happen(ports, "x1")
        await eventually(lambda: tool.calls == ["old"])
        await apply(ports, agent("new", "end"))
        new = await happen(ports, "x2")
    async with running(app_with(), ports):
        ends = [await lived(ports, each) for each in (old, new)]
    assert [each.end.status for each in ends] == [EndStatus.DONE, EndStatus.DONE]
    assert revision_of(ends[0]) == 1


async def test_what_is_disabled_is_woken_no_more_until_it_is_applied_again(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        first = await happen(ports, "x1")
        await eventually(lambda: tool.calls == ["a"])
        await disable(ports, "worker")
        info = await says(ports, lambda info: not info.actors)
        waiting = await happen(ports, "x2")
        tool.gate.set()
        assert (await lived(ports, first)).end.status is EndStatus.DONE, "what runs ends"
        assert tool.calls == ["a"]
        await apply(ports, agent("b"))
        done = await lived(ports, waiting)
    assert info.problems == {}
    assert (revision_of(done), tool.calls) == (2, ["a", "b"])


async def test_what_runs_when_its_actor_is_disabled_keeps_the_rules_for_its_findings(ports):
    tool = Counter(open_=False)
    templates = {"raising": lambda _: Scripted(tool_call("tool", "look"), findings=(FOUND,))}
    async with running(app_with(tool, templates=templates), ports):
        await apply(ports, agent(template="raising"))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports)
        await eventually(lambda: tool.calls)
        await disable(ports, "worker")
        await says(ports, lambda info: not info.actors)
        tool.gate.set()
        done = await lived(ports, id_)
    assert [each.outcome for each in done.end.findings] == ["raised"]


async def test_what_runs_when_its_definition_is_deleted_ends(ports):
    tool, key = Counter(open_=False), "definition.agent.worker"
    async with running(app_with(tool), ports):
        await apply(ports, agent("a", "b"))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports)
        await eventually(lambda: tool.calls == ["a"])
        await ports.registry.delete(key, after=(await ports.registry.get(key)).revision)
        await says(ports, lambda info: not info.actors)
        tool.gate.set()
        assert (await lived(ports, id_)).end.status is EndStatus.DONE


async def test_what_runs_when_its_actor_is_disabled_can_be_canceled(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        id_ = await happen(ports)
        await eventually(lambda: tool.calls == ["a"])
        await disable(ports, "worker")
        await says(ports, lambda info: not info.actors)
        await cancel(ports, "worker", id_, by="ada")
        assert (await lived(ports, id_)).end.status is EndStatus.CANCELED


async def test_an_actor_that_comes_while_it_is_paused_is_not_woken(ports):
    await ports.registry.put(pause_key("worker"), b"{}")
    tool = Counter()
    async with running(app_with(tool), ports):
        await says(ports, lambda info: True)
        await apply(ports, agent("a"))
        info = await says(ports, runs(1))
        assert not info.actors["worker"].wakes
        assert not gates(ports.domain_events)
        await ports.registry.delete(pause_key("worker"))
        await eventually(lambda: gates(ports.domain_events))
        await lived(ports, await happen(ports))


async def test_a_workflow_waits_while_what_it_names_is_disabled(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("a"))
        await apply(ports, flow("one", "two"))
        await says(ports, runs(1, "workflow-w"))
        id_ = await begin(ports, "w")
        await eventually(lambda: tool.calls)
        await disable(ports, "worker")
        info = await says(ports, lambda info: "workflow.w" in info.problems)
        assert info.actors == {}
        tool.gate.set()
        await apply(ports, agent("a"))
        assert (await ended(ports, id_)).status is WorkflowStatus.DONE


async def test_a_workflow_that_is_disabled_begins_nothing(ports):
    async with running(app_with(), ports):
        await apply(ports, agent("a"))
        await apply(ports, flow("one"))
        await says(ports, runs(1, "workflow-w"))
        await disable(ports, "w", WORKFLOW)
        info = await says(ports, lambda info: "workflow-w" not in info.actors)
        assert "worker" in info.actors
        id_ = await begin(ports, "w")
        await apply(ports, flow("one", "two"))
        assert (await ended(ports, id_)).begun.spec.revision == 2


async def test_limits_for_the_whole_cluster_can_come_with_a_definition(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await says(ports, lambda info: True)
        await apply(ports, agent("a", max_concurrent_cluster=1))
        await says(ports, runs(1))
        await apply(ports, agent("b", max_concurrent_cluster=2))
        await says(ports, runs(2))
        async with asyncio.timeout(WAIT_S):
            ids = await _happen_until_opened(ports)
        await eventually(lambda: len(tool.calls) == 2)
        tool.gate.set()
        for each in ids:
            await lived(ports, each)
    assert tool.calls == ["b"] * len(ids)


@pytest.mark.parametrize("how", ["replaced", "disabled"])
async def test_what_was_pulled_for_an_actor_that_goes_is_for_others(ports, how):
    """A runner that waits for room hands back what it has, once it is replaced."""
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("a", most=1))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        ids = [await happen(ports, f"x{number}") for number in range(3)]
        await eventually(lambda: tool.calls)
        await (apply(ports, agent("b", most=1)) if how == "replaced" else disable(ports, "worker"))
        node = node_of(app_with(Counter()), ports, "n2")
        task = asyncio.create_task(node.run())
        await says(ports, lambda info: True, "n2")
        tool.gate.set()
        await lived(ports, ids[0])
        await apply(ports, agent("c", most=1))
        for each in ids:
            await lived(ports, each)
        node.stop()
        assert await task


class Opening:
    """A world in which the second opening of an actor's queue of events waits."""

    def __init__(self, world):
        self._domain_events, self.opened, self.go = world, 0, asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._domain_events, name)

    async def open(self, actor, names, *, after=None):
        if actor == "worker":
            self.opened += 1
            if self.opened == 2:
                await self.go.wait()
        return await self._domain_events.open(actor, names, after=after)


async def test_a_node_says_that_it_runs_a_revision_once_it_sees_what_that_watches(ports):
    """Whoever waits for it, and publishes then, is heard."""
    world = Opening(ports.domain_events)
    async with running(app_with(), dataclasses.replace(ports, domain_events=world)):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await apply(ports, agent("a", on="other.happened"))
        await eventually(lambda: world.opened == 2)
        await apply(ports, agent("a", id_="another"))
        info = await says(ports, runs(1, "another"))
        assert info.actors["worker"].revision == 1, "it is on the way, and the old one still said"
        world.go.set()
        await says(ports, runs(2))


class Telling:
    """Gates in which what a node says of `worker` waits until it is let go."""

    def __init__(self, gates):
        self._gates, self.held, self.go = gates, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._gates, name)

    async def put(self, key, value, **more):
        if key == node_key("n1") and b"worker" in value:
            self.held.set()
            await self.go.wait()
        return await self._gates.put(key, value, **more)


async def test_nothing_is_dropped_for_want_of_room_that_a_node_has_not_told_of(ports):
    """Room in the whole cluster is what its nodes say that they have."""
    told = Telling(ports.gates)
    async with running(app_with(), dataclasses.replace(ports, gates=told)):
        await apply(ports, agent("a", max_concurrent_cluster=1, overflow="drop"))
        await eventually(told.held.is_set)
        id_ = await happen(ports)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        told.go.set()
        assert (await lived(ports, id_)).end.status is EndStatus.DONE


async def test_who_waits_for_room_leaves_when_they_are_replaced(ports):
    tool = Counter(open_=False)
    async with running(app_with(tool), ports):
        await apply(ports, agent("a", most=1))
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        await happen(ports)
        await eventually(lambda: tool.calls)
        before = _named("consume")
        for action in ("b", "c", "d"):
            await says(ports, runs(await apply(ports, agent(action, most=1))))
        await eventually(lambda: _named("consume") <= before)
        tool.gate.set()


def _named(name: str) -> int:
    """Return how many coroutines of a name run now."""
    gc.collect()  # What earlier tests have left is not of this one.
    found = (each for each in gc.get_objects() if isinstance(each, CoroutineType))
    return sum(each.__qualname__ == name and each.cr_frame is not None for each in found)


async def _happen_until_opened(ports) -> list[str]:
    ids = [await happen(ports, f"x{number}") for number in range(3)]
    for each in ids:
        await lived(ports, each, lambda so_far: so_far.of(EpisodeOpened))
    return ids

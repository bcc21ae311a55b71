"""What is defined comes to the nodes; and what a node cannot run, it says."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from structlog.testing import capture_logs

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.triggers import event
from engine.definitions import loader
from engine.definitions.loader import NEWER, TOO_MANY, TOO_MANY_DISABLED
from streams.errors import Unavailable
from streams.json import raw
from streams.model.definitions import (
    RegisteredDefinition,
    decode_registered,
    definition_key,
    encode_registered,
)
from streams.model.events import EndStatus
from streams.model.workflows import WorkflowStatus
from tests.engine.defining import (
    AGENT,
    WORKER,
    WORKFLOW,
    agent,
    app_with,
    apply,
    disable,
    flow,
    happen,
    revision_of,
    runs,
    says,
)
from tests.engine.stage import HAPPENED, Counter, Scripted, eventually, gates, lived, running
from tests.engine.workflow_stage import begin, ended

KEY = definition_key(AGENT, "worker")


def _said(lines) -> list[str]:
    return [line["event"] for line in lines]


async def test_what_is_defined_when_a_node_starts_is_run_by_the_time_it_is_up(ports):
    await apply(ports, agent("a"))
    tool = Counter()

    def is_up() -> bool:
        return "node up" in [line["event"] for line in lines]

    with capture_logs() as lines:
        async with running(app_with(tool), ports):
            await eventually(is_up)
            assert gates(ports.domain_events), "what is published from now on is seen"
            done = await lived(ports, await happen(ports))
    assert (done.end.status, revision_of(done), tool.calls) == (EndStatus.DONE, 1, ["a"])
    assert [line["actors"] for line in lines if line["event"] == "node up"] == [["worker"]]


async def test_an_actor_of_the_app_goes_before_a_definition_of_its_id(ports):
    coded = Actor("worker")
    coded.expect("thing", Scripted(), on=event(HAPPENED))
    tool = Counter()
    async with running(app_with(tool, coded), ports):
        await apply(ports, agent("a"))
        info = await says(ports, lambda info: info.problems and info.actors)
        done = await lived(ports, await happen(ports))
    assert info.actors["worker"].revision == 0
    assert "declares it in code" in info.problems[WORKER]
    assert (revision_of(done), tool.calls) == (0, [])


async def test_a_workflow_that_is_defined_begins_and_ends(ports):
    tool = Counter()
    async with running(app_with(tool), ports):
        await apply(ports, flow("one", "two"))
        await says(ports, lambda info: "workflow.w" in info.problems)
        await apply(ports, agent("a"))
        info = await says(ports, runs(1, "workflow-w"))
        done = await ended(ports, await begin(ports, "w"))
    assert info.problems == {}
    assert done.status is WorkflowStatus.DONE
    assert (done.begun.spec.revision, tool.calls) == (1, ["a", "a"])


async def test_a_node_without_actors_says_that_it_waits_for_definitions(ports):
    with capture_logs() as lines:
        async with running(App(), ports):
            await says(ports, lambda info: True)
            await eventually(lambda: "no actor yet: waiting for definitions" in _said(lines))


BROKEN = {
    "template": (agent("a", template="missing"), "there is no 'missing'"),
    "crash": (agent("a", template="failing"), "ZeroDivisionError"),
    "option": (agent("a", most=0), "max_concurrent_episodes"),
    "shape": ({"id": "worker"}, "expectations"),
    "id": (agent("a", id_="other"), "it was applied as 'worker', and calls itself 'other'"),
    "stack": (agent("a", stacks=["orders"]), "it is for orders, and this stack is vigil"),
}


@pytest.mark.parametrize("why", BROKEN)
async def test_what_cannot_be_run_is_said_once_and_the_rest_is_run(ports, why):
    broken, problem = BROKEN[why]
    with capture_logs() as lines:
        async with running(app_with(), ports):
            await _put(ports, broken, revision=1, seq=1)
            info = await says(ports, lambda info: info.problems)
            await apply(ports, agent("a", id_="another"))
            info = await says(ports, runs(1, "another"))
    assert problem in info.problems[WORKER]
    assert [line["definition"] for line in lines if "why" in line] == [WORKER]


async def test_what_cannot_be_run_any_more_takes_no_more_work(ports):
    """Else it would mean two things at a time, where other nodes can run it."""
    async with running(app_with(), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await apply(ports, agent("a", template="missing"))
        info = await says(ports, lambda info: info.problems)
        assert "worker" not in info.actors
        await apply(ports, agent("b"))
        info = await says(ports, runs(3))
    assert info.problems == {}


async def test_an_id_that_stands_for_what_begins_a_workflow_is_refused(ports):
    async with running(app_with(), ports):
        await apply(ports, agent("a", id_="workflow-w"))
        info = await says(ports, lambda info: info.problems)
    assert "as the queues of workflows do" in info.problems["agent.workflow-w"]


async def test_a_definition_that_only_a_newer_version_can_read_is_not_run(ports):
    async with running(app_with(), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await ports.registry.put(KEY, b'{"what":"is this?"}')
        info = await says(ports, lambda info: info.problems)
        assert (info.actors, info.problems) == ({}, {WORKER: NEWER})


async def _put(ports, definition, *, revision: int, seq: int) -> None:
    """Have the registry say something that the journal does not."""
    registered = RegisteredDefinition(
        kind=AGENT, id="worker", revision=revision, seq=seq, body=raw(definition)
    )
    await ports.registry.put(KEY, encode_registered(registered))


async def test_what_is_older_than_what_a_node_has_changes_nothing(ports):
    async with running(app_with(), ports):
        for action in ("a", "b"):
            await apply(ports, agent(action))
        await says(ports, runs(2))
        newest = decode_registered((await ports.registry.get(KEY)).value)
        await _put(ports, agent("a"), revision=1, seq=newest.seq - 1)
        await apply(ports, agent("a", id_="another"))
        info = await says(ports, runs(1, "another"))
    assert info.actors["worker"].revision == 2


async def test_what_is_gone_from_the_registry_is_let_go_of_and_may_come_back(ports):
    async with running(app_with(), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        stood = await ports.registry.get(KEY)
        await ports.registry.delete(KEY)
        await says(ports, lambda info: not info.actors)
        await ports.registry.put(KEY, stood.value)
        await says(ports, runs(1))


class Deaf:
    """A registry whose watches are told of nothing that is deleted, and which may be away."""

    def __init__(self, registry):
        self._registry, self.is_away, self.asked = registry, False, 0
        self.get, self.put = registry.get, registry.put

    async def entries(self, *, under=""):
        self.asked += 1
        if self.is_away:
            raise Unavailable(under, detail="away")
        return await self._registry.entries(under=under)

    @asynccontextmanager
    async def watch(self, *, under=""):
        async with self._registry.watch(under=under) as watch:
            yield DeafWatch(watch)


class DeafWatch:
    def __init__(self, watch):
        self._watch = watch

    async def receive(self, *, most, wait_s):
        return [each for each in await self._watch.receive(most=most, wait_s=0.01) if each.value]


async def test_a_deletion_that_nobody_told_is_found_out(ports, monkeypatch):
    monkeypatch.setattr(loader, "LOOK_S", 0.01)
    deaf = dataclasses.replace(ports, registry=Deaf(ports.registry))
    async with running(app_with(), deaf):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await ports.registry.delete(KEY)
        await says(ports, lambda info: not info.actors)


async def test_while_the_registry_is_away_a_node_keeps_what_it_has(ports, monkeypatch):
    monkeypatch.setattr(loader, "LOOK_S", 0.01)
    registry, tool = Deaf(ports.registry), Counter()
    await apply(ports, agent("a"))
    async with running(app_with(tool), dataclasses.replace(ports, registry=registry)):
        await says(ports, runs(1))
        await eventually(lambda: gates(ports.domain_events))
        registry.is_away, registry.asked = True, 0
        await eventually(lambda: registry.asked)
        assert (await lived(ports, await happen(ports))).end.status is EndStatus.DONE
        await apply(ports, agent("b"))
        registry.is_away = False
        await says(ports, runs(2))


async def test_a_node_is_not_up_before_it_knows_what_is_defined(ports):
    registry = Deaf(ports.registry)
    registry.is_away = True
    with capture_logs() as lines:
        async with running(app_with(), dataclasses.replace(ports, registry=registry)):
            await apply(ports, agent("a"))
            await eventually(lambda: registry.asked)
            await says(ports, lambda info: True)
            assert "node up" not in _said(lines)
            registry.is_away = False
            await eventually(lambda: "node up" in _said(lines))
    (up,) = [line for line in lines if line["event"] == "node up"]
    assert up["actors"] == ["worker"]


async def test_a_node_runs_no_more_definitions_than_it_may(ports, monkeypatch):
    monkeypatch.setattr(loader, "DEFINITIONS_MAX", 1)
    async with running(app_with(), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await apply(ports, agent("a", id_="another"))
        info = await says(ports, lambda info: info.problems)
        assert info.problems == {"agent.another": TOO_MANY}
        await apply(ports, agent("b"))
        await says(ports, runs(2))
        await disable(ports, "worker")
        await apply(ports, agent("b", id_="another"))
        assert (await says(ports, runs(2, "another"))).problems == {}


async def test_what_there_was_no_room_for_is_run_as_soon_as_there_is(ports, monkeypatch):
    monkeypatch.setattr(loader, "DEFINITIONS_MAX", 1)
    async with running(app_with(), ports):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        await apply(ports, agent("a", id_="another"))
        await says(ports, lambda info: info.problems)
        await disable(ports, "worker")
        assert (await says(ports, runs(1, "another"))).problems == {}


@pytest.mark.parametrize("when", ["before a node starts", "while it runs"])
async def test_of_too_many_that_are_disabled_those_are_seen_to_that_were_disabled_last(
    ports, monkeypatch, when
):
    monkeypatch.setattr(loader, "DISABLED_MAX", 2)
    async with AsyncExitStack() as stack:
        if when == "while it runs":
            await stack.enter_async_context(running(app_with(), ports))
        for name in "dcba":
            await apply(ports, agent("a", id_=name))
            await disable(ports, name)
        if when == "before a node starts":
            await stack.enter_async_context(running(app_with(), ports))
        info = await says(ports, lambda info: info.closed.keys() == {"a", "b"})
        assert info.problems == dict.fromkeys(("agent.c", "agent.d"), TOO_MANY_DISABLED)
        await ports.registry.delete(definition_key(AGENT, "b"))
        await says(ports, lambda info: info.closed.keys() == {"a", "c"})


async def test_what_is_disabled_takes_no_room_from_what_runs(ports, monkeypatch):
    monkeypatch.setattr(loader, "DEFINITIONS_MAX", 1)
    async with running(app_with(), ports):
        for name in ("v", "w"):
            await apply(ports, flow("one", name=name))
            await disable(ports, name, WORKFLOW)
        await apply(ports, agent("a"))
        assert not (await says(ports, runs(1))).problems


class Moody:
    """A template that fails for as long as a file server is away."""

    def __init__(self):
        self.is_away = True

    def __call__(self, config):
        if self.is_away:
            raise OSError("the file server is away")
        return Scripted()


@pytest.mark.parametrize("when", ["applied again", "looked at again"])
async def test_what_could_not_be_made_is_tried_again(ports, monkeypatch, when):
    monkeypatch.setattr(loader, "LOOK_S", 0.01 if when == "looked at again" else 600.0)
    moody = Moody()
    async with running(app_with(templates={"moody": moody}), ports):
        await apply(ports, agent("a", template="moody"))
        await says(ports, lambda info: info.problems)
        moody.is_away = False
        if when == "applied again":
            await apply(ports, agent("a", template="moody"))
        assert (await says(ports, runs(1))).problems == {}


async def test_a_problem_says_which_revision_it_is_about(ports):
    """So whoever applies another one need not guess whether that is meant, too."""
    async with running(app_with(), ports):
        for action in ("a", "b"):
            revision = await apply(ports, agent(action, template="missing"))
            await says(ports, lambda info: info.problems_at == {WORKER: revision})  # noqa: B023


async def test_what_is_applied_after_the_journal_was_laid_out_anew_is_newer(ports):
    """Its commits have lower sequences from then on, and the registry is as it was."""
    await _put(ports, agent("a"), revision=1, seq=1_000)
    async with running(app_with(), ports):
        await says(ports, runs(1))
        await _put(ports, agent("b"), revision=2, seq=3)
        await says(ports, runs(2))


class Deleted:
    """A registry whose definition is deleted just before a look, and whose answer stands still."""

    def __init__(self, registry):
        self._registry, self.asked, self.go = registry, asyncio.Event(), asyncio.Event()
        self.is_armed = False
        self.put, self.watch, self.delete = registry.put, registry.watch, registry.delete

    async def entries(self, *, under=""):
        if self.is_armed:
            await self._registry.delete(KEY)
        return await self._registry.entries(under=under)

    async def get(self, key):
        found = await self._registry.get(key)
        if self.is_armed and key == KEY:
            self.is_armed = False
            self.asked.set()
            await self.go.wait()
        return found


async def test_what_comes_back_while_a_node_asks_whether_it_is_gone_stays(ports, monkeypatch):
    monkeypatch.setattr(loader, "LOOK_S", 0.01)
    registry = Deleted(ports.registry)
    async with running(app_with(), dataclasses.replace(ports, registry=registry)):
        await apply(ports, agent("a"))
        await says(ports, runs(1))
        registry.is_armed = True
        await eventually(registry.asked.is_set)
        await apply(ports, agent("b"))
        await says(ports, runs(2))
        registry.go.set()
        await apply(ports, agent("a", id_="another"))
        info = await says(ports, runs(1, "another"))
    assert info.actors["worker"].revision == 2


async def test_actors_that_are_for_other_stacks_are_not_here(ports):
    coded = Actor("worker", stacks=["orders"])
    coded.expect("thing", Scripted(), on=event(HAPPENED))
    with capture_logs() as lines:
        async with running(App(actors=[coded]), ports):
            assert not (await says(ports, lambda info: True)).actors
            await eventually(lambda: "not of this stack" in _said(lines))
    (line,) = [line for line in lines if line["event"] == "not of this stack"]
    assert line["actors"] == ("worker",)


@pytest.mark.parametrize("inner", ["missing", "outer"])
async def test_workflows_that_hang_together_are_run_as_far_as_they_can(ports, inner):
    sub = {"name": "outer", "steps": {"sub": {"workflow": inner}}}
    async with running(app_with(), ports):
        await apply(ports, agent("a"))
        await apply(ports, flow("one", name="inner"))
        await apply(ports, sub)
        info = await says(ports, lambda info: info.problems and "workflow-inner" in info.actors)
        assert list(info.problems) == ["workflow.outer"]
        await apply(ports, {**sub, "steps": {"sub": {"workflow": "inner"}}})
        await says(ports, runs(2, "workflow-outer"))
        done = await ended(ports, await begin(ports, "outer"))
    assert done.status is WorkflowStatus.DONE

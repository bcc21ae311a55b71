"""Who runs alone, what becomes of it, and whose crash ends whom."""

from __future__ import annotations

import asyncio

import pytest

from engine.app.actions import observe, tool_call
from engine.execution import suspects
from engine.node.node import Node
from streams.model.events import EndStatus, EpisodeLeft, EpisodeStarted, StepRecorded
from tests.engine.stage import (
    CLOCK,
    Counter,
    Scripted,
    app_of,
    did,
    doomed,
    eventually,
    kept,
    leave,
    life,
    lived,
    ports_in_memory,
    write,
)

SLOW = tool_call("slow", "wait")


def crashed_twice(*between):
    """Return what nodes that crashed have left, besides the first start."""
    return [kept(), *between, EpisodeStarted(node="dead2", attempt=2, claim_revision=2)]


class TaskAlone:
    """A node of its own in this process that runs one episode; it crashes when its task ends."""

    def __init__(self, app, ports, name, actor_id, episode_id):
        self.node, self.crash = name, ""
        self.is_fenced, self.ended = asyncio.Event(), asyncio.Event()
        self.engine = Node(app, ports, name=name, clock=CLOCK, reacts=False)
        self.task = asyncio.create_task(self._run(actor_id, episode_id))
        self.was_killed = False

    async def _run(self, actor_id, episode_id):
        try:
            self.has_got_it = await self.engine.run_alone(actor_id, episode_id, self.is_fenced)
        except asyncio.CancelledError:
            self.crash = "SIGSEGV"
        finally:
            self.ended.set()

    def stop(self):
        self.engine.stop()

    def kill(self):
        self.was_killed = self.was_killed or not self.ended.is_set()
        self.task.cancel()


class Tasks:
    """An `Isolation` of such nodes."""

    def __init__(self, app, ports, *, most=9):
        self.app, self.ports, self.most = app, ports, most
        self.started: list[TaskAlone] = []

    async def start(self, actor_id, episode_id):
        if len(self.started) >= self.most:
            return None
        name = f"n1-alone-{len(self.started) + 1}"
        self.started.append(TaskAlone(self.app, self.ports, name, actor_id, episode_id))
        return self.started[-1]


@pytest.fixture
async def stage():
    """A node with isolation, and what it starts; both end with the test."""
    stages = []

    async def begin(app, ports, *events, **options):
        isolation = Tasks(app, ports, **options)
        episode_id = await leave(ports, app, *events)
        node = Node(app, ports, name="n1", clock=CLOCK, isolation=isolation)
        stages.append((node, asyncio.create_task(node.run()), isolation))
        return episode_id, isolation, node

    yield begin
    for node, task, isolation in stages:
        node.stop()
        await task
        for each in isolation.started:
            each.task.cancel()
            await asyncio.gather(each.task, return_exceptions=True)


async def test_an_episode_that_the_next_crash_would_end_runs_alone(stage):
    ports, app = ports_in_memory(), app_of(Scripted(observe(1), observe(2)))
    episode_id, isolation, _ = await stage(app, ports, *crashed_twice())

    ended = await lived(ports, episode_id)

    assert ended.end.status is EndStatus.DONE
    (last,) = ended.of(EpisodeStarted)[2:]
    assert (last.node, last.alone) == ("n1-alone-1", True)
    await isolation.started[0].ended.wait()
    assert (isolation.started[0].crash, isolation.started[0].has_got_it) == ("", True)


async def test_an_episode_that_crashed_once_runs_beside_others(stage):
    ports, app = ports_in_memory(), app_of(Scripted(observe(1)))
    episode_id, isolation, _ = await stage(app, ports, kept())

    ended = await lived(ports, episode_id)

    assert ended.end.status is EndStatus.DONE
    assert ended.of(EpisodeStarted)[-1].node == "n1"
    assert isolation.started == []


async def test_one_that_has_got_further_since_runs_beside_others(stage):
    ports, app = ports_in_memory(), app_of(Scripted(observe(1), observe(2)))
    further = did(1, observe(1), 1)
    again = EpisodeStarted(node="dead2", attempt=2, claim_revision=2)
    episode_id, isolation, _ = await stage(app, ports, kept(), again, further)

    assert (await lived(ports, episode_id)).end.status is EndStatus.DONE
    assert isolation.started == []


async def test_a_crash_alone_ends_it_and_nothing_else_is_tried(stage):
    ports, tool = ports_in_memory(), Counter(open_=False)
    app = app_of(Scripted(SLOW), tools={"slow": tool})
    episode_id, isolation, _ = await stage(app, ports, *crashed_twice())
    await tool.called.wait()
    isolation.started[0].task.cancel()

    ended = await lived(ports, episode_id)

    assert (ended.end.status, ended.end.error_class) == (EndStatus.FAILED, "attempts_exhausted")
    assert [one.alone for one in ended.of(EpisodeStarted)] == [False, False, True, False]
    assert (len(isolation.started), len(tool.calls)) == (1, 1)


async def test_crashes_in_company_end_nobody_however_many_there_were(stage):
    ports, app = ports_in_memory(), app_of(Scripted(observe(1)))
    third = EpisodeStarted(node="dead3", attempt=3, claim_revision=3)
    episode_id, isolation, _ = await stage(app, ports, *crashed_twice(), third)

    assert (await lived(ports, episode_id)).end.status is EndStatus.DONE
    assert len(isolation.started) == 1


async def test_one_that_may_crash_only_once_ends_with_a_crash_in_company(stage):
    ports, app = ports_in_memory(), app_of(Scripted(observe(1)), attempts_max=1)
    episode_id, isolation, _ = await stage(app, ports, kept())

    assert (await lived(ports, episode_id)).end.error_class == "attempts_exhausted"
    assert isolation.started == []


async def test_without_room_for_it_a_suspect_waits_for_another_node(stage):
    ports, app = ports_in_memory(), app_of(Scripted(observe(1)))
    episode_id, isolation, _ = await stage(app, ports, *crashed_twice(), most=0)
    isolation.most = 1

    assert (await lived(ports, episode_id)).of(EpisodeStarted)[-1].alone
    assert len(isolation.started) == 1


async def test_a_suspect_is_handed_over_when_its_node_stops(stage):
    ports, tool = ports_in_memory(), Counter(open_=False)
    app = app_of(Scripted(SLOW, observe(2)), tools={"slow": tool})
    episode_id, isolation, node = await stage(app, ports, *crashed_twice())
    await tool.called.wait()
    node.stop()
    await eventually(isolation.started[0].engine._stopping.is_set)
    tool.gate.set()

    left = await lived(ports, episode_id, lambda so_far: so_far.of(EpisodeLeft))
    await isolation.started[0].ended.wait()

    assert left.of(EpisodeLeft)[0].node == "n1-alone-1"
    assert len(left.of(StepRecorded)) == 1
    assert not isolation.started[0].was_killed


async def test_a_process_that_goes_on_though_others_have_its_episode_is_killed(stage, monkeypatch):
    """It blocks its event loop, so it does not notice that its lease has lapsed."""
    monkeypatch.setattr(suspects, "TIDY_S", 0.01)
    ports, tool = ports_in_memory(), Counter(open_=False)
    app = app_of(Scripted(SLOW), tools={"slow": tool})
    episode_id, isolation, _ = await stage(app, ports, *crashed_twice())
    await tool.called.wait()
    alone = isolation.started[0]
    monkeypatch.setattr(alone, "kill", lambda: setattr(alone, "was_killed", True))
    so_far = await life(ports, episode_id)
    await write_start(ports, episode_id, attempt=len(so_far.of(EpisodeStarted)) + 1)

    await eventually(lambda: alone.was_killed)


async def write_start(ports, episode_id, *, attempt):
    """Have another node take an episode over."""
    await write(ports, episode_id, EpisodeStarted(node="other", attempt=attempt, claim_revision=99))


async def test_a_node_without_isolation_runs_suspects_as_all_others():
    ports, tool = ports_in_memory(), Counter(open_=False)
    app = app_of(Scripted(SLOW), tools={"slow": tool})
    episode_id = await leave(ports, app, *crashed_twice())
    async with doomed(app, ports, "n1"):
        await tool.called.wait()
    async with doomed(app, ports, "n2"):
        ended = await lived(ports, episode_id)
    assert ended.end.error_class == "attempts_exhausted"

"""The tool that begins instances, called as an episode does, also again after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
import pytest

from engine.app.actor import Actor
from engine.app.tools import ToolFailed
from engine.app.workflow import Workflow
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.episodes.overlap.places import Places
from engine.runtime.catalog import Catalog, CatalogContents
from engine.workflows.begin import StartTool
from engine.workflows.instance import HeldSubject
from engine.workflows.subjects import UNBEGUN_PLACE_S, Subjects
from streams.errors import Unavailable
from streams.keys import workflow_subject_key
from streams.memory import MemoryPorts, memory_ports
from streams.memory.bucket import MemoryBucket
from streams.model.events import EpisodeOpened, WorkflowFinished, WorkflowStarted
from streams.model.triggers import Budget, ManualTrigger, Mode
from streams.model.workflows import WorkflowStatus
from streams.ports.bucket import BucketEntry
from streams.ports.log import Commit
from tests.engine.defining import agent, app_with, apply, flow
from tests.engine.stage import CLOCK, Later
from tests.engine.workflow_stage import Script, app_of, history

KEY = workflow_subject_key("w", "7")


def cause(number: int = 1, *, mode: Mode = Mode.LIVE, client: int = 7) -> EpisodeOpened:
    return EpisodeOpened(
        episode_id=f"e{number}",
        actor_id="workflow-w",
        expectation_id="start",
        trigger=ManualTrigger(requested_by="ada", payload={"client": client}),
        dedupe_key=f"manual:{number}",
        budget=Budget(),
        mode=mode,
    )


@pytest.fixture
def starter(ports) -> StartTool:
    made = Workflow("w", subject_key="client", overlap="skip")
    made.step("a", "act", "a")
    app = app_of(made, script=Script())
    return StartTool(Catalog(in_code(app)), RevisionResolver(ports, app), ports, CLOCK)


HELD = HeldSubject(workflow="w", subject="7")


async def holder(ports) -> str:
    """Return which instance holds the subject; empty: none."""
    entry = await ports.gates.get(KEY)
    return msgspec.json.decode(entry.value, type=Places).holder if entry else ""


async def free(ports) -> None:
    await Subjects(ports).see_to_end(HELD)


async def begin(starter: StartTool, opened: EpisodeOpened) -> tuple[str, bool]:
    begun = await starter.serve(opened, "start", {"workflow": "w"})
    return begun["instance_id"], begun["is_skipped"]


async def end(ports, instance_id: str) -> None:
    subject = ports.stack.workflow(instance_id)
    newest = await ports.log.last(subject)
    finished = WorkflowFinished(status=WorkflowStatus.DONE)
    commit = Commit(id=f"end.{instance_id}", at=CLOCK.now(), events=(finished,))
    await ports.log.append(subject, commit, after=newest.seq)


class Belated:
    """Gates of somebody who is held up once, after having read a key, while others go on."""

    def __init__(self, gates: MemoryBucket, others: Callable[[], Awaitable[object]]) -> None:
        self._gates, self._others = gates, [others]

    async def get(self, key: str) -> BucketEntry | None:
        entry = await self._gates.get(key)
        if self._others:
            await self._others.pop()()
        return entry

    def __getattr__(self, name: str) -> object:
        return getattr(self._gates, name)


def belated(ports: MemoryPorts, others: Callable[[], Awaitable[object]]) -> MemoryPorts:
    return replace(ports, gates=Belated(ports.gates, others))


async def test_a_cause_that_comes_again_after_a_crash_begins_nothing_else(ports, starter):
    first, again = [await begin(starter, cause()) for _ in range(2)]
    assert first == again
    (started,) = await history(ports, first[0])
    assert isinstance(started, WorkflowStarted)


async def test_another_cause_is_skipped_and_says_which_instance_is_busy(starter):
    busy, _ = await begin(starter, cause(1))
    assert await begin(starter, cause(2)) == (busy, True)
    assert not (await begin(starter, cause(3, client=8)))[1]


async def test_who_comes_again_when_its_instance_is_over_does_not_lock_the_subject(ports, starter):
    id_, _ = await begin(starter, cause(1))
    await end(ports, id_)
    await free(ports)
    assert await begin(starter, cause(1)) == (id_, False)
    assert await ports.gates.get(KEY) is None


async def test_a_dry_run_neither_waits_for_the_subject_nor_locks_it(ports, starter):
    assert not (await begin(starter, cause(1, mode=Mode.DRY_RUN)))[1]
    assert await ports.gates.get(KEY) is None
    assert not (await begin(starter, cause(2)))[1]
    assert not (await begin(starter, cause(3, mode=Mode.DRY_RUN)))[1]


async def test_a_subject_whose_instance_is_over_is_taken(ports, starter):
    first, _ = await begin(starter, cause(1))
    await end(ports, first)
    second, is_skipped = await begin(starter, cause(2))
    assert (is_skipped, await holder(ports)) == (False, second)


async def test_a_cause_that_comes_again_names_its_own_instance_though_another_is_busy_now(
    ports, starter
):
    first, _ = await begin(starter, cause(1))
    await end(ports, first)
    second, _ = await begin(starter, cause(2))
    assert await begin(starter, cause(1)) == (first, False)
    assert await holder(ports) == second


async def test_an_end_that_is_seen_to_again_leaves_the_subject_to_another_instance(ports, starter):
    first, _ = await begin(starter, cause(1))
    await end(ports, first)
    second, _ = await begin(starter, cause(2))
    await free(ports)
    assert await holder(ports) == second


async def test_a_key_that_another_instance_takes_meanwhile_is_left_to_it(ports, starter):
    first, _ = await begin(starter, cause(1))
    await end(ports, first)
    late = belated(ports, lambda: begin(starter, cause(2)))
    await free(late)
    assert await holder(ports) not in ("", first)


async def test_an_instance_that_has_begun_has_its_subject_however_long_nobody_conducts_it(starter):
    """Its starter died right after it had begun it."""
    clock = Later()
    ports = memory_ports(clock=clock)
    first, _ = await begin(replace(starter, ports=ports), cause(1))
    clock.ahead_s = 100 * UNBEGUN_PLACE_S
    assert await begin(replace(starter, ports=ports), cause(2)) == (first, True)


async def test_an_instance_that_has_not_begun_has_its_subject_for_three_minutes(starter):
    clock = Later()
    ports = memory_ports(clock=clock)
    dead = replace(starter, ports=replace(ports, commands=Gone()))
    with pytest.raises(ToolFailed, match="tool_unavailable"):
        await begin(dead, cause(1))
    busy = await holder(ports)
    living = replace(starter, ports=ports)
    clock.ahead_s = UNBEGUN_PLACE_S - 1
    assert await begin(living, cause(2)) == (busy, True)
    clock.ahead_s = UNBEGUN_PLACE_S + 1
    assert not (await begin(living, cause(2)))[1]


class Gone:
    """A queue of commands of a node that is cut off."""

    async def send(self, *_: object, **__: object) -> None:
        raise Unavailable("commands", detail="cut off")


async def test_who_finds_a_key_that_was_put_just_now_knows_that_its_instance_may_begin(
    ports, starter
):
    """The key of the subject is put last."""
    seen = []

    class Found(Belated):
        async def get(self, key: str) -> BucketEntry | None:
            return await self._gates.get(key)

        async def put(self, key: str, value: bytes, **how: int) -> int:
            revision = await self._gates.put(key, value, **how)
            seen.append(await begin(starter, cause(2)) if key == KEY else None)
            return revision

    found = replace(ports, gates=Found(ports.gates, begin))
    first, _ = await begin(replace(starter, ports=found), cause(1))
    assert seen[-1] == (first, True)


async def test_who_takes_a_subject_for_what_is_over_meanwhile_does_not_keep_it(starter):
    ports = memory_ports(clock=CLOCK)

    async def live() -> None:
        id_, _ = await begin(replace(starter, ports=ports), cause(1))
        await end(ports, id_)
        await free(ports)

    await begin(replace(starter, ports=belated(ports, live)), cause(1))
    assert await ports.gates.get(KEY) is None


async def test_a_workflow_that_has_gone_from_this_node_is_for_another_try(starter):
    with pytest.raises(ToolFailed, match="tool_unavailable"):
        await starter.serve(cause(), "start", {"workflow": "other"})


@pytest.mark.parametrize("begun_by", [1, 2])
async def test_a_cause_begins_the_workflow_as_it_was_when_it_came_if_that_can_still_begin(
    ports, begun_by
):
    await apply(ports, flow("old", expectation="thing" if begun_by == 1 else "gone"))
    await apply(ports, flow("new"))
    app = app_with()
    revisions = RevisionResolver(ports, app)
    worker = await _actor(ports, revisions)
    now = await revisions.workflow("w", 2)
    contents = CatalogContents(actors={"worker": worker}, workflows={"w": now})
    opened = msgspec.structs.replace(cause(), revision=1)
    id_, _ = await begin(StartTool(Catalog(contents), revisions, ports, CLOCK), opened)
    (started,) = await history(ports, id_)
    assert started.spec.revision == begun_by


async def _actor(ports, revisions) -> Actor:
    await apply(ports, agent("a"))
    return await revisions.actor("worker", 1)


async def test_what_is_no_call_to_begin_a_workflow_is_no_try_again(starter):
    with pytest.raises(ToolFailed, match="workflow_not_started"):
        await starter.serve(cause(), "stop", {"workflow": "w"})

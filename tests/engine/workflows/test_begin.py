"""A cause starts its instance, or is recorded as one that starts none, also again after a crash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
import pytest

from engine.app.workflow import Workflow
from engine.definitions.make import in_code
from engine.episodes.overlap.places import Places
from engine.runtime.catalog import Catalog
from engine.workflows.begin import InstanceStarter, StartOutcome
from engine.workflows.instance import HeldSubject
from engine.workflows.start import STARTED_BYTES_MAX, InstanceStart, start_of
from engine.workflows.subjects import UNBEGUN_PLACE_S, Subjects
from streams.errors import TooLarge, Unavailable
from streams.json import raw
from streams.keys import workflow_subject_key
from streams.memory import MemoryPorts, memory_ports
from streams.memory.bucket import MemoryBucket
from streams.model.events import WorkflowFinished, WorkflowStarted
from streams.model.triggers import ManualTrigger, Mode, Overrides
from streams.model.workflows import WorkflowStatus
from streams.ports.bucket import BucketEntry
from streams.ports.log import Commit
from tests.engine.stage import CLOCK, Later
from tests.engine.workflow_stage import Script, app_of, history, instance

KEY = workflow_subject_key("w", "7")


def cause(number: int = 1, *, mode: Mode = Mode.LIVE, client: object = 7) -> InstanceStart:
    trigger = ManualTrigger(requested_by="ada", payload={"client": client})
    made = start_of("w", trigger, f"manual:{number}", stack="vigil")
    return msgspec.structs.replace(made, mode=mode)


@pytest.fixture
def starter(ports) -> InstanceStarter:
    made = Workflow("w", subject_key="client", overlap="skip")
    made.step("a", "act", "a")
    return InstanceStarter(Catalog(in_code(app_of(made, script=Script()))), ports, CLOCK)


HELD = HeldSubject(workflow="w", subject="7")


async def holder(ports) -> str:
    """Return which instance holds the subject; empty: none."""
    entry = await ports.gates.get(KEY)
    return msgspec.json.decode(entry.value, type=Places).holder if entry else ""


async def free(ports) -> None:
    await Subjects(ports).see_to_end(HELD)


async def begin(starter: InstanceStarter, start: InstanceStart) -> tuple[str, bool]:
    """Return the id of the cause's instance, or of the one for whose sake it is skipped."""
    await starter.start(start)
    begun = await instance(starter.ports, start.instance_id)
    busy = begun.busy_instance_id
    return busy or start.instance_id, bool(busy)


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


async def test_another_cause_is_skipped_and_says_which_instance_is_busy(ports, starter):
    busy, _ = await begin(starter, cause(1))
    assert await begin(starter, cause(2)) == (busy, True)
    never = await instance(ports, cause(2).instance_id)
    assert (never.status, never.steps) == (WorkflowStatus.CANCELED, {})
    assert never.why_not_started == f"instance {busy} was not over"
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


async def test_a_cause_that_was_skipped_stays_so_when_it_comes_again(ports, starter):
    first, _ = await begin(starter, cause(1))
    assert await begin(starter, cause(2)) == (first, True)
    await end(ports, first)
    assert await starter.start(cause(2)) is StartOutcome.REPEATED
    assert (await instance(ports, cause(2).instance_id)).busy_instance_id == first
    assert not (await begin(starter, cause(3)))[1]


async def test_a_cause_that_can_start_none_is_an_instance_that_has_failed_at_once(ports, starter):
    strays = msgspec.structs.replace(
        cause(1, mode=Mode.DRY_RUN), step_overrides={"nope": Overrides()}
    )
    large = cause(2, client="x" * STARTED_BYTES_MAX)
    for start, why in ((strays, "there is no step 'nope'"), (large, "the limit is 786,432")):
        assert await starter.start(start) is StartOutcome.REFUSED
        never = await instance(ports, start.instance_id)
        assert never.status is WorkflowStatus.FAILED
        assert never.why_not_started.startswith("workflow_not_started: ")
        assert why in never.why_not_started
        assert await starter.start(start) is StartOutcome.REPEATED


class Narrow:
    """A log that takes no instance with steps, or none at all."""

    def __init__(self, ports: MemoryPorts, *, takes_refusals: bool) -> None:
        self._log, self._takes_refusals = ports.log, takes_refusals

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, subject: str, commit: Commit, *, after: int) -> int:
        if commit.events[0].spec.steps or not self._takes_refusals:
            raise TooLarge(subject, size_bytes=2, limit_bytes=1)
        return await self._log.append(subject, commit, after=after)


async def test_an_instance_that_does_not_fit_has_failed_and_gives_its_place_back(ports, starter):
    narrow = replace(starter, ports=replace(ports, log=Narrow(ports, takes_refusals=True)))
    assert await narrow.start(cause(1)) is StartOutcome.REFUSED
    assert not (await begin(starter, cause(2)))[1]


async def test_a_cause_of_which_nothing_can_be_stored_gives_its_place_back(ports, starter):
    narrow = replace(starter, ports=replace(ports, log=Narrow(ports, takes_refusals=False)))
    with pytest.raises(TooLarge):
        await narrow.start(cause(1))
    assert not (await begin(starter, cause(2)))[1]


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
    with pytest.raises(Unavailable):
        await begin(dead, cause(1))
    busy = await holder(ports)
    living = replace(starter, ports=ports)
    clock.ahead_s = UNBEGUN_PLACE_S - 1
    assert await begin(living, cause(2)) == (busy, True)
    clock.ahead_s = UNBEGUN_PLACE_S + 1
    assert not (await begin(living, cause(3)))[1]


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


async def test_a_cause_of_a_workflow_that_has_gone_from_this_node_is_left_to_others(starter):
    with pytest.raises(Unavailable, match="starts nothing here now"):
        await starter.start(msgspec.structs.replace(cause(), workflow="other"))


async def test_a_dry_run_keeps_what_was_asked_for_in_the_place_of_the_outside(ports, starter):
    own = Overrides(synthesis=raw("ill"))
    asked = {"overrides": Overrides(), "step_overrides": {"a": own}}
    start = msgspec.structs.replace(cause(mode=Mode.DRY_RUN), **asked)
    assert await starter.start(start) is StartOutcome.STARTED
    (begun,) = await history(ports, start.instance_id)
    assert (begun.overrides, begun.step_overrides) == (Overrides(), {"a": own})

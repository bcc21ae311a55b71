"""What has begun goes on, whoever dies while they begin it: the call for it goes first, and waits.

Nobody need come back to what was to begin the instance, nor look for what is left over.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final

import msgspec
import pytest
from structlog.testing import capture_logs

from engine.app.actor import ATTEMPTS_MAX
from engine.app.workflow import Workflow
from engine.app.workflow_plan import spec_of
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.episodes.overlap.places import Places
from engine.runtime.catalog import CannotRun, Catalog
from engine.workflows import worker
from engine.workflows.begin import InstanceStarter, StartOutcome, begin_instance
from engine.workflows.effector import Effector
from engine.workflows.start import InstanceStart, start_of, started
from engine.workflows.store import InstanceStore
from engine.workflows.subjects import UNBEGUN_PLACE_S
from engine.workflows.worker import InstanceHandler, WorkflowWorker
from streams.clock import SystemClock
from streams.errors import Unavailable
from streams.keys import workflow_subject_key
from streams.layout import Kind, Stream
from streams.memory import MemoryPorts, memory_ports
from streams.model.commands import Advance, CancelWorkflow
from streams.model.events import DeadLettered, WorkflowStarted
from streams.model.triggers import ManualTrigger
from streams.model.workflows import WorkflowStatus
from streams.ports.log import START as NOTHING
from streams.ports.log import Commit
from tests.engine.stage import CLOCK, Later, eventually, ports_in_memory, running
from tests.engine.workflow_stage import Script, app_of, ended, history
from tests.simulation.time import SimClock, simulate

NEVER: Final = -1

ARRIVES_S: Final = 60.0 + 102.0
"""How long what a node has sent may take: it tries for the first, and its kernel for the rest."""

TRIGGER: Final = ManualTrigger(requested_by="ada", payload={"client": 7})

CAUSE, ANOTHER = (start_of("w", TRIGGER, f"manual:{n}", stack="vigil") for n in (1, 2))


class Died(Exception):
    """The process is gone: nothing that it was about to do is done."""


class Fate:
    """When a process dies: before one of its requests, or between that and the answer."""

    def __init__(self, fatal: int = NEVER) -> None:
        self.fatal, self.moments = fatal, 0

    def pass_by(self) -> None:
        if self.moments == self.fatal:
            raise Died
        self.moments += 1


class Mortal:
    """A port of whoever has a fate."""

    def __init__(self, port: object, fate: Fate) -> None:
        self._port, self._fate = port, fate

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def asked(*args: object, **options: object) -> object:
            self._fate.pass_by()
            answer = await getattr(self._port, name)(*args, **options)
            self._fate.pass_by()
            return answer

        return asked


def flow() -> Workflow:
    made = Workflow("w", subject_key="client", overlap="skip")
    made.step("a", "act", "a")
    return made


async def begin(ports: MemoryPorts, cause: InstanceStart = CAUSE) -> StartOutcome:
    """Begin an instance, and return what comes of it."""
    app = app_of(flow(), script=Script())
    return await InstanceStarter(Catalog(in_code(app)), ports, CLOCK).start(cause)


async def begin_and_die(ports: MemoryPorts, fate: Fate) -> None:
    """Try to begin an instance, on a node of a certain fate."""
    mortal = dataclasses.replace(
        ports,
        log=Mortal(ports.log, fate),
        commands=Mortal(ports.commands, fate),
        gates=Mortal(ports.gates, fate),
    )
    await begin(mortal)


def first_event() -> WorkflowStarted:
    app = app_of(flow(), script=Script())
    return started(spec_of(app.workflows["w"], app.actors), CAUSE)


ID: Final = first_event().instance_id
KEY: Final = workflow_subject_key("w", "7")
CALL: Final = Advance(workflow="w", instance_id=ID)


async def test_what_has_begun_goes_on_at_whatever_moment_every_attempt_to_begin_it_dies():
    undisturbed = Fate()
    await begin_and_die(ports_in_memory(), undisturbed)
    begun = [await _has_begun_and_gone_on(fatal) for fatal in range(undisturbed.moments)]
    assert {True, False} == {*begun}, "some die before they have begun anything, some after"


async def _has_begun_and_gone_on(fatal: int) -> bool:
    ports = ports_in_memory()
    await _die_in_every_attempt(ports, fatal)
    if not await history(ports, ID):
        return False
    async with running(app_of(flow(), script=Script()), ports):
        assert (await ended(ports, ID)).status is WorkflowStatus.DONE
    return True


async def _die_in_every_attempt(ports: MemoryPorts, fatal: int) -> None:
    for _ in range(ATTEMPTS_MAX):
        with suppress(Died):  # What was done before may make the way shorter.
            await begin_and_die(ports, Fate(fatal))


async def test_what_goes_on_keeps_its_subject_at_whatever_moment_its_starter_dies():
    undisturbed = Fate()
    await begin_and_die(ports_in_memory(), undisturbed)
    begun = [await _has_begun_and_kept_its_subject(fatal) for fatal in range(undisturbed.moments)]
    assert {True, False} == {*begun}, "some die before they have begun anything, some after"


async def _has_begun_and_kept_its_subject(fatal: int) -> bool:
    clock = Later()
    ports = memory_ports(clock=clock)
    await _die_in_every_attempt(ports, fatal)
    if not await history(ports, ID):
        return False
    await desk_of(ports)[0].put(ID, [CALL])
    clock.ahead_s = UNBEGUN_PLACE_S + 1
    assert await begin(ports, ANOTHER) is StartOutcome.SKIPPED
    return True


async def test_what_nobody_goes_on_with_for_long_keeps_its_subject():
    clock = Later()
    ports = memory_ports(clock=clock)
    await begin(ports)
    clock.ahead_s = UNBEGUN_PLACE_S + 1
    assert await begin(ports, ANOTHER) is StartOutcome.SKIPPED


@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "taken"])
async def test_who_follows_a_beginning_when_all_is_over_leaves_the_subject_as_it_is(
    ports, is_taken
):
    await begin(ports)
    handler, _ = desk_of(ports)
    stored = await handler.store.read(ID)
    await desk_of(ports)[0].put(ID, [CancelWorkflow(workflow="w", instance_id=ID, by="ada")])
    assert await ports.gates.get(KEY) is None, "it is over before a step has begun"
    if is_taken:
        assert await begin(ports, ANOTHER) is StartOutcome.STARTED
    await handler.effector.follow(stored)
    entry = await ports.gates.get(KEY)
    holder = entry and msgspec.json.decode(entry.value, type=Places).holder
    assert holder == (ANOTHER.instance_id if is_taken else None)


class Counting:
    """Counts how often a call comes before its instance."""

    def __init__(self) -> None:
        self.calls = 0

    def around(self, wait):
        async def counted(conductor_, command, delivery):
            self.calls += 1
            await wait(conductor_, command, delivery)

        return counted


@pytest.fixture
def early(monkeypatch) -> Counting:
    monkeypatch.setattr(worker, "EARLY_MAX_S", 0.01)
    monkeypatch.setattr(worker, "EARLY_LOOKS", 0)
    counting = Counting()
    waits = counting.around(WorkflowWorker._await_beginning)
    monkeypatch.setattr(WorkflowWorker, "_await_beginning", waits)
    return counting


def is_waiting(ports) -> int:
    return ports.commands._durables["workflow-w", 0].backlog


@pytest.mark.parametrize(
    ("deliveries", "age_s"), [(1, worker.UNBEGUN_S), (1_000_000, 0.0)], ids=["young", "few"]
)
async def test_a_call_waits_for_a_beginning_that_takes_long_and_nobody_is_told(
    ports, early, monkeypatch, deliveries, age_s
):
    monkeypatch.setattr(worker, "UNBEGUN_DELIVERIES", deliveries)
    monkeypatch.setattr(worker, "UNBEGUN_S", age_s)
    with capture_logs() as said:
        async with running(app_of(flow(), script=Script()), ports):
            await ports.commands.send(CALL, id=f"begin.{ID}")
            await eventually(lambda: early.calls > 3)
            assert is_waiting(ports)
            await begin_instance(ports, first_event(), at=CLOCK.now())
            assert (await ended(ports, ID)).status is WorkflowStatus.DONE
    assert [each for each in said if each["log_level"] == "warning"] == []


async def test_a_call_goes_without_a_dead_letter_if_nothing_has_begun_for_long(
    ports, early, monkeypatch
):
    monkeypatch.setattr(worker, "UNBEGUN_DELIVERIES", 3)
    monkeypatch.setattr(worker, "UNBEGUN_S", 0.0)
    async with running(app_of(flow(), script=Script()), ports):
        await ports.commands.send(CALL, id=f"begin.{ID}")
        await eventually(lambda: early.calls == 3 and not is_waiting(ports))
    assert await letters(ports) == []


class Unaware:
    """A log whose replica does not show an instance until its leader was asked for that."""

    def __init__(self, log, stack) -> None:
        self._log, self._stack, self._is_aware = log, stack, False

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, **how):
        is_hidden = self._is_instance(subject) and not self._is_aware
        return [] if is_hidden else await self._log.read(subject, **how)

    async def last(self, subject):
        self._is_aware |= self._is_instance(subject)
        return await self._log.last(subject)

    def _is_instance(self, subject) -> bool:
        return self._stack.aggregate_of(subject)[0] is Kind.WORKFLOW


async def test_no_call_goes_on_the_word_of_a_replica(ports, early, monkeypatch):
    monkeypatch.setattr(worker, "UNBEGUN_DELIVERIES", 0)
    monkeypatch.setattr(worker, "UNBEGUN_S", 0.0)
    await begin_instance(ports, first_event(), at=CLOCK.now())
    lagging = dataclasses.replace(ports, log=Unaware(ports.log, ports.stack))
    async with running(app_of(flow(), script=Script()), lagging):
        assert (await ended(ports, ID)).status is WorkflowStatus.DONE
    assert early.calls == 1


class AwayOnce:
    """A log that is away when it is first asked for the newest commit of an instance."""

    def __init__(self, log, subject) -> None:
        self._log, self._subject = log, subject

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def last(self, subject):
        if subject != self._subject:
            return await self._log.last(subject)
        self._subject = ""
        raise Unavailable(subject, detail="away")


async def test_no_call_goes_while_nobody_can_say_whether_its_instance_has_begun(
    ports, early, monkeypatch
):
    monkeypatch.setattr(worker, "UNBEGUN_DELIVERIES", 0)
    monkeypatch.setattr(worker, "UNBEGUN_S", 0.0)
    away = dataclasses.replace(ports, log=AwayOnce(ports.log, ports.stack.workflow(ID)))
    with capture_logs() as said:
        async with running(app_of(flow(), script=Script()), away):
            await ports.commands.send(CALL, id=f"begin.{ID}")
            await eventually(lambda: early.calls == 2 and not is_waiting(ports))
    (warning,) = [each for each in said if each["log_level"] in ("warning", "error")]
    assert warning["event"] == "commands handed back: the log is away"


@pytest.mark.parametrize("after_s", [0.0, 119.0])
def test_what_begins_as_late_as_it_can_after_the_last_call_for_it_goes_on(after_s):
    """That was the first one: so soon after it, the second is no message of its own."""

    async def story() -> int:
        ports = memory_ports(clock=SimClock())
        async with running(app_of(flow(), script=Script()), ports, clock=SimClock()):
            await ports.commands.send(CALL, id=f"begin.{ID}")
            await asyncio.sleep(after_s)
            await ports.commands.send(CALL, id=f"begin.{ID}")
            await asyncio.sleep(ARRIVES_S)
            commit = Commit(id=f"begin.{ID}", at=SimClock().now(), events=(first_event(),))
            await ports.log.append(ports.stack.workflow(ID), commit, after=NOTHING)
            await asyncio.sleep(60.0)
            return len(await history(ports, ID))

    assert simulate(story()) > 1


async def test_anything_else_that_is_said_to_what_never_began_is_a_dead_letter(ports, monkeypatch):
    monkeypatch.setattr(worker, "HOPELESS_DELIVERIES", 1)
    monkeypatch.setattr(worker, "HOPELESS_S", 0.0)
    cancel = CancelWorkflow(workflow="w", instance_id=ID, by="ada")
    async with running(app_of(flow(), script=Script()), ports):
        await ports.commands.send(cancel, id="c1")
        await eventually(lambda: ("workflow-w", 0) in ports.commands._durables)
        await eventually(lambda: not is_waiting(ports))
    (letter,) = await letters(ports)
    assert letter.reason == "no_such_instance"


async def letters(ports) -> list[DeadLettered]:
    async with ports.log.follow(Stream.DEAD) as follower:
        records = await follower.receive(most=100, wait_s=0)
    return [event for record in records for event in record.commit.events]


class Passing(SystemClock):
    """A clock by which an instance begins while somebody waits a little."""

    def __init__(self, ports: MemoryPorts) -> None:
        self._ports, self.slept = ports, 0

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        if self.slept == worker.EARLY_LOOKS:
            await begin_instance(self._ports, first_event(), at=self.now())


def desk_of(ports: MemoryPorts) -> tuple[InstanceHandler, Passing]:
    app, clock = app_of(flow(), script=Script()), Passing(ports)
    catalog, store = (
        Catalog(in_code(app)),
        InstanceStore(ports, (f"pen{number}" for number in count())),
    )
    effector = Effector(catalog, ports, clock, "n1")
    return InstanceHandler(
        "w", catalog, RevisionResolver(ports, app), clock, store, effector
    ), clock


async def test_what_begins_a_moment_after_the_call_for_it_goes_on_at_once(ports):
    handler, clock = desk_of(ports)
    assert await handler.put(ID, [CALL]) == {}
    assert clock.slept == worker.EARLY_LOOKS
    assert len(await history(ports, ID)) > 1


async def test_nobody_waits_a_moment_for_what_nobody_calls_for(ports):
    handler, clock = desk_of(ports)
    with pytest.raises(CannotRun):
        await handler.put(ID, [CancelWorkflow(workflow="w", instance_id=ID, by="ada")])
    assert clock.slept == 0

"""What a node does with commands that it was about to put to instances when it may not any more."""

from __future__ import annotations

import asyncio
import dataclasses
from itertools import count

import pytest

from engine.dead_letters.write import DeadLetterWriter
from engine.definitions.make import in_code
from engine.definitions.resolver import RevisionResolver
from engine.runtime.catalog import Catalog
from engine.runtime.permits import Permit
from engine.runtime.tasks import NodeTasks
from engine.workflows import worker
from engine.workflows.effector import Effector
from engine.workflows.store import InstanceStore
from engine.workflows.worker import InstanceHandler, WorkflowWorker
from streams.model.commands import Advance
from tests.engine.defining import app_with
from tests.engine.stage import CLOCK, WAIT_S


class Holding:
    """A log in which whoever reads waits until they are let go."""

    def __init__(self, log):
        self._log, self.asked, self.go = log, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def read(self, subject, *, after=0):
        self.asked.set()
        await self.go.wait()
        return await self._log.read(subject, after=after)


class Late:
    """A queue that hands something out at the moment when the permit is withdrawn."""

    def __init__(self, inbox, permit: Permit):
        self._commands, self._permit, self.pending = inbox, permit, 0

    async def open_workflow(self, workflow):
        self._source = await self._commands.open_workflow(workflow)
        return self

    async def receive(self, *, room, wait_s):
        received = await self._source.receive(room=room, wait_s=wait_s)
        self._permit.turn(on=False)
        return received

    async def close(self):
        await self._source.close()


async def _contained(work):
    await work


@pytest.fixture
def log(ports) -> Holding:
    return Holding(ports.log)


@pytest.fixture
def permit() -> Permit:
    permit = Permit()
    permit.turn(on=True)
    return permit


@pytest.fixture
def conductor(ports, log, permit, monkeypatch) -> WorkflowWorker:
    """Who follows no command, for there is no such instance, and waits an hour each time."""
    monkeypatch.setattr(worker, "BUSY_S", 3_600.0)
    monkeypatch.setattr(worker, "EARLY_MAX_S", 3_600.0)
    ports, app = dataclasses.replace(ports, log=log), app_with()
    catalog = Catalog(in_code(app))
    store = InstanceStore(ports, (f"pen{number}" for number in count()))
    effector = Effector(catalog, ports, CLOCK, "n1")
    handler = InstanceHandler("w", catalog, RevisionResolver(ports, app), CLOCK, store, effector)
    return WorkflowWorker(
        ports, handler, permit, DeadLetterWriter(ports, CLOCK), NodeTasks(_contained)
    )


async def test_a_command_that_could_not_be_followed_is_for_others_at_once(
    ports, log, permit, conductor
):
    serving = asyncio.create_task(conductor.serve())
    await ports.commands.send(Advance(workflow="w", instance_id="i"), id="a")
    async with asyncio.timeout(WAIT_S):
        await log.asked.wait()
        permit.turn(on=False)
        await serving
        log.go.set()
        await conductor.tasks.finish()
    others = await ports.commands.open_workflow("w")
    (again,) = await others.receive(room=1, wait_s=0.0)
    assert again.deliveries == 2


async def test_a_command_that_was_pulled_too_late_is_for_others_at_once(
    ports, log, permit, conductor
):
    inbox = Late(ports.commands, permit)
    conductor = dataclasses.replace(conductor, ports=dataclasses.replace(ports, commands=inbox))
    await ports.commands.send(Advance(workflow="w", instance_id="i"), id="a")
    async with asyncio.timeout(WAIT_S):
        await conductor.serve()
    assert not log.asked.is_set(), "nothing was done about it"
    others = await ports.commands.open_workflow("w")
    assert await others.receive(room=1, wait_s=0.0)

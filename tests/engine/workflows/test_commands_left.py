"""What a node does with commands that it was about to put to instances when it may not any more."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from engine.runtime.permits import Permit
from engine.workflows import worker
from engine.workflows.effector import Effector
from engine.workflows.store import InstanceStore
from engine.workflows.worker import InstanceHandler, WorkflowWorker
from streams.model.commands import Advance
from tests.engine.crew import node_context_of
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
    context = node_context_of(app, ports)
    store = InstanceStore(ports, context.writer_ids)
    effector = Effector(context.catalog, ports, CLOCK, "n1")
    handler = InstanceHandler("w", context.catalog, context.revisions, CLOCK, store, effector)
    return WorkflowWorker(context, handler, permit)


async def test_a_command_that_could_not_be_followed_is_for_others_at_once(
    ports, log, permit, conductor
):
    serving = asyncio.create_task(conductor.service().run())
    await ports.commands.send(Advance(workflow="w", instance_id="i"), id="a")
    async with asyncio.timeout(WAIT_S):
        await log.asked.wait()
        permit.turn(on=False)
        await serving
        log.go.set()
        await conductor.context.tasks.finish()
    others = await ports.commands.open_workflow("w")
    (again,) = await others.receive(room=1, wait_s=0.0)
    assert again.deliveries == 2


async def test_a_command_that_was_pulled_too_late_is_for_others_at_once(
    ports, log, permit, conductor
):
    commands = Late(ports.commands, permit)
    late = dataclasses.replace(ports, commands=commands)
    context = dataclasses.replace(conductor.context, ports=late)
    conductor = dataclasses.replace(conductor, context=context)
    await ports.commands.send(Advance(workflow="w", instance_id="i"), id="a")
    async with asyncio.timeout(WAIT_S):
        await conductor.service().run()
    assert not log.asked.is_set(), "nothing was done about it"
    others = await ports.commands.open_workflow("w")
    assert await others.receive(room=1, wait_s=0.0)

"""Calls nodes to instances of workflows that were forgotten: look → rule → call, as for episodes.

Whoever asks names candidates; what is true is looked up on the journal and among the timers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.sweep import Verdict
from engine.workflows.history import fold
from engine.workflows.instance import Instance
from engine.workflows.starter import CONDUCT, starter_id
from engine.workflows.status import ENDED
from engine.workflows.sweep import Attempt, calls_for, judge, running
from streams.clock import Clock
from streams.commands import StepDone
from streams.errors import UnreadableEvent
from streams.events import EpisodeFinished, WorkflowFinished
from streams.log import Recorded
from streams.ports import Ports

IN_FLIGHT_MAX: Final = 32
"""Instances and attempts looked at at a time."""


@dataclass(frozen=True)
class InstanceSweeper:
    """Sweeps for one person."""

    ports: Ports
    clock: Clock
    stale_after_s: float
    is_dry: bool = False
    """Only look: call nobody."""
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(IN_FLIGHT_MAX))

    async def sweep(self, instance_ids: Iterable[str]) -> Sequence[Verdict]:
        """Return what there was to do about each instance, done unless `is_dry`.

        Raises:
            Unavailable: the log is away. Sweep again: whoever was called is not called twice.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._look_at(each)) for each in instance_ids]
        return [task.result() for task in tasks]

    async def _look_at(self, instance_id: str) -> Verdict:
        try:
            async with self._room:
                records = await self.ports.log.read(self.ports.stack.workflow(instance_id))
        except UnreadableEvent:
            return Verdict.UNREADABLE
        instance = fold(records)
        if instance.started is None or instance.phase in ENDED:
            return Verdict.ENDED
        attempts = await asyncio.gather(*(self._attempt(each) for each in running(instance)))
        verdict = judge(
            instance,
            attempts,
            is_armed=await self._is_armed(instance),
            silent_s=(self.clock.now() - records[-1].commit.at).total_seconds(),
            stale_after_s=self.stale_after_s,
        )
        if verdict is Verdict.RECOVERED and not self.is_dry:
            await self._call(instance, attempts)
        return verdict

    async def _attempt(self, told: StepDone) -> Attempt:
        """Return how far an attempt is: it is an episode's, or an instance's."""
        stack = self.ports.stack
        async with self._room:
            try:
                newest = await self.ports.log.last(stack.episode(told.episode_id))
                newest = newest or await self.ports.log.last(stack.workflow(told.episode_id))
            except UnreadableEvent:  # Of a newer version: it goes on there.
                return Attempt(told=told, is_open=True, has_ended=False)
        return Attempt(told=told, is_open=newest is not None, has_ended=_has_ended(newest))

    async def _is_armed(self, instance: Instance) -> bool:
        begun = instance.begun
        timer = starter_id(begun.spec.name), CONDUCT, begun.instance_id
        async with self._room:
            return await self.ports.timers.pending(*timer) is not None

    async def _call(self, instance: Instance, attempts: Sequence[Attempt]) -> None:
        for number, command in enumerate(calls_for(instance, attempts)):
            # The journal has not moved since; should another sweep see the same, one call is kept.
            id_ = f"sweep.{instance.begun.instance_id}.{instance.version}.{number}"
            async with self._room:
                await self.ports.inbox.send(command, id=id_)


def _has_ended(newest: Recorded | None) -> bool:
    events = newest.commit.events if newest is not None else ()
    return any(isinstance(event, EpisodeFinished | WorkflowFinished) for event in events)

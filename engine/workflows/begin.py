"""Starts instances of workflows: those of causes, and those that are steps of others.

A command for the instance is sent before its first commit, and waits in the queue for it (see
`engine.workflows.worker`): the other way round, a crash in between would leave it stuck. Its id
comes from its cause, so a cause that comes again starts nothing else. One that starts nothing is
recorded as an instance that has ended with its first commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from engine.app.workflow_plan import spec_of
from engine.errors import BadRequest
from engine.runtime.catalog import Catalog
from engine.runtime.store import append_first
from engine.workflows.events import count_events
from engine.workflows.instance import held_subject
from engine.workflows.start import (
    InstanceStart,
    SubStart,
    called_off,
    refused,
    skipped,
    started,
)
from engine.workflows.subjects import SubjectBusy, Subjects
from streams.clock import Clock
from streams.errors import (
    BadName,
    TooLarge,
    Unavailable,
    Unwritable,
)
from streams.model.commands import Advance
from streams.model.events import WorkflowEvent, WorkflowStarted
from streams.model.triggers import Mode
from streams.model.workflows import WorkflowSpec
from streams.ports.all import Ports
from streams.ports.log import Commit
from streams.tracing import traceparent


async def begin_instance(ports: Ports, started: WorkflowStarted, *, at: datetime) -> bool:
    """Call a node to an instance and start it; return whether it had not begun before."""
    id_, trace = started.instance_id, traceparent()
    commit = Commit(id=f"begin.{id_}", at=at, events=(started,), trace=trace)
    return await _be_first(ports, commit, started.spec.name, id_, mode=started.mode)


async def call_off_instance(ports: Ports, sub: SubStart, *, at: datetime) -> bool:
    """Record that an instance never starts, and call a node to report that; False: it has begun."""
    id_ = sub.instance_id
    commit = Commit(id=f"call_off.{id_}", at=at, events=called_off(sub), trace=traceparent())
    return await _be_first(ports, commit, sub.workflow, id_, mode=sub.mode)


async def _be_first(ports: Ports, commit: Commit, workflow: str, id_: str, *, mode: Mode) -> bool:
    """Call a node to an instance and write its first commit; return whether it is the first."""
    advance = Advance(workflow=workflow, instance_id=id_)
    # guard: begun-goes-on-uncalled
    await ports.commands.send(advance, id=f"begin.{id_}", trace=commit.trace)
    is_first = await append_first(ports.log, ports.stack.workflow(id_), commit)
    if is_first:  # guard: twice-begun-counted-once
        count_events(workflow, commit.events, mode=mode)
    return is_first


class StartOutcome(Enum):
    """What a cause has come to."""

    STARTED = auto()
    REPEATED = auto()
    """It had come before, to whatever it came to then."""
    SKIPPED = auto()
    """Another instance holds its subject."""
    REFUSED = auto()
    """It can start none."""


@dataclass(frozen=True)
class InstanceStarter:
    """Starts the instances of causes, on one node; safe to repeat. Those of dry runs are dry."""

    catalog: Catalog
    ports: Ports
    clock: Clock

    async def start(self, start: InstanceStart) -> StartOutcome:
        """Start an instance, or record why none starts.

        Raises:
            Unavailable: the workflow starts nothing here now; another node may have it.
            TooLarge, Unwritable: not even a refusal can be recorded.
        """
        try:
            return await self._begin(started(self._spec(start.workflow), start))
        except (BadRequest, BadName, TooLarge, Unwritable) as error:
            return await self._record(start, refused(start, str(error)), StartOutcome.REFUSED)

    def _spec(self, name: str) -> WorkflowSpec:
        workflow = self.catalog.workflows.get(name)
        if workflow is None:  # guard: gone-workflow-cause-left
            raise Unavailable(name, detail=f"workflow {name!r} starts nothing here now")
        return spec_of(workflow, self.catalog.actors, self.catalog.workflows)

    async def _begin(self, event: WorkflowStarted) -> StartOutcome:
        held = held_subject(event)
        taken = event if held is None else await Subjects(self.ports).take(event, held)
        if isinstance(taken, SubjectBusy):
            return await self._skip(event, taken.instance_id)
        try:
            is_new = await begin_instance(self.ports, taken, at=self.clock.now())
        except (TooLarge, Unwritable):
            if held is not None:  # guard: unwritable-instance-gives-place-back
                await Subjects(self.ports).give_back(held, taken.instance_id)
            raise
        return StartOutcome.STARTED if is_new else StartOutcome.REPEATED

    async def _skip(self, event: WorkflowStarted, busy: str) -> StartOutcome:
        return await self._record(event, skipped(event, busy), StartOutcome.SKIPPED)

    async def _record(
        self,
        start: InstanceStart | WorkflowStarted,
        events: Sequence[WorkflowEvent],
        outcome: StartOutcome,
    ) -> StartOutcome:
        """Record that an instance never starts, unless its cause came to something before."""
        id_, at = start.instance_id, self.clock.now()
        commit = Commit(id=f"never.{id_}", at=at, events=tuple(events), trace=traceparent())
        if not await append_first(self.ports.log, self.ports.stack.workflow(id_), commit):
            return StartOutcome.REPEATED
        begun = events[0]
        assert isinstance(begun, WorkflowStarted), "it is the first event"
        count_events(begun.spec.name, commit.events, mode=begun.mode)
        return outcome

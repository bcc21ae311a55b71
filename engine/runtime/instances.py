"""Begins instances of workflows, or calls them off, and calls nodes to them. Harmless to repeat."""

from __future__ import annotations

from datetime import datetime

from engine.runtime.instance_meter import count_events
from engine.workflows.endings import told_of
from engine.workflows.start import SubStart, called_off
from streams.commands import Advance
from streams.errors import VersionConflict
from streams.events import EpisodeOpened, WorkflowStarted
from streams.log import START, Commit
from streams.ports import Ports
from streams.tracing import traceparent


async def begin_instance(ports: Ports, started: WorkflowStarted, *, at: datetime) -> bool:
    """Begin an instance and call a node to it; return whether it had not begun before.

    Raises:
        TooLarge, Unwritable: the journal cannot keep it. Nothing was begun.
        Unavailable: the log is away. It may have begun; do it again.
    """
    id_, trace = started.instance_id, traceparent()
    commit = Commit(id=f"begin.{id_}", at=at, events=(started,), trace=trace)
    return await _be_first(ports, commit, started.spec.name, id_)


async def call_off_instance(ports: Ports, sub: SubStart, *, at: datetime) -> bool:
    """Have an instance never begin, and call a node to tell of it; return False if it has begun.

    Raises:
        BadRequest, TooLarge, Unwritable: the journal cannot keep that. Nothing can begin, either.
        Unavailable: the log is away. It may have been called off; do it again.
    """
    id_ = sub.instance_id
    commit = Commit(id=f"call_off.{id_}", at=at, events=called_off(sub), trace=traceparent())
    return await _be_first(ports, commit, sub.workflow, id_)


async def _be_first(ports: Ports, commit: Commit, workflow: str, id_: str) -> bool:
    """Write the first commit of an instance; return whether it is."""
    try:
        await ports.log.append(ports.stack.workflow(id_), commit, after=START)
        count_events(workflow, commit.events)
        is_new = True
    except VersionConflict:
        is_new = False
    # Of one that is not new the call may still be missing.
    advance = Advance(workflow=workflow, instance_id=id_)
    await ports.inbox.send(advance, id=f"begin.{id_}", trace=commit.trace)
    return is_new


async def tell_instance(ports: Ports, opened: EpisodeOpened) -> None:
    """Tell an instance that the episode of one of its steps has ended; of any other do nothing.

    Raises:
        Unavailable: tell it again.
    """
    done = told_of(opened)
    if done is not None:
        await ports.inbox.send(done, id=f"done.{opened.episode_id}", trace=traceparent())

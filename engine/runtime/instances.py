"""Begins instances of workflows, and calls nodes to them. Harmless to repeat, as all ids are."""

from __future__ import annotations

from datetime import datetime

from engine.workflows.endings import told_of
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
    try:
        await ports.log.append(ports.stack.workflow(id_), commit, after=START)
        is_new = True
    except VersionConflict:
        is_new = False
    # Of one that is not new the call may still be missing.
    advance = Advance(workflow=started.spec.name, instance_id=id_)
    await ports.inbox.send(advance, id=f"begin.{id_}", trace=trace)
    return is_new


async def tell_instance(ports: Ports, opened: EpisodeOpened) -> None:
    """Tell an instance that the episode of one of its steps has ended; of any other do nothing.

    Raises:
        Unavailable: tell it again.
    """
    done = told_of(opened)
    if done is not None:
        await ports.inbox.send(done, id=f"done.{opened.episode_id}", trace=traceparent())

"""Calls nodes to instances of workflows, and begins them or calls them off. Harmless to repeat.

The call goes first. So what has begun goes on, whoever dies, and though nobody comes back to what
was to begin it: the call waits in the queue for the beginning (see `conductor`). The other way
round, an instance whose starter dies in between would wait for somebody to notice.
"""

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
from streams.triggers import Mode


async def begin_instance(ports: Ports, started: WorkflowStarted, *, at: datetime) -> bool:
    """Call a node to an instance and begin it; return whether it had not begun before.

    Raises:
        TooLarge, Unwritable: the journal cannot keep it. Nothing was begun.
        Unavailable: the log is away. It may have begun; do it again.
    """
    id_, trace = started.instance_id, traceparent()
    commit = Commit(id=f"begin.{id_}", at=at, events=(started,), trace=trace)
    return await _be_first(ports, commit, started.spec.name, id_, mode=started.mode)


async def call_off_instance(ports: Ports, sub: SubStart, *, at: datetime) -> bool:
    """Call a node to an instance that never begins, to tell of it; return False if it has begun.

    Raises:
        BadRequest, TooLarge, Unwritable: the journal cannot keep that. Nothing can begin, either.
        Unavailable: the log is away. It may have been called off; do it again.
    """
    id_ = sub.instance_id
    commit = Commit(id=f"call_off.{id_}", at=at, events=called_off(sub), trace=traceparent())
    return await _be_first(ports, commit, sub.workflow, id_, mode=sub.mode)


async def _be_first(ports: Ports, commit: Commit, workflow: str, id_: str, *, mode: Mode) -> bool:
    """Call a node to an instance and write its first commit; return whether it is the first."""
    advance = Advance(workflow=workflow, instance_id=id_)
    await ports.inbox.send(advance, id=f"begin.{id_}", trace=commit.trace)
    try:
        await ports.log.append(ports.stack.workflow(id_), commit, after=START)
    except VersionConflict:
        return False
    count_events(workflow, commit.events, mode=mode)
    return True


async def tell_instance(ports: Ports, opened: EpisodeOpened) -> None:
    """Tell an instance that the episode of one of its steps has ended; of any other do nothing.

    Raises:
        Unavailable: tell it again.
    """
    done = told_of(opened)
    if done is not None:
        await ports.inbox.send(done, id=f"done.{opened.episode_id}", trace=traceparent())

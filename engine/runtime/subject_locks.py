"""Keeps a second instance of a workflow from beginning for a subject that one is busy with.

A key in the gates names the instance. Whoever wants to begin another looks at the journal whether
that one is over, and takes its place then: the conductor that ended it may have died before it
removed the key. A key whose instance never began goes by itself.

    (absent) ──take──▶ for an hour ──keep──▶ for good ──free──▶ (absent)
                            └─lapse, unless the instance begins─▶ (absent)

Its first commit asks for the keeping (see `engine.workflows.effects`), so it does not hang on who
has begun the instance; that one keeps the subject, too, as there may be nobody to conduct for long.
"""

from __future__ import annotations

from typing import Final

from streams.bucket import Entry
from streams.errors import RevisionConflict, Unavailable, UnreadableEvent
from streams.events import WorkflowFinished
from streams.keys import workflow_lock_key
from streams.ports import Ports

UNBEGUN_S: Final = 3_600
"""How long the key of an instance stands that has not begun, in seconds: far longer than whoever
has put it there needs to begin the instance, or to come again after a crash."""

TRIES_MAX: Final = 16
"""Most tries for one subject while others change its key at the same time."""


async def take_subject(ports: Ports, workflow: str, subject: str, instance_id: str) -> str:
    """Keep `subject` for an instance, which is about to begin; return who has it then.

    Raises:
        Unavailable: the gates or the log are away, or many want it at the same time. Ask again.
    """
    key, own = workflow_lock_key(workflow, subject), instance_id.encode()
    for _ in range(TRIES_MAX):
        entry = await ports.gates.get(key)
        rival = _instance_in(entry)
        if rival == instance_id:
            return rival
        if rival and not await is_over(ports, rival):
            return rival
        revision = entry.revision if entry is not None else 0
        try:
            await ports.gates.put(key, own, after=revision, ttl_s=UNBEGUN_S)
        except RevisionConflict:
            continue
        return instance_id
    raise Unavailable(key, detail="others change it at the same time")


async def keep_subject(ports: Ports, workflow: str, subject: str, instance_id: str) -> None:
    """Have the key of an instance that has begun stand until it is over. Harmless to repeat.

    A key that is gone stays so, and that of another instance stays as it is: whoever acts on an old
    commit changes nothing.

    Raises:
        Unavailable: the gates are away. Do it again.
    """
    key = workflow_lock_key(workflow, subject)
    entry = await ports.gates.get(key)
    if entry is None or _instance_in(entry) != instance_id:
        return  # It is over already.
    try:
        await ports.gates.put(key, instance_id.encode(), after=entry.revision)
    except RevisionConflict:
        return  # As above, a moment later; or somebody else has kept it.


async def free_subject(ports: Ports, workflow: str, subject: str, instance_id: str) -> None:
    """Have nothing keep `subject` for an instance that is over. The key of another one stays.

    Raises:
        Unavailable: the gates are away, or many want it at the same time. Do it again.
    """
    key = workflow_lock_key(workflow, subject)
    for _ in range(TRIES_MAX):
        entry = await ports.gates.get(key)
        if entry is None or _instance_in(entry) != instance_id:
            return
        try:
            await ports.gates.delete(key, after=entry.revision)
        except RevisionConflict:
            continue  # Another one has taken its place, or a belated keeper has kept it.
        return
    raise Unavailable(key, detail="others change it at the same time")


def _instance_in(entry: Entry | None) -> str:
    return entry.value.decode(errors="replace") if entry is not None and entry.value else ""


async def is_over(ports: Ports, instance_id: str) -> bool:
    """Return whether an instance has ended; one that has not begun has not.

    Raises:
        Unavailable: the log is away. Ask again.
    """
    try:
        newest = await ports.log.last(ports.stack.workflow(instance_id))
    except UnreadableEvent:  # Of a newer version: it knows better.
        return False
    events = newest.commit.events if newest is not None else ()
    return any(isinstance(event, WorkflowFinished) for event in events)

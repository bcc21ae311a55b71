"""Looks how an attempt at a step has ended: at the journal of its episode, or of its instance."""

from __future__ import annotations

from engine.episode import fold
from engine.workflows.commands import AttemptEnded
from engine.workflows.endings import end_of_episode, end_of_instance
from engine.workflows.history import fold as fold_instance
from engine.workflows.instance import Instance
from streams.commands import StepDone
from streams.errors import UnreadableEvent
from streams.ports import Ports


async def end_of(ports: Ports, told: StepDone, instance: Instance) -> AttemptEnded | None:
    """Return how an attempt has ended; None if this node cannot see that it has.

    Args:
        ports: of the stack.
        told: what says that it has.
        instance: whose attempt it is.

    Raises:
        Unavailable: the log is away.
    """
    spec = instance.specs.get(told.step)
    if spec is not None and spec.task is None and not told.is_compensation:
        return await end_of_sub(ports, told.episode_id)
    try:
        return end_of_episode(fold(await ports.log.read(ports.stack.episode(told.episode_id))))
    except UnreadableEvent:
        return None


async def end_of_sub(ports: Ports, instance_id: str) -> AttemptEnded | None:
    """Return how an instance that is a step of another one has ended; None as `end_of`.

    Raises:
        Unavailable: the log is away.
    """
    try:
        sub = fold_instance(await ports.log.read(ports.stack.workflow(instance_id)))
    except UnreadableEvent:
        return None
    return end_of_instance(sub) if sub.started is not None else None

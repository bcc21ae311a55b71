"""Several commands to one instance, decided one after the other and written in one commit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from engine.errors import Refused
from engine.workflows.commands import InstanceCommand
from engine.workflows.decision import decide, decided_at
from engine.workflows.history import after
from engine.workflows.instance import Instance
from engine.workflows.steps import Code
from streams.events import WorkflowEvent

FIRST_BYTES_MAX: Final = 128 * 1024
"""What decisions may come to, as JSON, for another one to be put behind them: that one may come to
768 KiB, and all of them must fit in one message, 1 MiB by the server's default."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of several commands."""

    events: tuple[WorkflowEvent, ...]
    """Of one commit, to be written with the time `decided_at`; none: nothing happens."""
    taken: int
    """How many commands were decided on; the others do not fit in."""
    refused: tuple[tuple[int, str], ...] = ()
    """Which of these cannot stand, and why, for people."""


def decide_all(
    instance: Instance, commands: Sequence[InstanceCommand], *, code: Code, at: datetime
) -> Batch:
    """Return what comes of `commands`, in this order, at least of the first.

    Args:
        instance: as it is.
        commands: what is put to it.
        code: as for `decide`.
        at: as for `decide`.
    """
    now, size_bytes = decided_at(instance, at), 0
    events: tuple[WorkflowEvent, ...] = ()
    refused: list[tuple[int, str]] = []
    for number, command in enumerate(commands):
        if size_bytes > FIRST_BYTES_MAX:
            return Batch(events=events, taken=number, refused=tuple(refused))
        try:
            more = decide(instance, command, code=code, at=now)
        except Refused as error:
            refused.append((number, str(error)))
            continue
        instance = after(instance, more, at=now, version=instance.version)
        events += more
        size_bytes += sum(len(msgspec.json.encode(event)) for event in more)
    return Batch(events=events, taken=len(commands), refused=tuple(refused))

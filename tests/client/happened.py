"""Puts on the log of a stack what may have happened there."""

from __future__ import annotations

from streams.clock import SystemClock
from streams.model.events import LogEvent
from streams.ports.all import Ports
from streams.ports.log import START, Commit
from tests.projections import lives


async def happened(ports: Ports, subject: str, *events: LogEvent) -> None:
    """Have `events` happen next at `subject`, in one commit."""
    last = await ports.log.last(subject)
    after = START if last is None else last.seq
    commit = Commit(id=f"{subject}.{after}", at=SystemClock().now(), events=events)
    await ports.log.append(subject, commit, after=after)


async def lived(ports: Ports, number: int, *events: LogEvent) -> str:
    """Have an episode of `monitor` live so far; return its id."""
    id_ = lives.episode_id(number)
    await happened(ports, ports.stack.episode(id_), lives.opened(number), *events)
    return id_

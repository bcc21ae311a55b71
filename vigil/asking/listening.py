"""Whether any live node listens to an event, and whether it is the engine's.

It loads no engine: a command is to start fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from streams.errors import Incompatible, Unavailable
from streams.json import UNDECODABLE
from streams.keys import NODES
from streams.ports.all import Ports
from streams.public_events import PUBLIC_EVENTS
from vigil.errors import hint

_EVENT: Final = "event "
"""Prefix of a trigger that is one of the stack's own events; see `engine/cluster/nodes.py`."""

SIGNAL: Final = "wait.resolved"
"""The event that every node listens to; see `engine/waits/signal.py`."""


class _Expectation(msgspec.Struct, frozen=True):
    triggers: tuple[str, ...] = ()


class _Actor(msgspec.Struct, frozen=True):
    expectations: dict[str, _Expectation] = {}


class _Node(msgspec.Struct, frozen=True):
    """What of a node's report this needs."""

    actors: dict[str, _Actor] = {}


async def why_nobody_listens(ports: Ports, name: str) -> str:
    """Return that no live node listens to the event `name`; empty: one does, or nobody knows."""
    try:
        entries = await ports.gates.entries(under=NODES)
    except (Unavailable, Incompatible):  # Who may publish need not be allowed to look.
        return ""
    reports = [entry.value for entry in entries.values() if entry.value is not None]
    heard = {event for report in reports for event in _events(report)}
    if not heard or name in heard or name == SIGNAL:  # guard: unheard-event-told
        return ""
    return f"no node that is up listens to {name!r}; {hint(name, heard)}"


def why_of_engine(name: str) -> str:
    """Return that the engine publishes the event `name` itself; empty: it does not."""
    if name not in PUBLIC_EVENTS:  # guard: event-of-engine-told
        return ""
    return f"the engine publishes {name!r} itself; who listens takes this for one of its own"


def _events(report: bytes) -> Iterator[str]:
    try:
        node = msgspec.json.decode(report, type=_Node)
    except UNDECODABLE:
        return
    for actor in node.actors.values():
        for expectation in actor.expectations.values():
            for trigger in expectation.triggers:
                if trigger.startswith(_EVENT):
                    yield trigger.removeprefix(_EVENT)

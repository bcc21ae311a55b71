"""Waiting until the nodes that are up have made something of what was applied, or let go of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo, known
from streams.clock import SystemClock
from streams.model.events.definitions import DefinitionKind
from vigil.defining import Applied
from vigil.editions import Reception, actor_of, reception
from vigil.settings import Reading
from vigil.waiting import waiting
from vigil.work import connected

LOOK_S: Final = 0.1
"""Between two looks at what nodes run, in seconds."""

_CLOCK: Final = SystemClock()


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of something that was disabled."""

    waking: Sequence[str]
    """The nodes that have not let go of it."""
    events: object
    """How many wait for it; a text if that cannot be known."""


def wait_received(
    reading: Reading, applied: Sequence[Applied], *, timeout_s: float
) -> list[Reception]:
    """Return what the nodes make of what was applied, once all of them have said so.

    Args:
        reading: the settings.
        applied: what they are to run.
        timeout_s: longest wait, in seconds; then whoever has said nothing is silent.

    Raises:
        Unavailable, Incompatible: the log is away.
    """

    async def received() -> list[Reception]:
        until_s = _CLOCK.monotonic_s() + timeout_s
        async with connected(reading, creates=False) as ports:
            while True:
                nodes = await live_nodes(ports.gates)
                is_over = _CLOCK.monotonic_s() >= until_s
                found = [
                    reception(nodes, each.edition, before={} if is_over else each.problems_before)
                    for each in applied
                ]
                if is_over or not any(each.silent for each in found):
                    return found
                await _CLOCK.sleep(LOOK_S)

    return asyncio.run(received())


def wait_released(reading: Reading, kind: DefinitionKind, id_: str, *, timeout_s: float) -> Release:
    """Return who still wakes what was disabled once nobody does, and what waits for it.

    Args:
        reading: the settings.
        kind: of what.
        id_: the actor's, or the workflow's.
        timeout_s: longest wait, in seconds.

    Raises:
        Unavailable, Incompatible: the log is away.
    """
    actor = actor_of(kind, id_)

    async def released() -> Release:
        until_s = _CLOCK.monotonic_s() + timeout_s
        async with connected(reading, creates=False) as ports:
            nodes = await live_nodes(ports.gates)
            expectations = (known(nodes, actor) or {}).values()
            while (waking := _waking(nodes, actor)) and _CLOCK.monotonic_s() < until_s:
                await _CLOCK.sleep(LOOK_S)
                nodes = await live_nodes(ports.gates)
            left = await waiting(ports, actor, expectations)
            return Release(waking=waking, events=left["events"])

    return asyncio.run(released())


def _waking(nodes: Sequence[NodeInfo], actor: str) -> list[str]:
    """Return the nodes that wake an actor by a definition; their code is not ours to disable."""
    infos = [(node.name, node.actors[actor]) for node in nodes if actor in node.actors]
    return [name for name, info in infos if info.wakes and info.revision]

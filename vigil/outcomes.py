"""What comes of commands: each is sent, then looked for on the journal of what it is about.

A command is durable once it is sent, and may still be refused: somebody else was faster, or the
time has run out. So nobody is told that it was done before the journal shows it. Where it never
does, it is told whether any node that is up could have done it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from engine.app.workflow_starter import workflow_of
from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo
from engine.episodes.episode import fold
from engine.operations.why_unheard import Unheard, instance_unheard, unheard
from streams.clock import SystemClock
from streams.errors import UnreadableEvent
from streams.model.events.definitions import DefinitionKind
from streams.ports.all import Ports
from streams.ports.log import Recorded
from vigil.editions import edition_of, editions_in

IN_FLIGHT_MAX: Final = 64
"""Journals looked at, or commands sent, at a time."""

LOOK_S: Final = 0.1
"""Between two looks at a journal, in seconds."""

ASKED: Final = "asked for"
LATE: Final = "not on the journal in time; it stays asked for"

_CLOCK: Final = SystemClock()

_T = TypeVar("_T")


@dataclass(frozen=True)
class Stand:
    """What a journal shows about a command."""

    words: str
    is_wanted: bool
    """Whether it is what the command asked for, and not what somebody else did."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A command that was sent."""

    name: str
    """Of what it is about, for people."""
    actor_id: str
    episode_id: str = ""
    """Whose it is; empty: that of an instance of a workflow."""
    subject: str
    """Where its journal is."""
    stand: Callable[[Sequence[Recorded]], Stand | None]
    """What the journal shows about it, oldest record first; None: nothing so far."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a command."""

    name: str
    actor_id: str = ""
    done: str = ""
    """What was done; empty if nothing was."""
    refused: str = ""
    """Why nothing was done; empty if something was."""
    obstacle: str = ""
    """Why nothing comes of it now, in words; empty: something does."""
    is_in_vain: bool = False
    """Whether it was to be waited for, and nothing came of it."""


async def watch(ports: Ports, sent: Sequence[Sent], *, wait_s: float | None) -> list[Outcome]:
    """Return what came of each command, in order, once the journals show it.

    Args:
        ports: of the stack.
        sent: the commands.
        wait_s: longest wait for all of them together, in seconds; None: do not wait. Where no node
            that is up can rule on them, there is no wait.

    Raises:
        UnreadableEvent: a newer version has written one of the journals.
        Unavailable: the log is away.
    """
    until_s = None if wait_s is None else _CLOCK.monotonic_s() + wait_s
    nodes, found = await live_nodes(ports.gates), list[Outcome]()
    for some in batches(sent):
        found += await asyncio.gather(*(_watch(ports, nodes, each, until_s) for each in some))
    return found


def batches(items: Sequence[_T]) -> Iterable[Sequence[_T]]:
    """Return `items` in order, as many together as are worked on at a time."""
    return (items[at : at + IN_FLIGHT_MAX] for at in range(0, len(items), IN_FLIGHT_MAX))


async def _watch(
    ports: Ports, nodes: Sequence[NodeInfo], sent: Sent, until_s: float | None
) -> Outcome:
    whose = Outcome(name=sent.name, actor_id=sent.actor_id)
    asked = replace(whose, done=ASKED, is_in_vain=until_s is not None)
    why = await _why_unheard(ports, nodes, sent)
    if why is not None and why.is_certain:
        return replace(asked, obstacle=str(why))
    if until_s is None:
        return asked
    stand = await _wait_stand(ports, sent, until_s)
    if stand is None:
        why = await _why_unheard(ports, await live_nodes(ports.gates), sent)
        return replace(asked, obstacle=str(why)) if why else replace(whose, refused=LATE)
    if stand.is_wanted:
        return replace(whose, done=stand.words)
    return replace(whose, refused=stand.words)


async def _wait_stand(ports: Ports, sent: Sent, until_s: float) -> Stand | None:
    """Return what the journal shows about a command, once it does; None: it does not in time."""
    while (stand := sent.stand(await ports.log.read(sent.subject))) is None:
        if _CLOCK.monotonic_s() >= until_s:
            return None
        await _CLOCK.sleep(LOOK_S)
    return stand


async def _why_unheard(ports: Ports, nodes: Sequence[NodeInfo], sent: Sent) -> Unheard | None:
    """Return why none of `nodes` rules on a command, as far as they say; None: one does."""
    workflow = workflow_of(sent.actor_id)
    if workflow is not None:
        editions = await editions_in(ports)
        edition = edition_of(editions, DefinitionKind.WORKFLOW, workflow)
        return instance_unheard(nodes, workflow, edition=edition)
    try:
        episode = fold(await ports.log.read(ports.stack.episode(sent.episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return unheard(nodes, sent.actor_id)
    return unheard(nodes, sent.actor_id, episode)

"""Settling dead letters from the command line: each by itself, and each says what came of it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo
from engine.episodes.episode import fold
from engine.errors import Rejected
from engine.operations.dead_letters import Settler
from engine.operations.why_unheard import unheard
from streams.clock import SystemClock
from streams.errors import BadName, UnreadableEvent
from streams.layout import Kind
from streams.model.outputs import OutputStatus
from streams.ports.all import Ports
from vigil.settings import Reading
from vigil.tables import Row
from vigil.who import who
from vigil.work import connected

GONE_ON: Final = "its output has gone on"
"""Why the letter of an output is of no use that is not failed any more."""


@dataclass(frozen=True)
class Settled:
    """What came of the decision about one letter."""

    letter_key: str
    done: str
    """What was done; empty if nothing was."""
    refused: str
    """Why nothing was done; empty if something was."""
    obstacle: str = ""
    """Why no node that is up rules on it; empty: one does, or nobody has asked."""


Decided: TypeAlias = tuple[str, str]
"""What was done about a letter, and the episode whose output it has tried again, if any."""

Decides: TypeAlias = Callable[[Settler, str], Awaitable[Decided]]
"""Decides about the letter of a key."""


def requeue(reading: Reading, keys: Iterable[str], *, by: str | None) -> list[Settled]:
    """Have letters tried again.

    Args:
        reading: the settings.
        keys: the letters', as the rows show them.
        by: who decides; None is whoever runs this program.

    Raises:
        Unavailable: the log is away. Those before are requeued; do it again for the others.
    """

    async def one(settler: Settler, key: str) -> Decided:
        requeued = await settler.requeue(key, by=who(reading, by))
        if key.startswith(f"{Kind.OUTPUT}."):
            return "requeued: its output is to be tried again", requeued.episode_id
        if requeued.episode_id:
            return f"requeued as episode {requeued.episode_id}", ""
        if requeued.instance_id:
            return f"requeued: put to instance {requeued.instance_id} again", ""
        return f"requeued as event {requeued.event_seq}", ""

    return asyncio.run(_settle(reading, keys, one))


def discard(reading: Reading, keys: Iterable[str], *, by: str | None, reason: str) -> list[Settled]:
    """Note that letters are of no use. Arguments and errors are as for `requeue`."""

    async def one(settler: Settler, key: str) -> Decided:
        await settler.discard(key, by=who(reading, by), reason=reason)
        return "discarded", ""

    return asyncio.run(_settle(reading, keys, one))


def what_to_do(row: Row) -> str | None:
    """Return the command that settles a letter; None: it is settled.

    It has what the letter is about tried again, unless that was gone on with in another way: then
    whoever would try it again is refused.
    """
    if row["status"] != "waiting":
        return None
    letter = _word(str(row["letter_key"]))
    if row["output_key"] is None:
        return f"vigil dead requeue {letter}"
    if row["output_status"] in (None, OutputStatus.FAILED):
        return f"vigil outputs retry {_word(str(row['output_key']))}"
    return f"vigil dead discard --reason {shlex.quote(GONE_ON)} {letter}"


def _word(text: str) -> str:
    """Return `text` as the last word of a command line, and never one of its options."""
    return f"{'-- ' if text.startswith('-') else ''}{shlex.quote(text)}"


def refusals(settled: Sequence[Settled]) -> Iterator[str]:
    """Yield one line for each letter that nothing was done about."""
    return (f"{each.letter_key}: {each.refused}" for each in settled if each.refused)


def obstacles(settled: Iterable[Settled]) -> list[str]:
    """Return one line for each reason why nothing comes of it now."""
    return sorted({each.obstacle for each in settled if each.obstacle})


async def _settle(reading: Reading, keys: Iterable[str], decide: Decides) -> list[Settled]:
    async with connected(reading) as ports:
        settler, nodes = Settler(ports, SystemClock()), await live_nodes(ports.gates)
        return [await _settle_one(settler, nodes, key, decide) for key in dict.fromkeys(keys)]


async def _settle_one(
    settler: Settler, nodes: Sequence[NodeInfo], key: str, decide: Decides
) -> Settled:
    try:
        done, episode_id = await decide(settler, key)
    except BadName:
        return Settled(key, done="", refused="there is no such dead letter")
    except Rejected as error:
        return Settled(key, done="", refused=str(error))
    settled = Settled(key, done=done, refused="")
    if not episode_id:
        return settled
    return replace(settled, obstacle=await _why_unheard(settler.ports, nodes, episode_id))


async def _why_unheard(ports: Ports, nodes: Sequence[NodeInfo], episode_id: str) -> str:
    """Return why none of `nodes` rules on what is said to an episode; empty: one may."""
    try:
        episode = fold(await ports.log.read(ports.stack.episode(episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return ""
    why = episode.opened and unheard(nodes, episode.opened.actor_id, episode)
    return str(why) if why else ""

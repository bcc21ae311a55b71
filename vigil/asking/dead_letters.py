"""Decisions about dead letters, one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from engine.cluster.members import live_nodes
from engine.cluster.nodes import NodeInfo
from engine.episodes.episode import fold
from engine.errors import Rejected
from engine.operations.dead_letters import DeadLetterRequests
from engine.operations.events.why_unheard import unheard
from streams.clock import Clock
from streams.errors import BadName, UnreadableEvent
from streams.layout import Kind
from streams.ports.all import Ports
from vigil.asking.requests import CommandOutcome

SettledLetter: TypeAlias = tuple[str, str]
"""What was done about a dead letter, and the episode whose output is tried again, if any."""

DecidesLetter: TypeAlias = Callable[[DeadLetterRequests, str], Awaitable[SettledLetter]]


async def requeue(
    ports: Ports, keys: Sequence[str], *, by: str, clock: Clock
) -> Sequence[CommandOutcome]:
    """Try again what dead letters are about, and return what became of each."""

    async def requeued(requests: DeadLetterRequests, key: str) -> SettledLetter:
        done = await requests.requeue(key, by=by)
        if key.startswith(f"{Kind.OUTPUT}."):
            return "requeued: its output is to be tried again", done.episode_id
        if done.episode_id:
            return f"requeued as episode {done.episode_id}", ""
        if done.instance_id:
            return f"requeued: put to instance {done.instance_id} again", ""
        return f"requeued as event {done.event_seq}", ""

    return await _settle(ports, keys, requeued, clock)


async def discard(
    ports: Ports, keys: Sequence[str], *, by: str, reason: str, clock: Clock
) -> Sequence[CommandOutcome]:
    """Discard dead letters, and return what became of each."""

    async def discarded(requests: DeadLetterRequests, key: str) -> SettledLetter:
        await requests.discard(key, by=by, reason=reason)
        return "discarded", ""

    return await _settle(ports, keys, discarded, clock)


async def _settle(
    ports: Ports, keys: Sequence[str], decide: DecidesLetter, clock: Clock
) -> Sequence[CommandOutcome]:
    requests, nodes = DeadLetterRequests(ports, clock), await live_nodes(ports.gates)
    return [await _settle_one(requests, nodes, key, decide) for key in dict.fromkeys(keys)]


async def _settle_one(
    requests: DeadLetterRequests,
    nodes: Sequence[NodeInfo],
    key: str,
    decide: DecidesLetter,
) -> CommandOutcome:
    try:
        done, episode_id = await decide(requests, key)
    except BadName:
        return CommandOutcome(name=key, refused="there is no such dead letter")
    except Rejected as error:
        return CommandOutcome(name=key, refused=str(error))
    # guard: episode-letter-carries-why
    obstacle = await _why_unheard(requests.ports, nodes, episode_id) if episode_id else ""
    return CommandOutcome(name=key, done=done, obstacle=obstacle)


async def _why_unheard(ports: Ports, nodes: Sequence[NodeInfo], episode_id: str) -> str:
    """Return why none of `nodes` handles commands to an episode; empty: one may."""
    try:
        episode = fold(await ports.log.read(ports.stack.episode(episode_id)))
    except UnreadableEvent:  # A newer version has written it, and its nodes know.
        return ""
    why = episode.opened and unheard(nodes, episode.opened.actor_id, episode)
    return str(why) if why else ""

"""Asks, for a person or a program, whether anybody rules on what is said to an episode.

An answer is durable once it is sent, and nobody need be there to rule on it. Who wants to know
whether somebody is, asks here: before, or when nothing has come of it for a while.
"""

from __future__ import annotations

from engine.episode import fold
from engine.errors import Refused
from engine.fields import check_id
from engine.hearing import Unheard, unheard
from engine.output import fold as fold_output
from engine.runtime.presence import live_nodes
from streams.ports import Ports


async def why_unheard(ports: Ports, episode_id: str) -> Unheard | None:
    """Return why no node that is up rules on what is said to an episode; None: one does.

    As far as nodes say of themselves: one that has just stopped is missed within the life of its
    lease. As text it is one line with what to do, and what becomes of what was said.

    Args:
        ports: of the stack.
        episode_id: the episode's.

    Raises:
        BadRequest: `episode_id` is no id.
        Refused: there is no such episode.
        UnreadableEvent: a newer version of the engine has written it.
        Unavailable: no answer, or the server refused.
    """
    check_id("episode_id", episode_id)
    return await _why_unheard(ports, episode_id)


async def why_output_unheard(ports: Ports, key: str) -> Unheard | None:
    """Return why no node that is up rules on what is said about an output; None: one does.

    Args:
        ports: of the stack.
        key: the output's.

    Raises:
        BadName: no output can have such a key.
        Refused: there is no such output.
        UnreadableEvent, Unavailable: as `why_unheard`.
    """
    output = fold_output(await ports.log.read(ports.stack.output(key)))
    if output.proposed is None:
        raise Refused("there is no such output")
    return await _why_unheard(ports, output.proposed.episode_id)


async def _why_unheard(ports: Ports, episode_id: str) -> Unheard | None:
    episode = fold(await ports.log.read(ports.stack.episode(episode_id)))
    if episode.opened is None:
        raise Refused("there is no such episode")
    return unheard(await live_nodes(ports.gates), episode.opened.actor_id, episode)

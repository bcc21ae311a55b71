"""Who has the place of an actor that opens nothing now, so that what is open of it goes on. Pure.

Its definition is disabled or cannot be made, so it has no expectations: those are found with each
episode, as it was opened. How many of them may run at a time, the definition says that holds, or
held last. It is read without the app, which may lack what it names.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.actor import CLUSTER_EPISODES_MAX, Actor
from engine.definitions.agent import AgentDefinition, agent_of
from engine.errors import DeclarationError
from engine.workflows.starter import problem_of_id
from streams.json import NOTHING, UNDECODABLE, JsonObject

_bodies: Final = msgspec.json.Decoder(JsonObject)


def closed_actor(id_: str, body: msgspec.Raw = NOTHING) -> Actor | None:
    """Return who sees to the open episodes of an actor; None: no definition can be called so.

    Args:
        id_: the actor's.
        body: its definition. What no agent can be read from sets no limits but those by default.
    """
    try:
        plain = Actor(id_)
    except DeclarationError:
        return None
    if problem_of_id(plain) is not None:
        return None
    try:
        return _limited(id_, body)
    except UNDECODABLE:  # A definition that cannot work is such a `ValueError`, too.
        return plain


def _limited(id_: str, body: msgspec.Raw) -> Actor:
    agent = agent_of(_bodies.decode(body))
    return Actor(
        id_,
        domain=agent.domain,
        max_concurrent_episodes=agent.max_concurrent_episodes,
        max_concurrent_cluster=_cluster_max(agent),
        overflow=agent.overflow,
        queue_max=agent.queue_max,
        stacks=agent.stacks,
    )


def _cluster_max(agent: AgentDefinition) -> int | None:
    """Return the limit of an actor, or the highest there is if only its expectations take turns.

    Without one of either its episodes would take none.
    """
    takes_turns = any(each.concurrency_key or each.priority for each in agent.expectations.values())
    own = agent.max_concurrent_cluster
    return CLUSTER_EPISODES_MAX if own is None and takes_turns else own

"""An app: the actors that a node runs, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from engine.actor import QUEUE_MAX, Actor
from engine.declaring import checked_callback, checked_tools
from engine.errors import DeclarationError
from engine.expectation import Expectation
from engine.recovery import Policy
from engine.tools import Synthesizer, Tool, ToolLike


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """An episode whose node crashed, for `resolve_policy`."""

    episode_id: str
    actor_id: str
    expectation_id: str
    node: str
    """The one that crashed."""
    crashes: int
    """This one included."""
    steps_recorded: int


ALL: Final = "(all)"
"""Stands for every actor where an error names one."""

ResolvePolicy: TypeAlias = Callable[[Orphan], Policy | None]


NodeName: TypeAlias = Callable[[], str]


@dataclass(frozen=True, init=False)
class App:
    """Everything a node needs to know about its work. Any actor runs on any node of the app."""

    actors: Mapping[str, Actor]
    tools: Mapping[str, Tool]
    synthesizer: Synthesizer | None = field(default=None)
    resolve_policy: ResolvePolicy | None = field(default=None)
    node_name: NodeName | None = field(default=None)

    def __init__(
        self,
        *,
        actors: Sequence[Actor],
        tools: Mapping[str, ToolLike] | None = None,
        synthesizer: Synthesizer | None = None,
        resolve_policy: ResolvePolicy | None = None,
        node_name: NodeName | None = None,
    ) -> None:
        """Declare an app.

        Args:
            actors: at least one, each with an id of its own and at least one expectation.
            tools: capability → tool, for actors that have none of that name.
            synthesizer: for actors that have none.
            resolve_policy: asked after a crash what is to become of the episode; None leaves it
                to the expectation.
            node_name: asked once, when a node starts that has no name of its own: what it is to
                be called. No other node of the stack may be called so; 1 to 64 of A-Z a-z 0-9 _ -

        Raises:
            DeclarationError: a value cannot work; the message names it.
        """
        synthesizer = checked_callback(synthesizer, actor=ALL, field="synthesizer")
        resolve_policy = checked_callback(resolve_policy, actor=ALL, field="resolve_policy")
        object.__setattr__(self, "actors", _by_id(actors))
        object.__setattr__(self, "tools", checked_tools(tools or {}, actor=ALL))
        object.__setattr__(self, "synthesizer", synthesizer)
        object.__setattr__(self, "resolve_policy", resolve_policy)
        node_name = checked_callback(node_name, actor=ALL, field="node_name")
        object.__setattr__(self, "node_name", node_name)

    def tool(self, actor: Actor, capability: str) -> Tool | None:
        """Return the tool that `actor` means by `capability`, or None if there is none."""
        return actor.tools.get(capability) or self.tools.get(capability)

    def synthesizer_of(self, actor: Actor, expectation: Expectation) -> Synthesizer | None:
        """Return the nearest synthesizer: the expectation's, the actor's or the app's."""
        return expectation.synthesizer or actor.synthesizer or self.synthesizer


def _by_id(actors: Sequence[Actor]) -> Mapping[str, Actor]:
    by_id: dict[str, Actor] = {}
    given: object = actors
    if not isinstance(given, Sequence):
        raise DeclarationError(actor=repr(given), field="actors", problem="is not a list")
    if not actors:
        raise DeclarationError(actor="(none)", field="actors", problem="an app needs an actor")
    for actor in actors:
        if not isinstance(actor, Actor):
            raise DeclarationError(actor=repr(actor), field="actors", problem="is not an Actor")
        if actor.id in by_id:
            raise DeclarationError(actor=actor.id, field="id", problem="declared twice")
        if not actor.expectations:
            raise DeclarationError(
                actor=actor.id, field="expectations", problem="none; use actor.expect(…)"
            )
        if problem := _problem_of_queue(actor):
            raise DeclarationError(actor=actor.id, field="queue_max", problem=problem)
        if problem := _problem_of_breakers(actor):
            raise DeclarationError(actor=actor.id, field="breaker", problem=problem)
        by_id[actor.id] = actor
    return by_id


def _problem_of_queue(actor: Actor) -> str | None:
    """Return why nothing ever waits in the queue that `actor` bounds, or None."""
    if actor.queue_max == QUEUE_MAX:
        return None
    if not actor.is_laned:
        return (
            "no episode waits for its turn; give max_concurrent_cluster or overflow,"
            " or an expectation concurrency_key or priority"
        )
    if actor.overflow == "drop":
        return 'nothing waits with overflow="drop"; leave it out'
    return None


def _problem_of_breakers(actor: Actor) -> str | None:
    """Return why a breaker of `actor` could not stop what fails, or None."""
    if not actor.is_laned:
        return None
    for expectation in actor.expectations.values():
        if expectation.breaker is not None and expectation.breaker.scope == "node":
            return (
                f'scope="node" of expectation {expectation.name!r}: its episodes take turns, and'
                " one node opens those of all; leave scope out"
            )
    return None

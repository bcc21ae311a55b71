"""An app: the actors that a node runs, and what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.actor import Actor, Expectation, checked_tools
from engine.errors import DeclarationError
from engine.tools import Synthesizer, Tool, ToolLike


@dataclass(frozen=True, init=False)
class App:
    """Everything a node needs to know about its work. Any actor runs on any node of the app."""

    actors: Mapping[str, Actor]
    tools: Mapping[str, Tool]
    synthesizer: Synthesizer | None = field(default=None)

    def __init__(
        self,
        *,
        actors: Sequence[Actor],
        tools: Mapping[str, ToolLike] | None = None,
        synthesizer: Synthesizer | None = None,
    ) -> None:
        """Declare an app.

        Args:
            actors: at least one, each with an id of its own and at least one expectation.
            tools: capability → tool, for actors that have none of that name.
            synthesizer: for actors that have none.

        Raises:
            DeclarationError: a value cannot work; the message names it.
        """
        object.__setattr__(self, "actors", _by_id(actors))
        object.__setattr__(self, "tools", checked_tools(tools or {}, actor="(all)"))
        object.__setattr__(self, "synthesizer", synthesizer)

    def tool(self, actor: Actor, capability: str) -> Tool | None:
        """Return the tool that `actor` means by `capability`, or None if there is none."""
        return actor.tools.get(capability) or self.tools.get(capability)

    def synthesizer_of(self, actor: Actor, expectation: Expectation) -> Synthesizer | None:
        """Return the nearest synthesizer: the expectation's, the actor's or the app's."""
        return expectation.synthesizer or actor.synthesizer or self.synthesizer


def _by_id(actors: Sequence[Actor]) -> Mapping[str, Actor]:
    by_id: dict[str, Actor] = {}
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
        by_id[actor.id] = actor
    return by_id

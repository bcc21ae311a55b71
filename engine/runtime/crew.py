"""What all episodes of one actor on one node work with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.actor import Actor
from engine.app import App
from engine.runtime.breakers import Breakers
from engine.runtime.outlets import Outlets
from engine.runtime.permit import Permits
from engine.runtime.running import Running
from engine.runtime.slots import Slots
from engine.runtime.turns import Turns
from streams.clock import Clock
from streams.ports import Ports


@dataclass(frozen=True, kw_only=True)
class Crew:
    """One actor's means on one node."""

    app: App
    actor: Actor
    ports: Ports
    clock: Clock
    node: str
    permits: Permits
    """Whether the node may wake the actor and run its episodes; neither once it stops."""
    running: Running
    """What the node runs now, of all of its actors."""
    breakers: Breakers
    turns: Turns
    """The node's, for all of its actors."""
    outlets: Outlets
    """The node's adapters, for all of its actors."""
    slots: Slots
    """Places for episodes of this actor."""
    pens: Iterator[str]
    """Names that nobody used before, for those who write."""

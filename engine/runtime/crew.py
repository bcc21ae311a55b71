"""What all episodes of one actor on one node work with."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from engine.actor import Actor
from engine.app import App
from engine.runtime.applier import Turns
from engine.runtime.slots import Slots
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
    stopping: asyncio.Event
    turns: Turns
    """The node's, for all of its actors."""
    slots: Slots
    """Places for episodes of this actor."""
    pens: Iterator[str]
    """Names that nobody used before, for those who write."""

"""The life of a lane: which episodes wait in it, and which were admitted. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streams.model.lanes import Ticket
from streams.model.struct import Event


class LaneMoved(Event, frozen=True, kw_only=True, tag="lane.moved@1"):
    """One decision of an actor's scheduler."""

    placed: tuple[Ticket, ...] = ()
    admitted: tuple[str, ...] = ()
    """Episodes whose turn it is: they may run from now on."""
    shed: tuple[str, ...] = ()
    """Episodes that waited, and lost their place to others."""
    dropped: dict[str, str] = msgspec.field(default_factory=dict)
    """Episode → why it did not even get a place."""
    left: tuple[str, ...] = ()
    """Episodes that have ended."""
    kept_at: int = 0
    """Version of the newest `LaneKept` before it; 0: there is none."""


class LaneKept(Event, frozen=True, kw_only=True, tag="lane.kept@1"):
    """The whole lane, so that nobody need read what came before."""

    waiting: tuple[Ticket, ...] = ()
    """In the order in which they will be admitted."""
    admitted: tuple[Ticket, ...] = ()
    """In the order in which they were."""
    newest_number: int = 0
    """That of the ticket that was placed last."""


LaneEvent: TypeAlias = LaneMoved | LaneKept

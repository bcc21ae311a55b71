"""What something that woke an actor comes to: its parts.

All of them must be in good hands before it is answered for: an `EpisodeOpened` is to be opened, an
`Unreadable` to be buried, and the others are still to be ruled on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from engine.expectation import Expectation
from engine.schedule import Schedule
from streams.delivery import Unreadable
from streams.events import EpisodeOpened
from streams.timers import Due
from streams.triggers import ScheduleTrigger
from streams.world import DomainEvent


@dataclass(frozen=True, kw_only=True)
class Gated:
    """An event that fits, and that is still to be ruled on by what the cluster remembers."""

    expectation: Expectation
    event: DomainEvent
    is_calm: bool = False
    """Whether its subject has calmed down since."""
    coalesced: int = 0
    """How many earlier events it stands for then."""
    is_repeat: bool = False
    """Whether it was delivered before: then it may have been ruled on, and newer ones, too."""
    has_arrived: bool = False
    """Whether what was opened for it then, if anything, cannot be on its way any more."""


@dataclass(frozen=True, kw_only=True)
class Ticked:
    """A tick that is to be ruled on."""

    expectation: Expectation
    schedule: Schedule
    trigger: ScheduleTrigger
    is_repeat: bool = False
    is_missed: bool = False
    """Whether it opens nothing any more. What it has opened before is completed all the same."""


@dataclass(frozen=True, kw_only=True)
class Aged:
    """A finding that is to be looked at, for its time has come. It opens nothing."""

    due: Due
    subject: str
    """Where the finding's life is."""


Part: TypeAlias = EpisodeOpened | Unreadable | Gated | Ticked | Aged

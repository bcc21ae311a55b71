"""What a world has beyond the ordinary: one or two ways to wake an actor, or limits on it.

Many worlds have none, and are as they were before there were any. A world with everything
at once would be slow, and would hide what only one of them can do.

Some limits are about time: how soon something may happen after something else. Where answers get
lost and nodes freeze, a node may act on what it saw long ago, and only little can be promised. So a
part of these worlds is *fine*: whatever a node decides on happens at once there or never, and the
invariants about time can be strict.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Final

import msgspec


class Theme(StrEnum):
    """One thing that a world may have."""

    TICKS = "ticks"
    """Schedules, with each way to catch up."""
    COOLDOWN = "cooldown"
    """Expectations that rest after they have fired, one that takes a sample, and those of which no
    two episodes of a subject are open."""
    CALM = "calm"
    """Expectations that wait until a subject has calmed down."""
    BREAKER = "breaker"
    """Circuit breakers, and an outside that fails for a while."""
    FIRES = "fires"
    """People who fire by hand: at once, for later, twice, and only to try."""
    FEED = "feed"
    """A stream that is not ours, with a history."""
    HASTE = "haste"
    """Episodes that are not worth beginning after a while."""
    LANES = "lanes"
    """Actors whose episodes take turns in the whole cluster."""
    APPROVALS = "approvals"
    """Episodes that ask people, and people who decide: rightly, wrongly, twice, late, or never."""
    WAITS = "waits"
    """Episodes that wait for word from outside, which may come before that, or not at all."""
    OUTPUTS = "outputs"
    """Outputs, gated and not, and receivers that are busy, silent or gone."""
    WORKFLOWS = "workflows"
    """Workflows, and people who approve steps, have them tried again, and cancel instances."""
    DEFINITIONS = "definitions"
    """An actor that is data, and people who define it anew, disable it and apply it again."""
    FUNCTIONS = "functions"
    """An actor whose strategies are functions: branches, sleeps, retries and checkpoints."""


TAKING_TURNS: Final = frozenset(
    {Theme.LANES, Theme.APPROVALS, Theme.WAITS, Theme.OUTPUTS, Theme.WORKFLOWS}
)
"""Those that have actors whose episodes take turns."""


class Programme(msgspec.Struct, frozen=True):
    """What one world has."""

    themes: frozenset[Theme] = frozenset()
    has_orders: bool = False
    """Whether people switch nodes over and pause actors."""
    is_fine: bool = False
    """Whether nothing comes between what a node decides and what it does."""
    shut_since_s: float = 0.0
    """From when on what is outside fails for those who depend on it, in simulated seconds."""
    shut_for_s: float = 0.0

    @property
    def in_order(self) -> list[Theme]:
        """The themes, always in the same order."""
        return [theme for theme in Theme if theme in self.themes]

    def is_shut(self, at_s: float) -> bool:
        """Return whether what is outside fails at a time."""
        return self.shut_since_s <= at_s < self.shut_since_s + self.shut_for_s


THEMED_SHARE: Final = 0.65
FLOWING_SHARE: Final = 0.3
"""Of the others, those that have workflows: many events each, and so fewer worlds."""

DEFINED_SHARE: Final = 0.35
"""Of what is left then, those that have definitions."""

FUNCTIONS_SHARE: Final = 0.6
"""Of what is left then, those that have functions."""

_APART: Final = frozenset({Theme.WORKFLOWS, Theme.DEFINITIONS, Theme.FUNCTIONS})
OTHERS: Final = [theme for theme in Theme if theme not in _APART]

ORDERS_SHARE: Final = 0.3
FINE_SHARE: Final = 0.35


def programme_of(seed: int) -> Programme:
    """Return what the world of `seed` has: always the same."""
    rng = Random(f"themes {seed}")
    if rng.random() >= THEMED_SHARE:
        return _programme_with_workflows(seed)
    return _programme(set(rng.sample(OTHERS, rng.choice((1, 2)))), rng)


def _programme_with_workflows(seed: int) -> Programme:
    """Return what a world has that has workflows, or none of the other themes."""
    rng = Random(f"workflows {seed}")
    if rng.random() >= FLOWING_SHARE:
        return _programme_with_definitions(seed)
    return _programme({Theme.WORKFLOWS, *rng.sample(OTHERS, rng.choice((0, 0, 1)))}, rng)


def _programme_with_definitions(seed: int) -> Programme:
    """Return what a world has that has definitions, or none of the themes so far."""
    rng = Random(f"definitions {seed}")
    if rng.random() >= DEFINED_SHARE:
        return _programme_with_functions(seed)
    return _programme({Theme.DEFINITIONS, *rng.sample(OTHERS, rng.choice((0, 0, 1)))}, rng)


def _programme_with_functions(seed: int) -> Programme:
    """Return what a world has that has functions, or nothing special."""
    rng = Random(f"functions {seed}")
    if rng.random() >= FUNCTIONS_SHARE:
        return Programme()
    return _programme({Theme.FUNCTIONS, *rng.sample(OTHERS, rng.choice((0, 0, 1)))}, rng)


def _programme(themes: set[Theme], rng: Random) -> Programme:
    return Programme(
        frozenset(themes),
        has_orders=rng.random() < ORDERS_SHARE,
        is_fine=rng.random() < FINE_SHARE,
        shut_since_s=rng.uniform(2.0, 15.0),
        shut_for_s=rng.uniform(8.0, 30.0),
    )

"""The rule for whether a node wakes actors and runs their episodes. Pure.

    mode           wakes: opens episodes for events  runs: takes episodes and runs them
    full           yes                               yes
    trigger_only   yes                               no: they are for other nodes
    disabled       no                                no

The first of these that is set decides: the entry for the actor on this node, the entry for this
node, the node's own setting. No node wakes a paused actor, whatever the modes; queued and running
episodes continue, so a pause drains an actor. An unreadable entry counts as absent. The entries are
copies of what people have ordered: `engine.orders`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from streams.keys import MODES, PAUSES, name_in
from streams.model.modes import NodeMode
from streams.ports.bucket import BucketEntry


class GivenOrder(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What was ordered of one thing, and by whom."""

    order_no: int = 0
    """How many orders about it have come to this; of two copies the one with more is newer."""
    by: str = ""
    """Who gave the last one."""
    reason: str = ""
    at: datetime | None = None


class ModeOrder(
    GivenOrder, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The entry `mode.<node>`: what people want of one node."""

    mode: NodeMode | None = None
    """For every actor that `actors` does not name. None: the node's own setting."""
    actors: dict[str, NodeMode] = {}

    @property
    def holds(self) -> bool:
        """Whether it says anything."""
        return self.mode is not None or bool(self.actors)


class PauseOrder(
    GivenOrder, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The entry `pause.<actor>`: no node wakes the actor, unless the pause is over."""

    is_over: bool = False

    @property
    def holds(self) -> bool:
        """Whether the actor is paused."""
        return not self.is_over


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """All entries about modes and pauses that hold."""

    modes: Mapping[str, ModeOrder] = {}
    """By node."""
    pauses: Mapping[str, PauseOrder] = {}
    """By actor."""
    problems: Mapping[str, str] = {}
    """Key → why its entry cannot be read."""


class Switch(msgspec.Struct, frozen=True):
    """What a node may do for an actor."""

    wakes: bool
    runs: bool


SWITCHES: Final[Mapping[NodeMode, Switch]] = {
    NodeMode.FULL: Switch(wakes=True, runs=True),
    NodeMode.TRIGGER_ONLY: Switch(wakes=True, runs=False),
    NodeMode.DISABLED: Switch(wakes=False, runs=False),
}

NO_ORDERS: Final = Orders()

_modes: Final = msgspec.json.Decoder(ModeOrder)
_pauses: Final = msgspec.json.Decoder(PauseOrder)


def orders_of(entries: Iterable[BucketEntry]) -> Orders:
    """Return the modes and pauses among `entries` of the registry."""
    modes: dict[str, ModeOrder] = {}
    pauses: dict[str, PauseOrder] = {}
    problems: dict[str, str] = {}
    for entry in entries:
        kind = entry.key.partition(".")[0]
        try:
            if entry.value is not None and kind == MODES:
                modes[name_in(entry.key)] = _modes.decode(entry.value)
            elif entry.value is not None and kind == PAUSES:
                pauses[name_in(entry.key)] = _pauses.decode(entry.value)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problems[entry.key] = str(error)
    return Orders(
        modes={node: each for node, each in modes.items() if each.holds},
        # guard: resumed-actor-woken
        pauses={actor: each for actor, each in pauses.items() if each.holds},
        problems=problems,
    )


def mode_of(orders: Orders, *, node: str, setting: NodeMode, actor: str | None = None) -> NodeMode:
    """Return the mode of `node` for `actor`, or for actors without an entry of their own."""
    said = orders.modes.get(node, ModeOrder())
    whole = setting if said.mode is None else said.mode
    return whole if actor is None else said.actors.get(actor, whole)


def switch(orders: Orders, *, node: str, setting: NodeMode, actor: str) -> Switch:
    """Return what `node`, whose own setting is `setting`, may do for `actor`."""
    may = SWITCHES[mode_of(orders, node=node, setting=setting, actor=actor)]
    # guard: modes-wake-no-paused
    return Switch(wakes=may.wakes and actor not in orders.pauses, runs=may.runs)

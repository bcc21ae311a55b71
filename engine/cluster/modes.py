"""The rule for whether a node wakes actors and runs their episodes. Pure.

    mode           wakes: opens episodes for events  runs: takes episodes and runs them
    full           yes                               yes
    trigger_only   yes                               no: they are for other nodes
    disabled       no                                no

The first of these that is set decides: the entry for the actor on this node, the entry for this
node, the node's own setting. No node wakes a paused actor, whatever the modes; queued and running
episodes continue, so a pause drains an actor. An unreadable entry counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from streams.keys import MODES, PAUSES, name_in
from streams.ports.bucket import BucketEntry


class NodeMode(StrEnum):
    """What a node does for an actor."""

    FULL = "full"
    TRIGGER_ONLY = "trigger_only"
    DISABLED = "disabled"


class ModeOrder(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The entry `mode.<node>`: what people want of one node."""

    mode: NodeMode | None = None
    """For every actor that `actors` does not name. None: the node's own setting."""
    actors: dict[str, NodeMode] = {}
    by: str = ""
    """Who changed it last."""
    at: datetime | None = None


class PauseOrder(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The entry `pause.<actor>`: no node wakes the actor."""

    by: str = ""
    reason: str = ""
    at: datetime | None = None


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """All entries about modes and pauses."""

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
    return Orders(modes=modes, pauses=pauses, problems=problems)


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


def with_mode(
    said: ModeOrder | None, mode: NodeMode, *, actor: str | None, by: str, at: datetime
) -> ModeOrder:
    """Return a node's entry with `mode` set, for `actor` or for the node."""
    before = said or ModeOrder()
    if actor is None:
        return ModeOrder(mode=mode, actors=before.actors, by=by, at=at)
    return ModeOrder(mode=before.mode, actors={**before.actors, actor: mode}, by=by, at=at)


def without_mode(
    said: ModeOrder | None, *, actor: str | None, by: str, at: datetime
) -> ModeOrder | None:
    """Return a node's entry without the mode of `actor`, or of the node; None: none is left."""
    if said is None or actor is None:
        return None
    actors = {each: mode for each, mode in said.actors.items() if each != actor}
    if said.mode is None and not actors:
        return None
    return ModeOrder(mode=said.mode, actors=actors, by=by, at=at)

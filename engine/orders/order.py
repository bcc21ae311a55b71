"""What people order of one thing: what of it changes anything, and what all of it comes to. Pure.

key                             orders                       come to
mode.<node>                     NodeModeSet, NodeModeUnset   ModeOrder: a copy, in the registry
pause.<actor>                   ActorPaused, ActorResumed    PauseOrder: a copy, in the registry
breaker.<actor>.<expectation>   BreakerReset                 BreakerOrder: carried out in the gates
layout                          LayoutSet                    LayoutOrder: carried out already
login                           LoginRequired, LoginWaived   LoginOrder: looked up by commands
retention, retention.<actor>    RetentionDeclared            RetentionOrder: read before each run
cuts                            RowsCut                      CutOrder: rows, by the projector
hold.<kind>.<held>              HoldAdded, HoldRemoved       HoldOrder: rows, and read before runs
encrypted                       KindsEncrypted               EncryptionOrder: carried out already
erased.<subject of data>        SubjectErased                ErasureOrder: carried out by its giver
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias, get_args

from msgspec.structs import replace

from engine.cluster.modes import GivenOrder, ModeOrder, PauseOrder
from streams.keys import (
    BREAKERS,
    CUTS,
    HOLDS,
    LOGIN,
    MODES,
    PAUSES,
    RETENTION,
    breaker_key,
    hold_key,
    mode_key,
    pause_key,
    retention_key,
)
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    BreakerReset,
    HoldAdded,
    HoldRemoved,
    KindsEncrypted,
    LayoutSet,
    LoginRequired,
    LoginWaived,
    NodeModeSet,
    NodeModeUnset,
    OrderEvent,
    RetentionDeclared,
    RowsCut,
    SubjectErased,
)
from streams.model.retention import HoldKind, RetentionCut
from streams.ports.log import Recorded

LAYOUT: Final = "layout"
"""The key of what was ordered of the layout."""

ENCRYPTED: Final = "encrypted"
"""The key of what was ordered of kinds of subjects."""

ERASED: Final = "erased"
"""Begins the keys of what was ordered of subjects of data."""

_EVENTS: Final = get_args(OrderEvent)


class BreakerOrder(GivenOrder, frozen=True, kw_only=True):
    """That people have had a circuit breaker closed."""

    newest: str = ""
    """The id of the newest such commit."""


class LayoutOrder(GivenOrder, frozen=True, kw_only=True):
    """Over how many partitions people have spread the stack."""

    partitions: int = 0
    """0: nobody has moved it since it was made."""


class LoginOrder(GivenOrder, frozen=True, kw_only=True):
    """Whether people have to sign in before they order something."""

    is_required: bool = False


class RetentionOrder(GivenOrder, frozen=True, kw_only=True):
    """How long the things of an actor are kept, or those of all that do not say."""

    kept_s: Mapping[str, int] = {}


class CutOrder(GivenOrder, frozen=True, kw_only=True):
    """What is gone from the tables."""

    cuts: tuple[RetentionCut, ...] = ()


class HoldOrder(GivenOrder, frozen=True, kw_only=True):
    """Whether something is held."""

    kind: HoldKind | None = None
    """None: nobody has ever held it."""
    held: str = ""
    is_over: bool = True


class EncryptionOrder(GivenOrder, frozen=True, kw_only=True):
    """Of which kinds of subjects people have had data encrypted."""

    kinds: tuple[str, ...] = ()


class ErasureOrder(GivenOrder, frozen=True, kw_only=True):
    """That people have had the data of a subject erased."""

    key_id: str = ""
    """Of the newest key that was destroyed for it; empty: none was."""


Order: TypeAlias = (
    ModeOrder
    | PauseOrder
    | BreakerOrder
    | LayoutOrder
    | LoginOrder
    | RetentionOrder
    | CutOrder
    | HoldOrder
    | EncryptionOrder
    | ErasureOrder
)


def key_of(event: OrderEvent) -> str:
    """Return the key of what an order is about; raise `BadName` if that cannot exist."""
    match event:
        case NodeModeSet(node=node) | NodeModeUnset(node=node):
            return mode_key(node)
        case ActorPaused(actor_id=actor) | ActorResumed(actor_id=actor):
            return pause_key(actor)
        case BreakerReset(actor_id=actor, expectation_id=expectation):
            return breaker_key(actor, expectation)
        case LayoutSet():
            return LAYOUT
        case LoginRequired() | LoginWaived():
            return LOGIN
        case RetentionDeclared(actor_id=actor):
            return retention_key(actor)
        case RowsCut():
            return CUTS
        case HoldAdded(kind=what, held=held) | HoldRemoved(kind=what, held=held):
            return hold_key(what.value, held)
        case KindsEncrypted():
            return ENCRYPTED
        case SubjectErased(subject=subject):
            return f"{ERASED}.{subject}"


def unordered(key: str) -> Order:
    """Return what holds of the thing with this key before anything was ordered of it."""
    match key.partition(".")[0]:
        case kind if kind == MODES:
            return ModeOrder()
        case kind if kind == PAUSES:
            return PauseOrder(is_over=True)
        case kind if kind == BREAKERS:
            return BreakerOrder()
        case kind if kind == LOGIN:
            return LoginOrder()
        case kind if kind == RETENTION:
            return RetentionOrder()
        case kind if kind == CUTS:
            return CutOrder()
        case kind if kind == HOLDS:
            return HoldOrder()
        case kind if kind == ENCRYPTED:
            return EncryptionOrder()
        case kind if kind == ERASED:
            return ErasureOrder()
        case _:
            return LayoutOrder()


def decide(order: Order, event: OrderEvent) -> tuple[OrderEvent, ...]:
    """Return the order to note; nothing if all is so already."""
    match order, event:
        case ModeOrder(), NodeModeSet(mode=mode, actor_id=""):
            changes = order.mode is not mode
        case ModeOrder(), NodeModeSet(mode=mode, actor_id=actor):
            changes = order.actors.get(actor) is not mode
        case ModeOrder(), NodeModeUnset(actor_id=actor):
            changes = actor in order.actors if actor else order.holds
        case PauseOrder(), ActorPaused(by=by, reason=reason):
            changes = order.is_over or (by, reason) != (order.by, order.reason)
        case PauseOrder(), ActorResumed():
            changes = order.holds  # guard: resumed-once
        case LayoutOrder(), LayoutSet(partitions=partitions):
            changes = order.partitions != partitions  # guard: repeated-move-noted-once
        case LoginOrder(), LoginRequired() | LoginWaived():
            changes = order.is_required is not isinstance(event, LoginRequired)
        case EncryptionOrder(), KindsEncrypted(kinds=kinds):
            changes = order.kinds != kinds
        case ErasureOrder(), SubjectErased(key_id=key_id):
            # Repeated after it was done, there is no key, and all was said.
            changes = not order.order_no or key_id not in {"", order.key_id}
        case _:
            changes = _changes_retention(order, event)
    return (event,) if changes else ()


def _changes_retention(order: Order, event: OrderEvent) -> bool:
    match order, event:
        case RetentionOrder(), RetentionDeclared(kept_s=kept_s):
            return order.kept_s != kept_s or not order.order_no
        case CutOrder(), RowsCut(cuts=cuts):
            return order.cuts != cuts
        case HoldOrder(), HoldAdded() | HoldRemoved():
            return order.is_over is isinstance(event, HoldAdded)  # guard: hold-noted-once
        case _:
            return True


def evolve(order: Order, event: OrderEvent, *, at: datetime, id: str) -> Order:
    """Return what holds after an order that was given at a time, in the commit of an id."""
    match order, event:
        case ModeOrder(), NodeModeSet(mode=mode, actor_id=""):
            order = replace(order, mode=mode)
        case ModeOrder(), NodeModeSet(mode=mode, actor_id=actor):
            order = replace(order, actors={**order.actors, actor: mode})
        case ModeOrder(), NodeModeUnset(actor_id=""):
            order = replace(order, mode=None, actors={})
        case ModeOrder(), NodeModeUnset(actor_id=actor):
            others = {each: mode for each, mode in order.actors.items() if each != actor}
            order = replace(order, actors=others)
        case PauseOrder(), ActorPaused() | ActorResumed():
            order = replace(order, is_over=isinstance(event, ActorResumed))
        case BreakerOrder(), BreakerReset():
            order = replace(order, newest=id)
        case LayoutOrder(), LayoutSet(partitions=partitions):
            order = replace(order, partitions=partitions)
        case LoginOrder(), LoginRequired() | LoginWaived():
            order = replace(order, is_required=isinstance(event, LoginRequired))
        case _:
            order = _evolve_rest(order, event)
    number = order.order_no + 1
    return replace(order, order_no=number, by=event.by, reason=event.reason, at=at)


def _evolve_rest(order: Order, event: OrderEvent) -> Order:
    match order, event:
        case RetentionOrder(), RetentionDeclared(kept_s=kept_s):
            return replace(order, kept_s=kept_s)
        case CutOrder(), RowsCut(cuts=cuts):
            return replace(order, cuts=cuts)
        case HoldOrder(), HoldAdded(kind=what, held=held) | HoldRemoved(kind=what, held=held):
            is_over = isinstance(event, HoldRemoved)
            return replace(order, kind=what, held=held, is_over=is_over)
        case EncryptionOrder(), KindsEncrypted(kinds=kinds):
            return replace(order, kinds=kinds)
        case ErasureOrder(), SubjectErased(key_id=key_id):
            return replace(order, key_id=key_id or order.key_id)
        case _:
            return order


def fold(records: Sequence[Recorded], *, key: str) -> Order:
    """Return what holds of the thing with this key after all orders in `records`."""
    order = unordered(key)
    for record in records:
        for event in record.commit.events:
            if isinstance(event, _EVENTS):
                order = evolve(order, event, at=record.commit.at, id=record.commit.id)
    return order

"""What people order: modes, pauses, breakers, layouts, logins, retention, encryption. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from streams.model.modes import NodeMode
from streams.model.retention import HoldKind, RetentionCut
from streams.model.struct import Event


class NodeModeSet(Event, frozen=True, kw_only=True, tag="order.mode_set@1"):
    """A node is to do no more than this from now on, also when it comes back."""

    node: str
    mode: NodeMode
    actor_id: str = ""
    """Only for this actor; empty: for all that have no mode of their own there."""
    by: str
    """Who wanted it."""
    reason: str = ""


class NodeModeUnset(Event, frozen=True, kw_only=True, tag="order.mode_unset@1"):
    """The node's own setting counts again."""

    node: str
    actor_id: str = ""
    """Only for this actor, for which the node's mode counts again; empty: for all of them."""
    by: str
    reason: str = ""


class ActorPaused(Event, frozen=True, kw_only=True, tag="order.actor_paused@1"):
    """No node wakes the actor from now on."""

    actor_id: str
    by: str
    reason: str = ""


class ActorResumed(Event, frozen=True, kw_only=True, tag="order.actor_resumed@1"):
    """Nodes wake the actor again."""

    actor_id: str
    by: str
    reason: str = ""


class BreakerReset(Event, frozen=True, kw_only=True, tag="order.breaker_reset@1"):
    """The circuit breaker of an expectation is closed, and its failures are forgotten."""

    actor_id: str
    expectation_id: str
    by: str
    reason: str = ""


class LayoutSet(Event, frozen=True, kw_only=True, tag="order.layout_set@1"):
    """The stack was moved to so many partitions."""

    partitions: int
    by: str
    reason: str = ""


class LoginRequired(Event, frozen=True, kw_only=True, tag="order.login_required@1"):
    """Who orders something of the stack by its commands has to sign in first."""

    by: str
    reason: str = ""


class LoginWaived(Event, frozen=True, kw_only=True, tag="order.login_waived@1"):
    """Nobody has to."""

    by: str
    reason: str = ""


class RetentionDeclared(Event, frozen=True, kw_only=True, tag="order.retention_declared@1"):
    """So long are things kept from now on, by the settings of a node or the code of an actor."""

    actor_id: str = ""
    """Whose things; empty: those of all actors that say nothing of their own."""
    kept_s: Mapping[str, int] = {}
    """What (a `RetentionField`) → how long after its end, in seconds; if not named, for ever."""
    by: str
    reason: str = ""


class KindsEncrypted(Event, frozen=True, kw_only=True, tag="order.kinds_encrypted@1"):
    """What is written about subjects of these kinds is encrypted, from the next start of a node."""

    kinds: tuple[str, ...]
    """All that are, those of earlier orders too."""
    by: str
    reason: str = ""


class RowsCut(Event, frozen=True, kw_only=True, tag="order.rows_cut@1"):
    """What ended before these times leaves the tables, and does not come back."""

    cuts: tuple[RetentionCut, ...]
    """All that hold: those of earlier events are forgotten."""
    by: str
    reason: str = ""


class HoldAdded(Event, frozen=True, kw_only=True, tag="order.hold_added@1"):
    """Nothing of this may go, however old it is."""

    kind: HoldKind
    held: str
    """The subject's id, the actor or the episode."""
    by: str
    reason: str = ""


class HoldRemoved(Event, frozen=True, kw_only=True, tag="order.hold_removed@1"):
    """It is kept for as long as everything else again."""

    kind: HoldKind
    held: str
    by: str
    reason: str = ""


class SubjectErased(Event, frozen=True, kw_only=True, tag="order.subject_erased@1"):
    """The key is destroyed that what was written about a subject of data is encrypted with.

    It is noted before that is done: whoever was interrupted erases again.
    """

    subject: str
    """Such as `client_id/123`."""
    key_id: str
    """Of the key; empty: there was none any more."""
    key_digest: str
    """SHA-256 of the key, in hex; empty as `key_id`."""
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    """Kind → how many have contents that are gone with it: episodes, findings, outputs…"""
    by: str
    reason: str = ""


OrderEvent: TypeAlias = (
    NodeModeSet
    | NodeModeUnset
    | ActorPaused
    | ActorResumed
    | BreakerReset
    | LayoutSet
    | LoginRequired
    | LoginWaived
    | RetentionDeclared
    | RowsCut
    | HoldAdded
    | HoldRemoved
    | KindsEncrypted
    | SubjectErased
)

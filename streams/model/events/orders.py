"""What people order of a node, an actor, a circuit breaker, the layout, or logins. Pure."""

from __future__ import annotations

from typing import TypeAlias

from streams.model.modes import NodeMode
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


OrderEvent: TypeAlias = (
    NodeModeSet
    | NodeModeUnset
    | ActorPaused
    | ActorResumed
    | BreakerReset
    | LayoutSet
    | LoginRequired
    | LoginWaived
)

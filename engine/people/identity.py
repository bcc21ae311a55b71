"""Who asks for something, and what that one may do. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from enum import StrEnum

import msgspec


class Role(StrEnum):
    """What somebody may do in a stack; each may do what those before it may."""

    VIEWER = "viewer"
    """Look at everything but prompts and secrets."""
    APPROVER = "approver"
    """Decide on what waits for approval."""
    OPERATOR = "operator"
    """Publish, fire, cancel, retry, requeue, switch modes, and read what models were asked."""
    ADMIN = "admin"
    """Say who may do what."""

    def includes(self, other: Role) -> bool:
        """Return whether who has this role may do what `other` may."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who is behind a request: a person that has signed in, or a program with a token."""

    name: str
    """What the journal has as `by`."""
    role: Role
    groups: AbstractSet[str] = frozenset()
    """The groups that approvals may name."""
    token: str = ""
    """The id of the token that a program came with; empty: a person."""
    scopes: AbstractSet[str] | None = None
    """What the token is for, such as `read`, `events:publish`; None: all that the role may."""

    @property
    def is_person(self) -> bool:
        """Whether it is a person: programs never decide on approvals."""
        return not self.token

    def may(self, role: Role, scope: str = "") -> bool:
        """Return whether it may do what takes `role`, and `scope` of a token."""
        is_in_scope = self.scopes is None or not scope or scope in self.scopes
        return self.role.includes(role) and is_in_scope

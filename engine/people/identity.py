"""Who asks for something, and what that one may do. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

import msgspec

from engine.errors import BadRequest
from streams.model.people import Role

__all__ = ["Identity", "Role", "meant_by", "role_of"]

DRY_RUN: Final = "dry_run"
"""The field of what may be tried only; None: who asks leaves it open."""

A = TypeVar("A", bound=msgspec.Struct)


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

    is_agent: bool = False
    """Whether a model decides what is done with its token: see `meant_by`."""

    @property
    def is_person(self) -> bool:
        """Whether it is a person: programs never decide on approvals."""
        return not self.token

    def may(self, role: Role, scope: str = "") -> bool:
        """Return whether it may do what takes `role`, and `scope` of a token."""
        is_in_scope = self.scopes is None or not scope or scope in self.scopes
        return self.role.includes(role) and is_in_scope


def meant_by(who: Identity, asked: A) -> A:
    """Return what `who` asks for: what an agent asks for is a dry run, unless it says that not."""
    if getattr(asked, DRY_RUN, False) is not None:
        return asked
    return msgspec.structs.replace(asked, **{DRY_RUN: who.is_agent})  # guard: agents-run-dry


def role_of(role: str) -> Role:
    """Return the role called so; raise `BadRequest` if there is none."""
    try:
        return Role(role)
    except ValueError as error:
        problem = f"{role!r:.40} is none; use {', '.join(Role)}"
        raise BadRequest(field="role", problem=problem) from error

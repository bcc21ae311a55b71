"""Values of the events of people: roles, and sessions. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from streams.model.struct import Struct


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


class SignInWay(StrEnum):
    """How somebody has shown who it is."""

    PASSWORD = "password"  # noqa: S105 - a way, and no password
    LINK = "link"
    """A link that `vigil up` has printed, which works once."""
    OIDC = "oidc"
    """A provider of OpenID Connect has said so."""


class SavedView(Struct, frozen=True, kw_only=True):
    """A list of the console with filters, under a name that somebody gave it."""

    name: str
    address: str
    """The path of the list and its filters, such as `/episodes?status=failed`."""
    is_default: bool = False
    """Whether the navigation leads that one to it, and not to the whole list."""


class LoginSession(Struct, frozen=True, kw_only=True):
    """Somebody has signed in on some machine."""

    id: str
    secret_hash: str
    """SHA-256 of the secret that the machine keeps, in hex digits."""
    way: SignInWay
    begun_at: datetime
    used_at: datetime
    """When it was last noted that it is used."""
    expires_at: datetime
    """When it is over however much it is used."""
    address: str = ""
    """Where it began; empty: nobody knows."""
    agent: str = ""
    """The program that was used there, as that called itself; shortened."""
    rights_no: int = 0
    """The change of the people that it began after; 0: it is of nobody among them."""
    role: Role | None = None
    """Only of nobody among the people: what it may do."""

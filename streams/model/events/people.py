"""Who may use a stack, who has signed in, and the tokens of programs. Pure.

key             is                           its events
people          all people, with their roles PersonAdded to IdentityLinked
login.<name>    the sign-ins of one of them  SessionBegun, SessionUsed, SessionEnded, SignInRefused
token.<id>      a token of a program         TokenIssued, TokenRevoked
link.<id>       a link that signs in once    LinkIssued, LinkUsed
views.<name>    saved views of one of them   ViewsSaved

Secrets are hashes only: of passwords argon2id, of what has 256 random bits SHA-256 in hex digits.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from streams.model.people import LoginSession, Role, SavedView
from streams.model.struct import Event


class PersonAdded(Event, frozen=True, kw_only=True, tag="person.added@1"):
    """Somebody may use the stack from now on."""

    name: str
    role: Role
    groups: tuple[str, ...] = ()
    """The groups that approvals may name, in order."""
    by: str
    """Who wanted it."""
    reason: str = ""


class PersonRemoved(Event, frozen=True, kw_only=True, tag="person.removed@1"):
    """Somebody may not use it any more: sessions and tokens end as well."""

    name: str
    by: str
    reason: str = ""


class RoleSet(Event, frozen=True, kw_only=True, tag="person.role_set@1"):
    """Somebody has another role, and has to sign in anew."""

    name: str
    role: Role
    by: str
    reason: str = ""


class GroupsSet(Event, frozen=True, kw_only=True, tag="person.groups_set@1"):
    """Somebody is in these groups, and in no others."""

    name: str
    groups: tuple[str, ...]
    by: str
    reason: str = ""


class PasswordSet(Event, frozen=True, kw_only=True, tag="person.password_set@1"):
    """Somebody has another password, and has to sign in anew."""

    name: str
    password_hash: str
    """As argon2 writes it, with its parameters and the salt."""
    by: str
    reason: str = ""


class IdentityLinked(Event, frozen=True, kw_only=True, tag="person.identity_linked@1"):
    """Somebody was known to a provider of OpenID Connect by this subject when first signing in."""

    name: str
    issuer: str
    subject: str
    """What that issuer calls it for ever; names and addresses may change."""
    by: str
    reason: str = ""


class SessionBegun(Event, frozen=True, kw_only=True, tag="person.session_begun@1"):
    """Somebody has signed in."""

    name: str
    session: LoginSession


class SessionUsed(Event, frozen=True, kw_only=True, tag="person.session_used@1"):
    """A session is in use; noted now and then."""

    name: str
    session_id: str


class SessionEnded(Event, frozen=True, kw_only=True, tag="person.session_ended@1"):
    """A session is over before its time."""

    name: str
    session_id: str
    by: str
    reason: str = ""


class SignInRefused(Event, frozen=True, kw_only=True, tag="person.sign_in_refused@1"):
    """Somebody has tried to sign in by this name with a wrong password."""

    name: str
    address: str = ""
    agent: str = ""


class LoginKept(Event, frozen=True, kw_only=True, tag="person.login_kept@1"):
    """All that counts of somebody's sign-ins before this commit, so that nobody need read it."""

    name: str
    sessions: tuple[LoginSession, ...] = ()
    """In the order in which they began."""
    refused_at: tuple[datetime, ...] = ()
    """The latest times at which a wrong password was given, since the last right one."""


class TokenIssued(Event, frozen=True, kw_only=True, tag="token.issued@1"):
    """A program may use the stack with this token."""

    id: str
    name: str
    """What the program is called."""
    role: Role
    scopes: tuple[str, ...] | None = None
    """What it is for, such as `read`, in order; None: all that the role may."""
    secret_hash: str
    expires_at: datetime
    is_agent: bool = False
    """Whether a model decides what is done with it."""
    owner: str = ""
    """The person that answers for it: it may do no more than that one; empty: nobody among them."""
    owner_no: int = 0
    """The change of the people by which its owner was added."""
    by: str
    reason: str = ""


class TokenRevoked(Event, frozen=True, kw_only=True, tag="token.revoked@1"):
    """Nobody may use the token any more."""

    id: str
    name: str
    by: str
    reason: str = ""


class LinkIssued(Event, frozen=True, kw_only=True, tag="link.issued@1"):
    """Who has this link may sign in with it once."""

    id: str
    name: str
    """By which name."""
    role: Role
    secret_hash: str
    expires_at: datetime
    by: str


class LinkUsed(Event, frozen=True, kw_only=True, tag="link.used@1"):
    """Somebody has signed in with it."""

    id: str
    name: str
    address: str = ""
    agent: str = ""


class ViewsSaved(Event, frozen=True, kw_only=True, tag="person.views_saved@1"):
    """Somebody has these saved views of the console's lists from now on, and no others."""

    name: str
    views: tuple[SavedView, ...] = ()
    """In the order in which they were first saved."""
    owner_no: int = 0
    """The change of the people by which their owner was added; 0: nobody among them."""


RosterEvent: TypeAlias = (
    PersonAdded | PersonRemoved | RoleSet | GroupsSet | PasswordSet | IdentityLinked
)
LoginEvent: TypeAlias = SessionBegun | SessionUsed | SessionEnded | SignInRefused | LoginKept
TokenEvent: TypeAlias = TokenIssued | TokenRevoked
LinkEvent: TypeAlias = LinkIssued | LinkUsed

PersonEvent: TypeAlias = RosterEvent | LoginEvent | TokenEvent | LinkEvent | ViewsSaved

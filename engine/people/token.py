"""Tokens of programs, and links that sign somebody in once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.errors import NotOnJournal, Refused
from engine.people.identity import Identity
from engine.people.names import PROGRAM
from engine.people.roster import Roster
from engine.people.secret import Secret
from streams.model.events import (
    LinkEvent,
    LinkIssued,
    LinkUsed,
    TokenEvent,
    TokenIssued,
    TokenRevoked,
)
from streams.ports.log import Recorded

TOKEN_S: Final = 90 * 86_400.0
"""How long a token is good by default, in seconds: 90 days."""

TOKEN_S_MIN: Final = 60.0

TOKEN_S_MAX: Final = 366 * 86_400.0
"""Longest that a token may be good, in seconds."""

LINK_GOOD: Final = timedelta(minutes=10)
"""How long a link that signs in once is good."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token, as far as it was issued."""

    issued: TokenIssued | None = None
    is_revoked: bool = False


class OneTimeLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that signs in once."""

    issued: LinkIssued | None = None
    is_used: bool = False


def decide_revoked(
    token: Token, token_id: str, *, by: str, reason: str
) -> tuple[TokenRevoked, ...]:
    """Return what is to be noted; nothing if it was revoked. `NotOnJournal`: there is no such."""
    if token.issued is None:
        raise NotOnJournal(f"there is no token {token_id!r}")
    event = TokenRevoked(id=token_id, name=token.issued.name, by=by, reason=reason)
    return () if token.is_revoked else (event,)


def identity_of_token(
    token: Token, secret: Secret, roster: Roster, at: datetime
) -> Identity | None:
    """Return who a program with this secret is; None: it may do nothing.

    It may do no more than the person that answers for it, and nothing once that one is removed.
    """
    issued = token.issued
    # guard: revoked-token-over
    if issued is None or token.is_revoked or not secret.fits(issued.secret_hash):
        return None
    if at >= issued.expires_at:  # guard: expired-token-over
        return None
    role = issued.role
    if issued.owner:
        owner = roster.people.get(issued.owner)
        # guard: token-ends-with-owner
        if owner is None or owner.added_no != issued.owner_no:
            return None
        role = role if owner.role.includes(role) else owner.role  # guard: token-below-owner
    return Identity(
        name=f"{PROGRAM}{issued.name}",
        role=role,
        token=issued.id,
        scopes=None if issued.scopes is None else frozenset(issued.scopes),
        is_agent=issued.is_agent,
    )


def owned(issued: TokenIssued, roster: Roster) -> TokenIssued:
    """Return a token to issue, with the person that answers for it: `by`, if it is one of them.

    Raises `Refused` if that one may not do as much.
    """
    person = roster.people.get(issued.by)
    if person is None:
        return issued
    if not person.role.includes(issued.role):  # guard: token-issued-below-owner
        says = f"{person.name!r} is {person.role}, and no token of that one may be {issued.role}"
        raise Refused(says)
    return replace(issued, owner=person.name, owner_no=person.added_no)


def decide_used(
    link: OneTimeLink, secret: Secret, at: datetime, *, address: str, agent: str
) -> list[LinkUsed]:
    """Return what is to be noted when somebody signs in with a link; nothing: it is not good."""
    issued = link.issued
    if issued is None or not secret.fits(issued.secret_hash):
        return []
    if link.is_used or at >= issued.expires_at:  # guard: link-works-once
        return []
    return [LinkUsed(id=secret.of, name=issued.name, address=address, agent=agent)]


def fold_token(records: Sequence[Recorded]) -> Token:
    """Return a token after all that was noted of it."""
    token = Token()
    for record in records:
        for event in record.commit.events:
            if isinstance(event, TokenEvent):
                token = _token_after(token, event)
    return token


def _token_after(token: Token, event: TokenEvent) -> Token:
    match event:
        case TokenIssued():
            return Token(issued=event)
        case TokenRevoked():
            return Token(issued=token.issued, is_revoked=True)


def fold_link(records: Sequence[Recorded]) -> OneTimeLink:
    """Return a link after all that was noted of it."""
    link = OneTimeLink()
    for record in records:
        for event in record.commit.events:
            if isinstance(event, LinkEvent):
                link = _link_after(link, event)
    return link


def _link_after(link: OneTimeLink, event: LinkEvent) -> OneTimeLink:
    match event:
        case LinkIssued():
            return OneTimeLink(issued=event)
        case LinkUsed():
            return OneTimeLink(issued=link.issued, is_used=True)

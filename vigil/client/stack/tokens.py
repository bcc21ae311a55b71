"""Tokens, with which programs use a stack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from engine.errors import BadRequest
from engine.people.identity import Role, role_of
from engine.people.names import check_person, check_token_id, scopes_of
from engine.people.secret import SecretKind, hash_of
from engine.people.store import PeopleStore, new_secret, new_token_id
from engine.people.token import (
    TOKEN_S,
    TOKEN_S_MAX,
    TOKEN_S_MIN,
    Token,
    decide_revoked,
    owned,
)
from engine.validation import Duration, check_cause, check_switch, seconds_of
from projections.postgres import reader
from projections.records import TokenSummary
from streams.model.events import TokenEvent, TokenIssued
from vigil.client.connections import Connections
from vigil.client.page import Page, PagedList

TOKENS: Final = PagedList(
    "tokens", TokenSummary, reader.list_tokens, {"issued_at": datetime, "token_id": str}
)


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was issued just now."""

    secret: str
    """Its text, which is told only here."""
    token_id: str
    expires_at: datetime


@dataclass(frozen=True)
class TokenCalls:
    """Calls about tokens of programs: `client.tokens`."""

    _connections: Connections

    async def issue(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        scopes: Iterable[str] | None = None,
        expires_in: Duration = TOKEN_S,
        is_agent: bool = False,
        reason: str = "",
        by: str | None = None,
    ) -> NewToken:
        """Issue a token for a program, which does what it does as `token:<name>`.

        It may never do more than the person who issues it, and ends with that one. Programs never
        decide on approvals, whatever their role.

        Args:
            name: what the program is called; as for people.
            role: `viewer`, `approver`, `operator` or `admin`.
            scopes: what it is for, such as `read` or `events:publish`; None: all that its role may.
            expires_in: how long it is good, such as `"30d"`: from a minute to 366 days; by default
                90 days.
            is_agent: whether a model decides what is done with it.

        Raises:
            Mistake: a value is impossible.
            Trouble: `by` is one of the people, and may do less than that.
        """
        who = self._connections.who(by)
        async with self._connections.log() as ports:
            check_cause(who, reason)
            check_person("name", name)
            check_switch("is_agent", value=is_agent)
            wanted, listed = role_of(role), scopes_of(scopes)
            good = timedelta(seconds=_seconds(expires_in))
            store = PeopleStore(ports, self._connections.clock)
            roster = await store.roster()
            token_id = new_token_id()
            secret = new_secret(SecretKind.TOKEN, token_id)

            def rule(_: Token, at: datetime) -> Sequence[TokenEvent]:
                issued = TokenIssued(
                    id=token_id,
                    name=name,
                    role=wanted,
                    scopes=listed,
                    secret_hash=hash_of(secret),
                    expires_at=at + good,
                    is_agent=is_agent,
                    by=who,
                    reason=reason,
                )
                return (owned(issued, roster),)

            (noted,) = await store.change_token(token_id, rule)
        assert isinstance(noted, TokenIssued)
        return NewToken(secret=secret, token_id=token_id, expires_at=noted.expires_at)

    async def revoke(self, token_id: str, *, reason: str = "", by: str | None = None) -> bool:
        """Revoke a token, for good; return False if it was. Programs have it for 5 s at most.

        Raises:
            NotFound: there is no such token.
        """
        who = self._connections.who(by)
        async with self._connections.log() as ports:
            check_cause(who, reason)
            check_token_id("token_id", token_id)
            store = PeopleStore(ports, self._connections.clock)
            rule = partial(_revoked, token_id=token_id, by=who, reason=reason)
            return bool(await store.change_token(token_id, rule))

    async def list(
        self,
        *,
        is_good: bool | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[TokenSummary]:
        """Return tokens, the latest first, from the rows.

        Args:
            is_good: only those that were neither revoked nor have expired, or only the others.
            after: the `next` of a page: only what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: `after` is no such `next`.
        """
        at = self._connections.clock.now()
        return await TOKENS.page(
            self._connections, after=after, limit=limit, is_good=is_good, at=at, reverse=reverse
        )


def _revoked(
    token: Token, _: datetime, *, token_id: str, by: str, reason: str
) -> Sequence[TokenEvent]:
    return decide_revoked(token, token_id, by=by, reason=reason)


def _seconds(duration: Duration) -> float:
    try:
        return seconds_of(duration, least_s=TOKEN_S_MIN, most_s=TOKEN_S_MAX)
    except ValueError as error:
        raise BadRequest(field="expires_in", problem=str(error)) from error

"""People, their sign-ins and their tokens on the log: loaded, and changed at the version read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeAlias
from uuid import uuid4

from engine.people import login as logins
from engine.people.login import Login
from engine.people.names import ID_CHARS, ROSTER, link_key, login_key, token_key, views_key
from engine.people.roster import Roster, decide_all
from engine.people.roster import fold as fold_roster
from engine.people.secret import RANDOM_BYTES, SecretKind, secret_text
from engine.people.token import OneTimeLink, Token, fold_link, fold_token
from engine.people.views import PersonViews, ViewsRule, decide_views, fold_views, views_for
from engine.runtime.store import Loaded, Store, Turns, only_newest
from streams.clock import Clock
from streams.layout import Kind
from streams.model.events import LinkEvent, LoginEvent, RosterEvent, TokenEvent, ViewsSaved
from streams.model.people import SavedView
from streams.ports.all import Ports

LoginRule: TypeAlias = Callable[[Login, datetime], Sequence[LoginEvent]]


@dataclass
class PeopleStore:
    """What a stack knows of people. One for each process, so that little is read twice."""

    ports: Ports
    clock: Clock
    _turns: Turns = field(default_factory=Turns)
    _roster: Loaded[Roster] | None = None

    async def roster(self) -> Roster:
        """Return all people."""
        self._roster = await self._rosters().load(self._at_roster(), known=self._roster)
        return self._roster.state

    async def groups_of(self, name: str) -> tuple[str, ...]:
        """Return the groups of somebody, in order; none of nobody among the people."""
        person = (await self.roster()).people.get(name)
        return () if person is None else person.groups

    async def order(self, *events: RosterEvent) -> Sequence[RosterEvent]:
        """Note orders about people in one commit; return those that have changed something.

        Raises:
            NotOnJournal: nobody is called so.
            Refused: it cannot be; the message says why.
        """
        return await self.order_as(lambda _: events)

    async def order_as(
        self, rule: Callable[[Roster], Sequence[RosterEvent]]
    ) -> Sequence[RosterEvent]:
        """Note the orders that `rule` makes of all people, as `order` does."""
        changed = await self._rosters().change(
            self._at_roster(), lambda roster, at: decide_all(roster, rule(roster), at), id=_new_id()
        )
        self._roster = changed.after
        return changed.events

    async def login(self, name: str) -> Login:
        """Return the sign-ins of somebody."""
        return (await self._logins(name).load(self._at(login_key(name)))).state

    async def change_login(self, name: str, rule: LoginRule) -> Sequence[LoginEvent]:
        """Note what `rule` makes of somebody's sign-ins; return what that is, or nothing."""

        def decide(login: Login, at: datetime) -> Sequence[LoginEvent]:
            return logins.noted(login, rule(login, at), at)

        at = self._at(login_key(name))
        return (await self._logins(name).change(at, decide, id=_new_id())).events[1:]

    async def token(self, token_id: str) -> Token:
        """Return a token."""
        return (await self._tokens().load(self._at(token_key(token_id)))).state

    async def change_token(
        self, token_id: str, rule: Callable[[Token, datetime], Sequence[TokenEvent]]
    ) -> Sequence[TokenEvent]:
        """Note what `rule` makes of a token; return what that is, or nothing."""
        at = self._at(token_key(token_id))
        return (await self._tokens().change(at, rule, id=_new_id())).events

    async def change_link(
        self, link_id: str, rule: Callable[[OneTimeLink, datetime], Sequence[LinkEvent]]
    ) -> Sequence[LinkEvent]:
        """Note what `rule` makes of a link; return what that is, or nothing."""
        store = Store[OneTimeLink, LinkEvent](
            self.ports.log, self.clock, fold_link, turns=self._turns
        )
        return (await store.change(self._at(link_key(link_id)), rule, id=_new_id())).events

    async def views(self, name: str) -> tuple[SavedView, ...]:
        """Return the saved views of somebody."""
        found = (await self._views().load(self._at(views_key(name)))).state
        if not found.views:
            return ()
        return views_for(found, await self._owner_no(name))

    async def change_views(self, name: str, rule: ViewsRule) -> Sequence[ViewsSaved]:
        """Note what `rule` makes of somebody's saved views; return what that is, or nothing."""
        owner_no = await self._owner_no(name)

        def decide(found: PersonViews, _: datetime) -> Sequence[ViewsSaved]:
            return decide_views(found, rule, name=name, owner_no=owner_no)

        return (await self._views().change(self._at(views_key(name)), decide, id=_new_id())).events

    async def _owner_no(self, name: str) -> int:
        person = (await self.roster()).people.get(name)
        return 0 if person is None else person.added_no

    def _rosters(self) -> Store[Roster, RosterEvent]:
        return Store(self.ports.log, self.clock, fold_roster, turns=self._turns)

    def _logins(self, name: str) -> Store[Login, LoginEvent]:
        fold = partial(logins.fold, name=name)
        return Store(self.ports.log, self.clock, fold, after=only_newest, turns=self._turns)

    def _views(self) -> Store[PersonViews, ViewsSaved]:
        return Store(self.ports.log, self.clock, fold_views, after=only_newest, turns=self._turns)

    def _tokens(self) -> Store[Token, TokenEvent]:
        return Store(self.ports.log, self.clock, fold_token, turns=self._turns)

    def _at_roster(self) -> str:
        return self._at(ROSTER)

    def _at(self, key: str) -> str:
        return self.ports.stack.aggregate(Kind.PERSON, key)


def new_secret(kind: SecretKind, of: str) -> str:
    """Return the text of a secret that nobody can guess."""
    return secret_text(kind, of, secrets.token_bytes(RANDOM_BYTES))


def new_token_id() -> str:
    """Return the id of a new token or link."""
    return secrets.token_hex(ID_CHARS // 2)


def _new_id() -> str:
    return f"people.{uuid4().hex}"

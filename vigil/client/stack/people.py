"""People: who may use the stack, signing in, and who shows a secret."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from engine.errors import NotOnJournal, Refused
from engine.orders.store import give_order
from engine.people import login as logins
from engine.people import sign_in as signing_in
from engine.people import views as saved_views
from engine.people.identity import Identity, Role, role_of
from engine.people.names import check_person, groups_of, is_name
from engine.people.passwords import Passwords
from engine.people.roster import KnownPerson, Roster
from engine.people.secret import SecretKind, hash_of, secret_in
from engine.people.sign_in import Origin, SignedIn, identity_of_session
from engine.people.store import PeopleStore
from engine.people.throttle import AddressThrottle
from engine.people.views import ViewsRule
from engine.people.vouched import Vouched
from engine.validation import check_cause, check_switch
from projections.postgres import reader
from projections.records import AuditEntry
from streams.model.events import (
    GroupsSet,
    LoginEvent,
    LoginRequired,
    LoginWaived,
    PasswordSet,
    PersonAdded,
    PersonRemoved,
    RoleSet,
    RosterEvent,
)
from vigil.client.connections import Connections
from vigil.client.page import Page, PagedList, checked_one_of
from vigil.client.stack.orders import OrderOutcome
from vigil.errors import NotSignedIn
from vigil.logins import is_login_required

if TYPE_CHECKING:
    from projections.postgres.reader import OneOrMore
    from streams.model.people import SavedView
    from streams.ports.all import Ports

IDENTIFIED_S: Final = 5.0
"""How long it is believed who shows a secret, in seconds: a session that was ended on another
machine is over everywhere after that."""

IDENTIFIED_MAX: Final = 10_000
"""Secrets for which that is remembered at a time."""

AUDITED: Final = (
    "added",
    "removed",
    "role_set",
    "groups_set",
    "password_set",
    "identity_linked",
    "session_begun",
    "session_ended",
    "sign_in_refused",
    "token_issued",
    "token_revoked",
    "link_issued",
    "link_used",
)
"""What the audit tells of."""

AUDIT: Final = PagedList(
    "audit",
    AuditEntry,
    reader.list_audit,
    {"at": datetime, "journal_seq": int, "event_no": int, "person_key": str},
)

_REFUSED: Final = "the name and the password do not go together, or too many were wrong"

_WAIT: Final = (
    f"after {logins.REFUSED_MAX} wrong ones wait {logins.REFUSED_WITHIN.seconds // 60} min"
)


class PersonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may use the stack."""

    name: str
    role: Role
    groups: Sequence[str]
    """Those that approvals may name, in order."""
    has_password: bool
    issuer: str | None
    """The provider of OpenID Connect that has vouched for this one; None: none yet."""
    added_at: datetime
    added_by: str


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A session of somebody, without its secret."""

    session_id: str
    way: str
    """`password`, `link` or `oidc`."""
    begun_at: datetime
    used_at: datetime
    """When it was last noted that it is used: every half hour."""
    expires_at: datetime
    address: str
    agent: str


class PeopleCalls:
    """Calls about people: `client.people`. All but `audit` read and write the log alone.

    A client that others share, as that of the console, keeps in mind for some seconds who shows a
    secret, and who was refused.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._passwords = Passwords()
        self._throttle = AddressThrottle()
        self._identified: OrderedDict[str, tuple[Identity | None, float]] = OrderedDict()
        self._kept: PeopleStore | None = None

    async def list(self) -> Sequence[PersonRecord]:
        """Return all people, by name."""
        async with self._store() as store:
            people = (await store.roster()).people
        return [_record(people[name]) for name in sorted(people)]

    async def get(self, name: str) -> PersonRecord:
        """Return somebody; raise `NotFound` if nobody is called so."""
        async with self._store() as store:
            return _record(await _person(store, name))

    async def groups_of(self, name: str) -> Sequence[str]:
        """Return the groups of somebody, in order; none if nobody is called so."""
        async with self._store() as store:
            return await store.groups_of(name)

    async def add(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        groups: Iterable[str] = (),
        password: str | None = None,
        reason: str = "",
        by: str | None = None,
    ) -> PersonRecord:
        """Let somebody use the stack, and return who that is.

        Args:
            name: letters, digits and `. _ @ + -`; it is the `by` of what that one orders. No two
                people differ by upper and lower case alone.
            role: `viewer`, `approver`, `operator` or `admin`.
            groups: those that approvals may name.
            password: 12 characters or more; None: there is none, and only a provider of OpenID
                Connect can vouch for that one. It needs the extra `web`.

        Raises:
            Mistake: a value is impossible.
            Trouble: there is somebody of that name, or there are too many people.
        """
        async with self._store() as store:
            check_person("name", name)
            added = PersonAdded(
                name=name,
                role=role_of(role),
                groups=groups_of(groups),
                by=self._connections.who(by),
                reason=reason,
            )
            events: list[RosterEvent] = [added]
            if password is not None:
                events.append(await self._password_set(name, password, by=added.by))
            await self._order(store, *events)
            return _record(await _person(store, name))

    async def remove(self, name: str, *, reason: str = "", by: str | None = None) -> None:
        """Let somebody use the stack no more: sessions and tokens are over at once.

        Raises:
            NotFound: nobody is called so.
            Trouble: it is the last admin.
        """
        who = self._connections.who(by)
        async with self._store() as store:
            await self._order(store, PersonRemoved(name=name, by=who, reason=reason))

    async def set_role(
        self, name: str, role: Role | str, *, reason: str = "", by: str | None = None
    ) -> bool:
        """Give somebody a role; return False if that one has it. All sessions of that one end.

        Raises:
            NotFound: nobody is called so.
            Mistake: there is no such role.
            Trouble: it is the last admin.
        """
        who = self._connections.who(by)
        async with self._store() as store:
            event = RoleSet(name=name, role=role_of(role), by=who, reason=reason)
            return await self._order(store, event)

    async def set_groups(
        self, name: str, groups: Iterable[str], *, reason: str = "", by: str | None = None
    ) -> bool:
        """Put somebody into these groups and no others; return False if all is so already.

        Raises:
            NotFound: nobody is called so.
            Mistake: a group cannot be called so.
        """
        who = self._connections.who(by)
        async with self._store() as store:
            event = GroupsSet(name=name, groups=groups_of(groups), by=who, reason=reason)
            return await self._order(store, event)

    async def set_password(
        self, name: str, password: str, *, reason: str = "", by: str | None = None
    ) -> None:
        """Give somebody a password of 12 characters or more. All sessions of that one end.

        Raises:
            NotFound: nobody is called so.
            Mistake: it is too short or too long, or the extra `web` is missing.
        """
        who = self._connections.who(by)
        async with self._store() as store:
            await _person(store, name)
            event = await self._password_set(name, password, by=who, reason=reason)
            await self._order(store, event)

    async def sign_in(
        self, name: str, password: str, *, address: str = "", agent: str = ""
    ) -> SignedIn:
        """Begin a session, whose secret shows from then on who somebody is.

        It is over after 7 days, or when it was not used for 12 hours, and when role or password of
        that one change. A refusal takes 0.75 s, and says the same whatever is wrong.

        Args:
            address: from where; 10 wrong passwords from one within 5 minutes, and it has to wait.
                Empty: nobody knows, and it does not.
            agent: what the program there calls itself.

        Raises:
            NotSignedIn: name and password do not go together, or too many were wrong before.
        """
        now_s = self._connections.clock.monotonic_s()
        if (wait_s := self._throttle.wait_s(address, now_s)) > 0:
            raise NotSignedIn(_REFUSED, remedy=f"wait {wait_s:.0f} s")
        # Noted before it is known to be wrong: many at once are counted, too.
        self._throttle.note(address, now_s)
        is_wrong = False
        try:
            async with self._store() as store:
                origin = Origin.of(address, agent)
                done = await signing_in.sign_in(store, self._passwords, name, password, origin)
                is_wrong = done is None
        finally:
            if not is_wrong:
                self._throttle.forgive(address, now_s)
        if done is None:
            raise NotSignedIn(_REFUSED, remedy=_WAIT)
        return done

    async def one_time_link(self, *, by: str | None = None) -> str:
        """Return a secret that signs in once within 10 minutes, as an admin called as `by`.

        For who has started the stack on a machine and has no password there: `vigil up` prints it.
        """
        who = self._connections.who(by)
        async with self._store() as store:
            check_person("by", who)
            return await signing_in.issue_link(store, who, by=who)

    async def sign_in_by_link(self, secret: str, *, address: str = "", agent: str = "") -> SignedIn:
        """Begin a session with a secret of `one_time_link`.

        Raises:
            NotSignedIn: it is none, is over, or was used.
        """
        async with self._store() as store:
            done = await signing_in.sign_in_by_link(store, secret, Origin.of(address, agent))
        if done is None:
            raise NotSignedIn("this link is not good", remedy="a link works once, for 10 minutes")
        return done

    async def sign_in_vouched(
        self, vouched: Vouched, *, address: str = "", agent: str = ""
    ) -> SignedIn:
        """Begin a session of somebody whom a provider of OpenID Connect has vouched for.

        For who has checked that, as the console has. The first time, its subject is linked to the
        person of that name, who is added if there is none and the provider says a role.

        Raises:
            Trouble: that one may not use the stack; the error says why.
        """
        self._identified.clear()
        async with self._store() as store:
            return await signing_in.sign_in_vouched(store, vouched, Origin.of(address, agent))

    async def identify(self, secret: str) -> Identity | None:
        """Return who shows a secret of a session or a token; None: nobody that may do anything.

        The answer is remembered for 5 s.
        """
        clock, hash_ = self._connections.clock, hash_of(secret)
        known = self._identified.get(hash_)
        if known is not None and clock.monotonic_s() < known[1]:  # guard: identity-believed-briefly
            return known[0]
        async with self._store() as store:
            found = await signing_in.identify(store, secret)
        self._identified[hash_] = (found, clock.monotonic_s() + IDENTIFIED_S)
        self._identified.move_to_end(hash_)
        if len(self._identified) > IDENTIFIED_MAX:
            self._identified.popitem(last=False)
        return found

    async def sign_out(self, secret: str) -> bool:
        """End the session of a secret; return False if there is none."""
        self._identified.clear()
        async with self._store() as store:
            shown = secret_in(secret)
            if shown is None or shown.kind is not SecretKind.SESSION:
                return False
            session = (await store.login(shown.of)).session_of(shown)
            if session is None:
                return False
            return await _end(store, shown.of, session.id, by=shown.of, reason="signed out")

    async def sessions(self, name: str) -> Sequence[SessionRecord]:
        """Return the sessions of somebody that are not over, the first one first."""
        async with self._store() as store:
            if not is_name(name):
                raise NotOnJournal(f"nobody is called {name!r:.120}")
            login, roster = await store.login(name), await store.roster()
            now = store.clock.now()
            return [
                SessionRecord(
                    session_id=each.id,
                    way=each.way.value,
                    begun_at=each.begun_at,
                    used_at=each.used_at,
                    expires_at=each.expires_at,
                    address=each.address,
                    agent=each.agent,
                )
                for each in login.sessions
                if not logins.is_over(each, now) and identity_of_session(login, each, roster)
            ]

    async def end_sessions(
        self,
        name: str,
        session_id: str | None = None,
        *,
        reason: str = "",
        by: str | None = None,
    ) -> bool:
        """End a session of somebody, or all (None); return False if there is none."""
        who = self._connections.who(by)
        self._identified.clear()
        async with self._store() as store:
            check_cause(who, reason)
            if not is_name(name):
                raise NotOnJournal(f"nobody is called {name!r:.120}")
            return await _end(store, name, session_id, by=who, reason=reason)

    async def is_login_required(self) -> bool:
        """Return whether people have to sign in before they order something by a command."""
        async with self._connections.log(is_reading=True) as ports:
            return await is_login_required(ports)

    async def require_login(
        self, *, is_required: bool = True, reason: str = "", by: str | None = None
    ) -> OrderOutcome:
        """Say whether people have to sign in before they order something by a command.

        Raises:
            Trouble: it is to be required, and there is no admin with a password.
        """
        who = self._connections.who(by)
        async with self._store() as store:
            if is_required:  # guard: login-needs-an-admin
                _check_admin(await store.roster())
            order = (LoginRequired if is_required else LoginWaived)(by=who, reason=reason)
            is_new = await give_order(store.ports, order, clock=store.clock)
        says = "people have to sign in" if is_required else "nobody has to sign in"
        return OrderOutcome(is_new=is_new, says=says)

    async def audit(
        self,
        *,
        name: str | None = None,
        change: OneOrMore | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 50,
    ) -> Page[AuditEntry]:
        """Return who signed in, was refused, or changed what about people: the latest first.

        Args:
            name: only what is about somebody or some program, or was done by that one.
            change: such as `session_begun`, or several; None: any.
            after: the `next` of a page: only what follows it.
            reverse: from the other end of the list: the first comes first.

        Raises:
            Mistake: there is no such change, or `after` is no such `next`.
        """
        wanted = checked_one_of("change", change, AUDITED)
        return await AUDIT.page(
            self._connections, after=after, limit=limit, name=name, change=wanted, reverse=reverse
        )

    async def views(self, *, by: str | None = None) -> Sequence[SavedView]:
        """Return the views of the console's lists that you have saved; nobody else sees them."""
        who = self._connections.who(by)
        if not is_name(who):
            return ()
        async with self._store() as store:
            return await store.views(who)

    async def save_view(
        self, name: str, address: str, *, is_default: bool = False, by: str | None = None
    ) -> bool:
        """Save the address of a list under a name; return False if all is so already.

        It takes the place of a view of that list and that name, and is kept for you alone.

        Args:
            name: 1 to 80 characters.
            address: path and filters, such as `/episodes?status=failed`, of 2,000 characters at
                most. Where in the list and at which time a page is, is left out.
            is_default: whether the navigation of your console leads to it.

        Raises:
            Mistake: it is no list of the console, or a value is impossible.
            Trouble: you have 50 of them.
        """

        def rule(views: Sequence[SavedView]) -> tuple[SavedView, ...]:
            check_switch("is_default", value=is_default)
            view = saved_views.view_named(name, address, is_default=is_default)
            return saved_views.with_view(views, view)

        return await self._change_views(by, rule)

    async def remove_view(self, page: str, name: str, *, by: str | None = None) -> bool:
        """Remove a view that you have saved of a list; return False if there is none.

        Args:
            page: the path of the list, such as `/episodes`.
        """
        return await self._change_views(
            by, lambda views: saved_views.without_view(views, page, name)
        )

    async def set_default_view(
        self, page: str, name: str | None = None, *, by: str | None = None
    ) -> bool:
        """Have the navigation of your console lead to a view; return False if it does already.

        Args:
            page: the path of the list, such as `/episodes`.
            name: that of the view; None: to the whole list.

        Raises:
            Mistake: there is no such view of it.
        """
        return await self._change_views(
            by, lambda views: saved_views.with_default(views, page, name)
        )

    async def _change_views(self, by: str | None, rule: ViewsRule) -> bool:
        who = self._connections.who(by)
        async with self._store() as store:
            check_person("by", who)
            return bool(await store.change_views(who, rule))

    @asynccontextmanager
    async def _store(self) -> AsyncIterator[PeopleStore]:
        async with self._connections.log() as ports:
            yield self._store_on(ports)

    def _store_on(self, ports: Ports) -> PeopleStore:
        if self._kept is None or self._kept.ports is not ports:
            self._kept = PeopleStore(ports, self._connections.clock)
        return self._kept

    async def _order(self, store: PeopleStore, *events: RosterEvent) -> bool:
        for each in events:
            check_cause(each.by, each.reason)
        self._identified.clear()
        return bool(await store.order(*events))

    async def _password_set(
        self, name: str, password: str, *, by: str, reason: str = ""
    ) -> PasswordSet:
        hash_ = await self._passwords.hash(password)
        return PasswordSet(name=name, password_hash=hash_, by=by, reason=reason)


async def _person(store: PeopleStore, name: str) -> KnownPerson:
    person = (await store.roster()).people.get(name)
    if person is None:
        raise NotOnJournal(f"nobody is called {name!r:.120}")
    return person


async def _end(
    store: PeopleStore, name: str, session_id: str | None, *, by: str, reason: str
) -> bool:
    def rule(login: logins.Login, at: datetime) -> Sequence[LoginEvent]:
        return logins.end(login, at, session_id=session_id, by=by, reason=reason)

    return bool(await store.change_login(name, rule))


def _check_admin(roster: Roster) -> None:
    if not any(each.password_hash or each.subject for each in roster.admins()):
        raise Refused(
            "nobody could sign in as an admin: run `vigil users add NAME --role admin` first"
        )


def _record(person: KnownPerson) -> PersonRecord:
    return PersonRecord(
        name=person.name,
        role=person.role,
        groups=person.groups,
        has_password=bool(person.password_hash),
        issuer=person.issuer or None,
        added_at=person.added_at,
        added_by=person.added_by,
    )

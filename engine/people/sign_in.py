"""Signs people in, and says who shows a secret.

Whoever gives a wrong password learns nothing else: not whether there is such a person, neither by
the answer nor by the time that it takes, nor whether too many were wrong before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from engine.errors import Refused
from engine.people import login as logins
from engine.people.identity import Identity, Role
from engine.people.login import SESSION_MAX, Login
from engine.people.names import is_name
from engine.people.passwords import Passwords
from engine.people.roster import KnownPerson, Roster
from engine.people.secret import Secret, SecretKind, hash_of, secret_in, session_id_of
from engine.people.store import PeopleStore, new_secret, new_token_id
from engine.people.token import LINK_GOOD, OneTimeLink, decide_used, identity_of_token
from engine.people.vouched import Vouched, orders_for
from streams.errors import Unavailable, UnknownOutcome
from streams.model.events import LinkEvent, LinkIssued, LoginEvent
from streams.model.people import LoginSession, SignInWay

NOBODY: Final = "nobody"
"""Whose sign-ins are read where the name cannot be one."""

REFUSAL_S: Final = 0.75
"""When a refusal is answered after it was asked for, in seconds, so that the time tells nothing:
three times what a hash takes."""

ADDRESS_CHARS_MAX: Final = 64
"""Of an address, in characters."""

AGENT_CHARS_MAX: Final = 120
"""Of what a browser or another program calls itself; the rest is left out."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """From where somebody signs in."""

    address: str = ""
    agent: str = ""

    @classmethod
    def of(cls, address: str, agent: str) -> Origin:
        """Return an origin without what is too long, or cannot be shown."""
        return cls(address=_shown(address, ADDRESS_CHARS_MAX), agent=_shown(agent, AGENT_CHARS_MAX))


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody has signed in."""

    secret: str
    """What shows that from now on; whoever has it is that person. It is told only here."""
    identity: Identity
    session_id: str
    expires_at: datetime
    """When the session is over at the latest."""


async def sign_in(
    store: PeopleStore, passwords: Passwords, name: str, password: str, origin: Origin
) -> SignedIn | None:
    """Sign somebody in by a password; return None if name and password do not go together."""
    began_s = store.clock.monotonic_s()
    person = (await store.roster()).people.get(name) if is_name(name) else None
    login = await store.login(name if is_name(name) else NOBODY)
    is_right = await passwords.fits(password, person.password_hash if person else "")
    # guard: throttled-name-refused
    is_meant = is_right and not logins.is_throttled(login, store.clock.now())
    if person is not None and is_meant:
        return await begin_session(store, person, SignInWay.PASSWORD, origin)
    if person is not None:
        await store.change_login(person.name, partial(_refuse, origin))
    await store.clock.sleep(max(0.0, began_s + REFUSAL_S - store.clock.monotonic_s()))
    return None


def _refuse(origin: Origin, login: Login, at: datetime) -> Sequence[LoginEvent]:
    return logins.refuse(login, at, address=origin.address, agent=origin.agent)


async def begin_session(
    store: PeopleStore, person: KnownPerson, way: SignInWay, origin: Origin
) -> SignedIn:
    """Begin a session of somebody who has shown who it is."""
    who = _identity(person)
    return await _begin(store, who, way, origin, rights_no=person.rights_no, role=None)


async def sign_in_vouched(store: PeopleStore, vouched: Vouched, origin: Origin) -> SignedIn:
    """Sign in somebody whom a provider of OpenID Connect vouches for.

    Raises:
        Refused: that one may not use the stack; the message says why.
    """
    await store.order_as(lambda roster: orders_for(roster, vouched))
    person = (await store.roster()).linked(vouched.issuer, vouched.subject)
    if person is None:
        raise Refused(f"{vouched.name!r} was removed just now")
    return await begin_session(store, person, SignInWay.OIDC, origin)


async def issue_link(store: PeopleStore, name: str, *, by: str) -> str:
    """Return the secret of a new link, which signs in once as an admin of this name."""
    link_id = new_token_id()
    text = new_secret(SecretKind.LINK, link_id)

    def rule(_: OneTimeLink, at: datetime) -> Sequence[LinkEvent]:
        issued = LinkIssued(
            id=link_id,
            name=name,
            role=Role.ADMIN,
            secret_hash=hash_of(text),
            expires_at=at + LINK_GOOD,
            by=by,
        )
        return (issued,)

    await store.change_link(link_id, rule)
    return text


async def sign_in_by_link(store: PeopleStore, text: str, origin: Origin) -> SignedIn | None:
    """Sign in with a link; return None if it is none, is too old, or was used."""
    secret = secret_in(text)
    if secret is None or secret.kind is not SecretKind.LINK:
        return None
    of: list[LinkIssued] = []

    def rule(link: OneTimeLink, at: datetime) -> Sequence[LinkEvent]:
        of[:] = [] if link.issued is None else [link.issued]
        return decide_used(link, secret, at, address=origin.address, agent=origin.agent)

    if not await store.change_link(secret.of, rule):
        return None
    (issued,) = of
    who = Identity(name=issued.name, role=issued.role)
    return await _begin(store, who, SignInWay.LINK, origin, rights_no=0, role=issued.role)


async def _begin(
    store: PeopleStore,
    who: Identity,
    way: SignInWay,
    origin: Origin,
    *,
    rights_no: int,
    role: Role | None,
) -> SignedIn:
    text = new_secret(SecretKind.SESSION, who.name)
    hash_ = hash_of(text)
    begun: list[LoginSession] = []

    def rule(login: Login, at: datetime) -> Sequence[LoginEvent]:
        session = LoginSession(
            id=session_id_of(hash_),
            secret_hash=hash_,
            way=way,
            begun_at=at,
            used_at=at,
            expires_at=at + SESSION_MAX,
            address=origin.address,
            agent=origin.agent,
            rights_no=rights_no,
            role=role,
        )
        begun[:] = [session]
        return logins.begin(login, session)

    await store.change_login(who.name, rule)
    (session,) = begun
    return SignedIn(secret=text, identity=who, session_id=session.id, expires_at=session.expires_at)


async def identify(store: PeopleStore, text: str) -> Identity | None:
    """Return who shows a secret of a session or a token; None: nobody that may do anything."""
    secret = secret_in(text)
    match secret:
        case Secret(kind=SecretKind.SESSION):
            return await _of_session(store, secret)
        case Secret(kind=SecretKind.TOKEN):
            token = await store.token(secret.of)
            roster = await store.roster()
            return identity_of_token(token, secret, roster, store.clock.now())
        case _:  # A link shows nothing until it is used.
            return None


async def _of_session(store: PeopleStore, secret: Secret) -> Identity | None:
    login = await store.login(secret.of)
    session, at = login.session_of(secret), store.clock.now()
    if session is None or logins.is_over(session, at):
        return None
    found = identity_of_session(login, session, await store.roster())
    if found is not None and logins.use(login, session.id, at):
        try:
            await store.change_login(login.name, lambda now, at: logins.use(now, session.id, at))
        except (Unavailable, UnknownOutcome):
            # The session is good all the same; it is noted the next time.
            return found
    return found


def identity_of_session(login: Login, session: LoginSession, roster: Roster) -> Identity | None:
    """Return who has a session that is not over by time; None: it ended with a change of rights."""
    if session.role is not None:
        return Identity(name=login.name, role=session.role)
    person = roster.people.get(login.name)
    if person is None or person.rights_no != session.rights_no:  # guard: session-ends-with-rights
        return None
    return _identity(person)


def _identity(person: KnownPerson) -> Identity:
    return Identity(name=person.name, role=person.role, groups=frozenset(person.groups))


def _shown(text: str, most: int) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text[: 4 * most])
    return " ".join(printable.split())[:most].encode(errors="replace").decode()

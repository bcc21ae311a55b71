"""All people of a stack: who there is, and what becomes of an order about one of them. Pure.

They are one aggregate, so that two admins who remove each other cannot both succeed: there is an
admin for ever once there was one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, get_args

import msgspec
from msgspec.structs import replace

from engine.errors import NotOnJournal, Refused
from engine.people.identity import Role
from streams.model.events import (
    GroupsSet,
    IdentityLinked,
    PasswordSet,
    PersonAdded,
    PersonRemoved,
    RoleSet,
    RosterEvent,
)
from streams.ports.log import Recorded

PEOPLE_MAX: Final = 1_000
"""Most people of a stack."""

_EVENTS: Final = get_args(RosterEvent)


class KnownPerson(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may use the stack."""

    name: str
    role: Role
    groups: tuple[str, ...] = ()
    added_at: datetime
    added_by: str
    added_no: int
    """The change of the people by which this one was added: tokens of an earlier one are over."""
    rights_no: int
    """The newest change after which this one had to sign in anew: sessions before it are over."""
    password_hash: str = ""
    """Empty: there is no password to sign in with."""
    issuer: str = ""
    subject: str = ""


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """All people."""

    people: Mapping[str, KnownPerson] = {}
    """By name."""
    changes: int = 0
    """How many events have come to this."""

    def linked(self, issuer: str, subject: str) -> KnownPerson | None:
        """Return whom a provider of OpenID Connect knows by this subject."""
        found = (
            each
            for each in self.people.values()
            if (each.issuer, each.subject) == (issuer, subject)
        )
        return next(found, None)

    def admins(self) -> list[KnownPerson]:
        """Return those who may say who may do what."""
        return [each for each in self.people.values() if each.role is Role.ADMIN]


NOBODY: Final = Roster()


def decide_all(roster: Roster, events: Sequence[RosterEvent], at: datetime) -> list[RosterEvent]:
    """Return what is to be noted of several orders, one after the other; raises as `decide`."""
    noted: list[RosterEvent] = []
    for each in events:
        for event in decide(roster, each):
            roster = evolve(roster, event, at=at)
            noted.append(event)
    return noted


def decide(roster: Roster, event: RosterEvent) -> tuple[RosterEvent, ...]:
    """Return the order to note; nothing if all is so already.

    Raises:
        NotOnJournal: nobody is called so.
        Refused: it cannot be; the message says why.
    """
    if isinstance(event, PersonAdded):
        _check_new(roster, event.name)
        return (event,)
    person = roster.people.get(event.name)
    if person is None:
        raise NotOnJournal(f"nobody is called {event.name!r}")
    match event:
        case RoleSet(role=role):
            _check_admin_left(roster, person, role)
            return () if role is person.role else (event,)
        case GroupsSet(groups=groups):
            return () if groups == person.groups else (event,)
        case PersonRemoved():
            _check_admin_left(roster, person, None)
            return (event,)
        case IdentityLinked():
            return _decide_link(roster, person, event)
        case PasswordSet():
            return (event,)


def _check_new(roster: Roster, name: str) -> None:
    folded = {each.casefold(): each for each in roster.people}
    if (there := folded.get(name.casefold())) is not None:  # guard: no-two-people-alike
        raise Refused(f"there is {there!r} already")
    if len(roster.people) >= PEOPLE_MAX:
        raise Refused(f"there are {PEOPLE_MAX:,} people, and there may be no more; remove some")


def _check_admin_left(roster: Roster, person: KnownPerson, role: Role | None) -> None:
    """Raise `Refused` if nobody could say who may do what once `person` has `role`."""
    is_last = [each.name for each in roster.admins()] == [person.name]
    if is_last and role is not Role.ADMIN:  # guard: last-admin-stays
        raise Refused(f"{person.name!r} is the last admin; make somebody else one first")


def _decide_link(
    roster: Roster, person: KnownPerson, event: IdentityLinked
) -> tuple[IdentityLinked, ...]:
    there = roster.linked(event.issuer, event.subject)
    if there is not None and there.name != person.name:
        raise Refused(f"{event.issuer} knows {there.name!r} by this subject already")
    if person.subject and there is None:  # guard: linked-identity-stays
        raise Refused(f"{person.name!r} is another subject of {person.issuer}; remove that one")
    return () if there is not None else (event,)


def evolve(roster: Roster, event: RosterEvent, *, at: datetime) -> Roster:
    """Return all people after an event that was noted at a time."""
    number = roster.changes + 1
    people = dict(roster.people)
    if isinstance(event, PersonAdded):
        people[event.name] = KnownPerson(
            name=event.name,
            role=event.role,
            groups=event.groups,
            added_at=at,
            added_by=event.by,
            added_no=number,
            rights_no=number,
        )
    elif isinstance(event, PersonRemoved):
        people.pop(event.name, None)
    elif (person := people.get(event.name)) is not None:
        people[event.name] = _changed(person, event, number=number)
    return Roster(people=people, changes=number)


def _changed(
    person: KnownPerson,
    event: RoleSet | GroupsSet | PasswordSet | IdentityLinked,
    *,
    number: int,
) -> KnownPerson:
    match event:
        case RoleSet(role=role):
            return replace(person, role=role, rights_no=number)  # guard: role-ends-sessions
        case PasswordSet(password_hash=hash_):
            # guard: password-ends-sessions
            return replace(person, password_hash=hash_, rights_no=number)
        case GroupsSet(groups=groups):
            return replace(person, groups=groups)
        case IdentityLinked(issuer=issuer, subject=subject):
            return replace(person, issuer=issuer, subject=subject)


def fold(records: Sequence[Recorded]) -> Roster:
    """Return all people after all that was noted of them."""
    roster = NOBODY
    for record in records:
        for event in record.commit.events:
            if isinstance(event, _EVENTS):
                roster = evolve(roster, event, at=record.commit.at)
    return roster

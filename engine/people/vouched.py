"""Who a provider of OpenID Connect vouches for, and what that means for the people. Pure.

A provider knows somebody by a subject, for ever; names and groups may change. So the subject is
linked when that one first signs in, and a name alone opens no door that has another key.
"""

from __future__ import annotations

from typing import Final

import msgspec

from engine.errors import Refused
from engine.people.identity import Role
from engine.people.names import is_name
from engine.people.roster import KnownPerson, Roster
from streams.model.events import GroupsSet, IdentityLinked, PersonAdded, RoleSet, RosterEvent

BY: Final = "oidc"
"""Who has changed what a provider says."""


class Vouched(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says of somebody who has just signed in there."""

    issuer: str
    subject: str
    name: str
    role: Role | None = None
    """None: the provider says nothing of roles; an admin does."""
    groups: tuple[str, ...] | None = None
    """In order, each once; None: as `role`."""


def orders_for(roster: Roster, vouched: Vouched) -> list[RosterEvent]:
    """Return what is to be noted so that somebody may sign in.

    Raises:
        Refused: that one may not; the message says why.
    """
    linked = roster.linked(vouched.issuer, vouched.subject)
    if linked is not None:
        return _changes(roster, linked, vouched)
    link = IdentityLinked(name=vouched.name, issuer=vouched.issuer, subject=vouched.subject, by=BY)
    folded = {each.casefold(): person for each, person in roster.people.items()}
    there = folded.get(vouched.name.casefold())
    if there is None:
        return [_added(vouched), link]
    if there.password_hash or there.subject:  # guard: name-alone-takes-over-nobody
        says = f"there is {there.name!r} already, who signs in otherwise"
        raise Refused(f"{says}; an admin has to say who of you is called so")
    return [msgspec.structs.replace(link, name=there.name), *_changes(roster, there, vouched)]


def _added(vouched: Vouched) -> PersonAdded:
    if not is_name(vouched.name):
        raise Refused(f"{vouched.name!r:.120} can be nobody's name here; an admin has to add you")
    if vouched.role is None:  # guard: unknown-vouched-refused
        raise Refused(f"nobody has added {vouched.name!r}; ask an admin")
    groups = vouched.groups or ()
    return PersonAdded(name=vouched.name, role=vouched.role, groups=groups, by=BY)


def _changes(roster: Roster, person: KnownPerson, vouched: Vouched) -> list[RosterEvent]:
    """Return what of a person is to be as the provider says now."""
    changes: list[RosterEvent] = []
    # Whatever a provider says, there is an admin.
    is_last = [each.name for each in roster.admins()] == [person.name]
    if vouched.role not in (None, person.role) and not is_last:
        assert vouched.role is not None, "it is another role"
        changes.append(RoleSet(name=person.name, role=vouched.role, by=BY))
    if vouched.groups not in (None, person.groups):
        assert vouched.groups is not None, "these are other groups"
        changes.append(GroupsSet(name=person.name, groups=vouched.groups, by=BY))
    return changes

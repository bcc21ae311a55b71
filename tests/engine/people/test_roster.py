"""Who there is: an admin for ever once there was one, and nobody twice."""

from __future__ import annotations

import pytest

from engine.errors import NotOnJournal, Refused
from engine.people.identity import Role
from engine.people.roster import PEOPLE_MAX, decide_all, fold
from streams.model.events import (
    DefinitionDisabled,
    DefinitionKind,
    GroupsSet,
    IdentityLinked,
    PasswordSet,
    PersonAdded,
    PersonRemoved,
    RoleSet,
)
from streams.ports.log import Commit, Recorded
from tests.spec import EPOCH


def added(name="ann", role=Role.ADMIN, groups=()):
    return PersonAdded(name=name, role=role, groups=groups, by="root")


def role_set(role, name="ann"):
    return RoleSet(name=name, role=role, by="root")


def linked(name="ann", subject="s1"):
    return IdentityLinked(name=name, issuer="https://id", subject=subject, by="oidc")


REMOVED = PersonRemoved(name="ann", by="root")
PASSWORD = PasswordSet(name="ann", password_hash="argon2", by="root")
GROUPS = GroupsSet(name="ann", groups=("oncall",), by="root")


def after(*events):
    commit = Commit(id="c", at=EPOCH, events=events)
    return fold([Recorded(subject="s", seq=1, commit=commit)])


def noted(past, *orders):
    return decide_all(after(*past), orders, EPOCH)


def test_who_was_added_is_there_with_role_groups_and_by_whom():
    ann = after(added(groups=("dba",)), PASSWORD, GROUPS, linked()).people["ann"]
    assert (ann.role, ann.groups, ann.added_by, ann.added_at) == (
        Role.ADMIN, ("oncall",), "root", EPOCH,
    )  # fmt: skip
    assert (ann.password_hash, ann.issuer, ann.subject) == ("argon2", "https://id", "s1")


def test_nobody_is_there_twice_not_even_in_capitals():
    for name in ("ann", "Ann", "ANN"):
        with pytest.raises(Refused, match="there is 'ann' already"):
            noted([added()], added(name))


def test_there_are_so_many_people_at_most():
    full = [added(f"p{number}") for number in range(PEOPLE_MAX)]
    with pytest.raises(Refused, match="there may be no more"):
        noted(full, added("one_more"))
    assert noted([*full, PersonRemoved(name="p1", by="root")], added("one_more"))


@pytest.mark.parametrize("order", [REMOVED, role_set(Role.OPERATOR)])
def test_the_last_admin_stays_an_admin(order):
    with pytest.raises(Refused, match="'ann' is the last admin; make somebody else one first"):
        noted([added(), added("bob", Role.OPERATOR)], order)
    assert noted([added(), added("bob")], order) == [order]
    with pytest.raises(Refused, match="'bob' is the last admin"):
        noted([added(), added("bob")], order, PersonRemoved(name="bob", by="ann"))


def test_what_is_so_already_is_not_noted():
    past = [added(), GROUPS, linked()]
    assert noted(past, role_set(Role.ADMIN), GROUPS, linked()) == []


@pytest.mark.parametrize("order", [REMOVED, role_set(Role.ADMIN), PASSWORD, GROUPS, linked()])
def test_of_nobody_nothing_is_noted(order):
    with pytest.raises(NotOnJournal, match="nobody is called 'ann'"):
        noted([], order)
    assert after(order).people == {}


def test_a_change_of_role_or_password_is_one_of_rights_and_one_of_groups_is_none():
    first = after(added()).people["ann"].rights_no
    for change in (role_set(Role.VIEWER), PASSWORD):
        assert after(added(), change).people["ann"].rights_no > first
    for change in (GROUPS, linked()):
        assert after(added(), change).people["ann"].rights_no == first


def test_who_was_removed_and_added_again_is_somebody_else():
    one, other = after(added()).people["ann"], after(added(), REMOVED, added()).people["ann"]
    assert (one.added_no, one.rights_no) == (1, 1)
    assert (other.added_no, other.rights_no) == (3, 3)


def test_an_identity_of_a_provider_is_one_person_for_ever():
    past = [added(), added("bob"), linked()]
    assert after(*past).linked("https://id", "s1").name == "ann"
    assert after(*past).linked("https://other", "s1") is None
    with pytest.raises(Refused, match="knows 'ann' by this subject already"):
        noted(past, linked("bob"))
    with pytest.raises(Refused, match="'ann' is another subject of https://id"):
        noted(past, linked(subject="s2"))


def test_what_is_not_about_people_is_passed():
    stray = DefinitionDisabled(kind=DefinitionKind.AGENT, id="a", revision=1, by="ann")
    assert after(stray).changes == 0

"""Whom a provider vouches for signs in as whom it has linked, and takes over nobody's name."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.errors import Refused
from engine.people.identity import Role
from engine.people.vouched import Vouched, orders_for
from streams.model.events import GroupsSet, IdentityLinked, PersonAdded, RoleSet
from tests.engine.people.test_roster import PASSWORD, added, after, linked

ANN = Vouched(issuer="https://id", subject="s1", name="ann", role=Role.OPERATOR, groups=("oncall",))
SILENT = replace(ANN, role=None, groups=None)
LINK = IdentityLinked(name="ann", issuer="https://id", subject="s1", by="oidc")


def test_who_is_new_is_added_with_what_the_provider_says():
    person, link = orders_for(after(), ANN)
    assert person == PersonAdded(name="ann", role=Role.OPERATOR, groups=("oncall",), by="oidc")
    assert link == LINK
    assert after(person, link).linked("https://id", "s1").role is Role.OPERATOR


def test_who_is_new_and_has_no_role_there_is_added_by_an_admin_first():
    with pytest.raises(Refused, match="nobody has added 'ann'; ask an admin"):
        orders_for(after(), SILENT)
    assert orders_for(after(added()), SILENT) == [LINK]


def test_role_and_groups_are_as_the_provider_says_now():
    past = [added("root"), added(), linked()]
    assert orders_for(after(*past), ANN) == [
        RoleSet(name="ann", role=Role.OPERATOR, by="oidc"),
        GroupsSet(name="ann", groups=("oncall",), by="oidc"),
    ]
    assert orders_for(after(*past), SILENT) == []


def test_the_last_admin_stays_one_whatever_a_provider_says():
    assert orders_for(after(added(), linked()), replace(ANN, groups=None)) == []


@pytest.mark.parametrize("past", [[added(), PASSWORD], [added(), linked(subject="s2")]])
def test_a_name_alone_takes_over_nobody(past):
    for name in ("ann", "Ann"):
        with pytest.raises(Refused, match="there is 'ann' already, who signs in otherwise"):
            orders_for(after(*past), replace(ANN, name=name))


def test_another_name_of_a_known_subject_is_the_same_person():
    orders = orders_for(after(added("root"), added(), linked()), replace(ANN, name="ann.b"))
    assert {each.name for each in orders} == {"ann"}


def test_what_can_be_nobodys_name_is_refused():
    with pytest.raises(Refused, match="'Ann B' can be nobody's name here"):
        orders_for(after(), replace(ANN, name="Ann B"))

"""Leave that is given, withdrawn, held back and branched."""

from __future__ import annotations

import pytest

from engine.runtime.permits import Permit


def given() -> Permit:
    permit = Permit()
    permit.turn(on=True)
    return permit


def test_nothing_is_given_that_is_held_back():
    trunk = given()
    branch = trunk.branch()
    assert branch.hold(on=True)
    assert (branch.is_given, trunk.is_given) == (False, True)


def test_what_was_given_meanwhile_holds_once_it_is_let_go():
    trunk = Permit()
    branch = trunk.branch()
    branch.hold(on=True)
    trunk.turn(on=True)
    assert not branch.is_given
    assert branch.hold(on=False)
    assert branch.is_given


def test_what_was_withdrawn_meanwhile_is_not_given_when_it_is_let_go():
    trunk = given()
    branch = trunk.branch()
    branch.hold(on=True)
    trunk.turn(on=False)
    assert not branch.hold(on=False)
    assert not branch.is_given


def test_whoever_works_under_a_grant_notices_that_it_is_held_back():
    permit = given()
    withdrawn = permit.withdrawn
    permit.hold(on=True)
    permit.hold(on=False)
    assert withdrawn.is_set()
    assert permit.is_given


@pytest.mark.parametrize("on", [True, False])
def test_what_has_ended_stays_so(on):
    permit = given()
    permit.end()
    assert not permit.hold(on=on)
    assert not permit.is_given


def test_branches_are_held_back_with_their_trunk():
    trunk = given()
    branch = trunk.branch()
    trunk.hold(on=True)
    assert not branch.is_given

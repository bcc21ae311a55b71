"""Tokens and links are good for their time, and for no more than their owner may do."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from engine.errors import BadRequest, NotOnJournal, Refused
from engine.people.identity import Role, role_of
from engine.people.names import groups_of, is_name, scopes_of
from engine.people.secret import Secret, SecretKind, hash_of, secret_in, secret_text
from engine.people.token import (
    LINK_GOOD,
    decide_revoked,
    decide_used,
    fold_link,
    fold_token,
    identity_of_token,
    owned,
)
from streams.model.events import LinkIssued, LinkUsed, PersonRemoved, TokenIssued, TokenRevoked
from streams.ports.log import Commit, Recorded
from tests.engine.people.test_roster import added, role_set
from tests.engine.people.test_roster import after as people_after
from tests.spec import EPOCH

ID = "0123456789ab"
SECRET = secret_in(secret_text(SecretKind.TOKEN, ID, bytes(32)))
OTHER = secret_in(secret_text(SecretKind.TOKEN, ID, bytes([1]) * 32))
ISSUED = TokenIssued(
    id=ID,
    name="ci",
    role=Role.OPERATOR,
    scopes=("read",),
    secret_hash=SECRET.hash,
    expires_at=EPOCH + timedelta(days=1),
    by="ann",
)
REVOKED = TokenRevoked(id=ID, name="ci", by="bob", reason="leaked")
LINK = secret_in(secret_text(SecretKind.LINK, ID, bytes(32)))
LINKED = LinkIssued(
    id=ID,
    name="root",
    role=Role.ADMIN,
    secret_hash=LINK.hash,
    expires_at=EPOCH + LINK_GOOD,
    by="root",
)
USED = LinkUsed(id=ID, name="root", address="a", agent="x")


def recorded(*events):
    return [Recorded(subject="s", seq=1, commit=Commit(id="c", at=EPOCH, events=events))]


def shown(*events, secret=SECRET, roster=None, at=EPOCH):
    people = people_after() if roster is None else roster
    return identity_of_token(fold_token(recorded(*events)), secret, people, at)


def test_a_token_is_a_program_with_its_role_and_scopes():
    who = shown(ISSUED)
    assert (who.name, who.role, who.token, who.scopes) == ("token:ci", Role.OPERATOR, ID, {"read"})
    assert shown(replace(ISSUED, scopes=None)).scopes is None
    assert not is_name(who.name)  # Nobody can be called so.


def test_a_token_is_nobody_once_it_is_over():
    assert shown() is None
    assert shown(ISSUED, secret=OTHER) is None
    assert shown(ISSUED, at=EPOCH + timedelta(days=1)) is None
    assert shown(ISSUED, REVOKED) is None


def test_a_token_may_no_more_than_who_answers_for_it_may_now():
    roster = people_after(added("bob"), added())
    mine = owned(ISSUED, roster)
    assert (mine.owner, mine.owner_no) == ("ann", 2)
    assert shown(mine, roster=roster).role is Role.OPERATOR
    lowered = people_after(added("bob"), added(), role_set(Role.VIEWER))
    assert shown(mine, roster=lowered).role is Role.VIEWER
    removed = [added("bob"), added(), PersonRemoved(name="ann", by="bob")]
    assert shown(mine, roster=people_after(*removed)) is None
    assert shown(mine, roster=people_after(*removed, added())) is None


def test_nobody_issues_a_token_that_may_more():
    roster = people_after(added(role=Role.VIEWER))
    with pytest.raises(Refused, match="'ann' is viewer, and no token of that one may be operator"):
        owned(ISSUED, roster)
    assert owned(ISSUED, people_after()) == ISSUED  # By nobody among the people.


def test_a_token_is_revoked_once():
    token = fold_token(recorded(ISSUED))
    assert decide_revoked(token, ID, by="bob", reason="leaked") == (REVOKED,)
    again = fold_token(recorded(ISSUED, REVOKED))
    assert decide_revoked(again, ID, by="bob", reason="leaked") == ()
    with pytest.raises(NotOnJournal, match=f"there is no token '{ID}'"):
        decide_revoked(fold_token(()), ID, by="bob", reason="")


def used(*events, secret=LINK, at=EPOCH):
    link = fold_link(recorded(*events))
    return decide_used(link, secret, at, address="a", agent="x")


def test_a_link_works_once_within_its_time():
    assert used(LINKED) == [USED]
    assert used(LINKED, USED) == []
    assert used(LINKED, at=EPOCH + LINK_GOOD) == []
    assert used(LINKED, secret=OTHER) == []
    assert used() == []


def test_a_secret_says_where_it_is_noted_and_what_is_no_secret_says_nothing():
    text = secret_text(SecretKind.SESSION, "ann_b@x.org", bytes(32))
    assert secret_in(text) == Secret(SecretKind.SESSION, "ann_b@x.org", hash_of(text))
    assert SECRET.of == ID
    for wrong in ("", "vs_ann_", "vs__" + "0" * 64, "vt_ann_" + "0" * 64, text + "\n", " " + text):
        assert secret_in(wrong) is None


def test_groups_and_scopes_are_in_order_and_each_is_there_once():
    assert groups_of(["b", "a", "b"]) == ("a", "b")
    assert scopes_of(["read", "events:publish"]) == ("events:publish", "read")
    assert scopes_of(None) is None
    for many in (["a b"], [""], ["x" * 101], [f"g{number}" for number in range(101)]):
        with pytest.raises(BadRequest, match="groups: "):
            groups_of(many)
    with pytest.raises(BadRequest, match="scopes: 'Read' cannot be"):
        scopes_of(["Read"])
    with pytest.raises(BadRequest, match="role: 'x' is none"):
        role_of("x")

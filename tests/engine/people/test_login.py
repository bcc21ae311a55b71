"""Sessions of a person: how long they last, and how often one may guess."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.people import login as logins
from engine.people.identity import Role
from engine.people.login import (
    IDLE_MAX,
    REFUSED_MAX,
    REFUSED_WITHIN,
    SESSION_MAX,
    SESSIONS_MAX,
    USED_NOTED,
    Login,
    fold,
    is_over,
    is_throttled,
)
from engine.people.secret import SecretKind, secret_in, secret_text
from engine.people.sign_in import identity_of_session
from streams.model.events import LoginKept, SessionBegun, SessionEnded, SessionUsed, SignInRefused
from streams.model.people import LoginSession, SignInWay
from streams.ports.log import Commit, Recorded
from tests.engine.people.test_roster import added, role_set
from tests.engine.people.test_roster import after as people_after
from tests.spec import EPOCH

MINUTE = timedelta(minutes=1)
REFUSED = SignInRefused(name="ann")


def secret(number=0):
    return secret_in(secret_text(SecretKind.SESSION, "ann", bytes([number]) * 32))


def session(number=0, at=EPOCH, **more):
    return LoginSession(
        id=f"s{number}",
        secret_hash=secret(number).hash,
        way=SignInWay.PASSWORD,
        begun_at=at,
        used_at=at,
        expires_at=at + SESSION_MAX,
        **more,
    )


def begun(number=0, **more):
    return SessionBegun(name="ann", session=session(number, **more))


def records(*commits):
    """Commits as they are noted, each some minutes after the one before."""
    login, found = Login(name="ann"), []
    for number, events in enumerate(commits):
        at = EPOCH + number * MINUTE
        commit = Commit(id=f"c{number}", at=at, events=tuple(logins.noted(login, events, at)))
        found.append(Recorded(subject="s", seq=number + 1, commit=commit))
        login = fold(found, name="ann")
    return found


def after(*events):
    return fold(records(events), name="ann")


def test_the_newest_commit_says_all_that_counts():
    lived = records(
        [begun(1)], [REFUSED], [begun(2)], [REFUSED], [SessionEnded(name="ann", session_id="s1",
        by="ann")], [SessionUsed(name="ann", session_id="s2")],
    )  # fmt: skip
    assert fold(lived[-1:], name="ann") == fold(lived, name="ann")
    left = fold(lived, name="ann")
    assert [each.id for each in left.sessions] == ["s2"]
    assert left.sessions[0].used_at == EPOCH + 5 * MINUTE
    assert left.refused_at == (EPOCH + 3 * MINUTE,)  # The first was before a right one.


def test_what_is_over_by_time_is_kept_no_longer():
    login = Login(name="ann", sessions=(session(1),), refused_at=(EPOCH,))
    kept, _ = logins.noted(login, [REFUSED], EPOCH + IDLE_MAX)
    assert kept == LoginKept(name="ann")
    assert logins.noted(login, [], EPOCH) == ()


def test_a_session_is_over_when_idle_or_old():
    one = session()
    assert not is_over(one, EPOCH + IDLE_MAX - MINUTE)
    assert is_over(one, EPOCH + IDLE_MAX)
    used = session(at=EPOCH + SESSION_MAX)
    assert not is_over(used, EPOCH + SESSION_MAX + MINUTE)
    in_use = LoginSession(
        id="s", secret_hash="h", way=SignInWay.OIDC, begun_at=EPOCH,
        used_at=EPOCH + SESSION_MAX - MINUTE, expires_at=EPOCH + SESSION_MAX,
    )  # fmt: skip
    assert not is_over(in_use, EPOCH + SESSION_MAX - MINUTE)
    assert is_over(in_use, EPOCH + SESSION_MAX)


def test_a_secret_finds_its_session_and_no_other():
    login = after(begun(1), begun(2))
    assert login.session_of(secret(2)).id == "s2"
    assert login.session_of(secret(3)) is None


def test_one_session_too_many_ends_the_one_unused_the_longest():
    login = after(*(begun(each) for each in range(SESSIONS_MAX)))
    login = logins.evolve(login, SessionUsed(name="ann", session_id="s0"), at=EPOCH + MINUTE)
    new = session(99, at=EPOCH + MINUTE)
    ended, began = logins.begin(login, new)
    assert isinstance(ended, SessionEnded)
    assert ended.session_id != "s0"
    assert began.session is new
    later = session(99, at=EPOCH + IDLE_MAX)  # Those that are over by time make room themselves.
    assert len(logins.begin(after(*(begun(n) for n in range(SESSIONS_MAX))), later)) == 1


def test_use_is_noted_now_and_then():
    login = after(begun())
    assert logins.use(login, "s0", EPOCH + USED_NOTED - MINUTE) == []
    assert logins.use(login, "s0", EPOCH + USED_NOTED) == [SessionUsed(name="ann", session_id="s0")]
    assert logins.use(login, "s0", EPOCH + IDLE_MAX) == []
    assert logins.use(login, "s1", EPOCH + USED_NOTED) == []


def test_one_session_ends_or_all_do():
    login = after(begun(1), begun(2))

    def ended(session_id, at=EPOCH):
        said = {"by": "root", "reason": "stolen"}
        return [each.session_id for each in logins.end(login, at, session_id=session_id, **said)]

    assert ended("s1") == ["s1"]
    assert ended(None) == ["s1", "s2"]
    assert ended("s3") == ended(None, EPOCH + SESSION_MAX) == []


def test_so_many_wrong_passwords_are_looked_at_and_noted():
    login = Login(name="ann")
    for number in range(REFUSED_MAX):
        assert not is_throttled(login, EPOCH)
        (refused,) = logins.refuse(login, EPOCH, address=f"a{number}", agent="x")
        login = logins.evolve(login, refused, at=EPOCH)
    assert is_throttled(login, EPOCH)
    assert logins.refuse(login, EPOCH, address="", agent="") == []
    assert not is_throttled(login, EPOCH + REFUSED_WITHIN)


def test_a_right_password_forgets_the_wrong_ones():
    assert after(REFUSED, REFUSED).refused_at == (EPOCH, EPOCH)
    assert after(REFUSED, begun()).refused_at == ()


@pytest.mark.parametrize(
    ("roster", "who"),
    [
        (people_after(added()), "ann"),
        (people_after(added(), role_set(Role.VIEWER)), None),
        (people_after(), None),
    ],
)
def test_a_session_is_its_persons_until_the_rights_change(roster, who):
    found = identity_of_session(Login(name="ann"), session(rights_no=1), roster)
    assert (found and found.name) == who


def test_a_session_of_nobody_among_the_people_has_its_own_role():
    found = identity_of_session(Login(name="ann"), session(role=Role.ADMIN), people_after())
    assert (found.name, found.role, found.is_person) == ("ann", Role.ADMIN, True)

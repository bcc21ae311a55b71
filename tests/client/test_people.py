"""Who may use a stack, who has signed in, and what that lasts for: on the log alone."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import timedelta

import pytest

from engine.people import sign_in as signing_in
from engine.people.identity import Role
from engine.people.login import IDLE_MAX, REFUSED_MAX, SESSION_MAX, SESSIONS_MAX
from engine.people.passwords import Passwords
from engine.people.throttle import ATTEMPTS_MAX
from streams.clock import SystemClock
from streams.layout import Stream
from tests.projections.lives import projecting, rows_of, wait_projected
from vigil.client import Client
from vigil.client.stack.people import IDENTIFIED_S
from vigil.errors import Mistake, NotFound, NotSignedIn, Trouble

pytestmark = pytest.mark.usefixtures("quick_hashes")

PASSWORD = "correct horse battery"
WRONG = "no such password"


@dataclass
class Ahead:
    """The clock of the machine, put forward by the test; nothing sleeps on it."""

    by: timedelta = timedelta()
    real = SystemClock()

    def now(self):
        return self.real.now() + self.by

    def monotonic_s(self):
        return self.real.monotonic_s() + self.by.total_seconds()

    async def sleep(self, seconds):
        self.by += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Ahead()


@pytest.fixture
async def client(ports, pool, clock):
    """The client of root, who is nobody among the people."""
    async with Client.on(ports, pool, by="root", clock=clock) as client:
        yield client


async def add(client, name="ann", role="admin", **more):
    return await client.people.add(name, role=role, password=PASSWORD, **more)


async def signed_in(client, name="ann", **more):
    return await client.people.sign_in(name, PASSWORD, **more)


async def refused(client, name="ann", password=WRONG, **more):
    with pytest.raises(NotSignedIn) as caught:
        await client.people.sign_in(name, password, **more)
    return str(caught.value)


async def test_who_was_added_signs_in_and_is_known_by_the_secret(client):
    added = await add(client, groups=["oncall", "dba", "oncall"])
    assert (added.role, added.groups, added.added_by) == (Role.ADMIN, ("dba", "oncall"), "root")
    session = await signed_in(client)
    who = await client.people.identify(session.secret)
    assert who == session.identity
    assert (who.name, who.role, who.groups) == ("ann", Role.ADMIN, {"dba", "oncall"})
    assert who.is_person
    assert session.secret.startswith("vs_ann_")
    assert await client.people.list() == [added]


async def test_what_is_wrong_is_refused_with_one_answer_in_one_time(client, clock, monkeypatch):
    # Longer than any machine takes for a hash.
    monkeypatch.setattr(signing_in, "REFUSAL_S", 60.0)
    await add(client)
    await client.people.add("bob")
    answers, times = set(), set()
    for name, password in [
        ("ann", "no such password"),
        ("eve", PASSWORD),
        ("bob", ""),
        ("bob", PASSWORD),
        ("../..", PASSWORD),
        ("ann", "x" * 100_000),
    ]:
        began_s = clock.monotonic_s()
        answers.add(await refused(client, name, password))
        times.add(round(clock.monotonic_s() - began_s))
    assert len(answers) == 1
    assert times == {60}


async def test_no_secret_but_a_whole_one_says_who_somebody_is(client):
    await add(client)
    secret = (await signed_in(client)).secret
    for wrong in (
        "", "ann", secret[:-1], secret + "0", secret[:-1] + "g", secret.upper(), "x" * 10_000,
        secret.replace("vs_ann", "vs_bob"), secret.replace("vs_", "vt_"),
        secret[:-1] + ("0" if secret[-1] != "0" else "1"),
    ):  # fmt: skip
        assert await client.people.identify(wrong) is None


async def test_a_session_ends_when_its_person_signs_out(client):
    await add(client)
    one, other = await signed_in(client), await signed_in(client)
    assert one.secret != other.secret
    assert await client.people.sign_out(one.secret)
    assert await client.people.identify(one.secret) is None
    assert await client.people.identify(other.secret) is not None
    assert not await client.people.sign_out(one.secret)
    assert not await client.people.sign_out("vs_ann_0")


@pytest.mark.parametrize("change", ["role", "password", "removed", "removed_and_added"])
async def test_a_session_ends_with_every_change_of_what_its_person_may(client, change):
    await add(client)
    await add(client, "bob")
    session = await signed_in(client, "bob")
    match change:
        case "role":
            assert await client.people.set_role("bob", Role.VIEWER)
        case "password":
            await client.people.set_password("bob", "another long password")
        case _:
            await client.people.remove("bob")
    if change == "removed_and_added":
        await add(client, "bob")
    assert await client.people.identify(session.secret) is None
    if change != "removed":
        assert await client.people.sessions("bob") == []


async def test_groups_count_at_once_and_end_no_session(client):
    await add(client)
    session = await signed_in(client)
    assert await client.people.set_groups("ann", ["oncall"])
    assert not await client.people.set_groups("ann", ["oncall"])
    who = await client.people.identify(session.secret)
    assert who.groups == {"oncall"}


async def test_a_session_is_over_when_it_was_not_used_for_long(client, clock):
    await add(client)
    session = await signed_in(client)
    for _ in range(3):  # Used often enough, it lasts.
        clock.by += IDLE_MAX - timedelta(minutes=1)
        assert await client.people.identify(session.secret) is not None
    clock.by += IDLE_MAX
    assert await client.people.identify(session.secret) is None


async def test_a_session_is_over_after_its_time_however_much_it_is_used(client, clock):
    await add(client)
    session = await signed_in(client)
    step = timedelta(hours=6)
    for _ in range(SESSION_MAX // step - 1):
        clock.by += step
        assert await client.people.identify(session.secret) is not None
    clock.by += step
    assert await client.people.identify(session.secret) is None


async def test_a_person_has_so_many_sessions_and_the_one_that_was_unused_longest_ends(client):
    await add(client)
    secrets = [(await signed_in(client)).secret for _ in range(SESSIONS_MAX + 1)]
    known = [await client.people.identify(each) is not None for each in secrets]
    assert known == [False] + [True] * SESSIONS_MAX
    assert len(await client.people.sessions("ann")) == SESSIONS_MAX


async def test_an_ended_session_is_over_elsewhere_within_seconds(ports, pool, clock, client):
    await add(client)
    session = await signed_in(client)
    async with Client.on(ports, pool, by="root", clock=clock) as other:
        assert await other.people.identify(session.secret) is not None
        assert await client.people.end_sessions("ann", by="root", reason="stolen")
        clock.by += timedelta(seconds=IDENTIFIED_S)
        assert await other.people.identify(session.secret) is None


async def test_the_sessions_of_somebody_say_from_where_they_are(client):
    await add(client)
    agent = "Mozilla\n" + "x" * 500
    session = await signed_in(client, address="10.0.0.7", agent=agent)
    (shown,) = await client.people.sessions("ann")
    assert (shown.session_id, shown.address, shown.way) == (
        session.session_id, "10.0.0.7", "password",
    )  # fmt: skip
    assert shown.agent.startswith("Mozilla x")
    assert len(shown.agent) == 120


async def test_after_many_wrong_passwords_no_password_is_right_for_a_while(
    client, clock, monkeypatch
):
    async def compared(self, password, password_hash):
        return password == PASSWORD and bool(password_hash)

    await add(client)
    monkeypatch.setattr(Passwords, "fits", compared)  # A hash takes a quarter of a second.
    monkeypatch.setattr(signing_in, "REFUSAL_S", 0.0)
    for number in range(REFUSED_MAX):
        await refused(client, address=f"10.0.{number}.1")
    right = await refused(client, password=PASSWORD, address="10.1.0.1")
    assert right == await refused(client, address="10.1.0.2")
    clock.by += timedelta(minutes=5)
    assert (await signed_in(client)).identity.name == "ann"


async def test_one_address_may_guess_so_often_and_another_one_is_not_kept_waiting(
    client, clock, monkeypatch
):
    await add(client)
    monkeypatch.setattr(signing_in, "REFUSAL_S", 0.0)
    for number in range(ATTEMPTS_MAX):
        await refused(client, f"guess{number}", address="10.0.0.7")
    answer = await refused(client, password=PASSWORD, address="10.0.0.7")
    assert re.search("wait (300|2[0-9]{2}) s$", answer)
    assert (await signed_in(client, address="10.0.0.8")).secret
    clock.by += timedelta(minutes=5)
    assert (await signed_in(client, address="10.0.0.7")).secret


async def test_right_passwords_are_no_guesses(client):
    await add(client)
    for _ in range(ATTEMPTS_MAX + 1):
        await signed_in(client, address="10.0.0.7")


async def test_the_last_admin_stays_one_whoever_removes_whom_at_once(client):
    await add(client)
    for call in (client.people.remove("ann"), client.people.set_role("ann", "operator")):
        with pytest.raises(Trouble, match="'ann' is the last admin"):
            await call
    await client.people.add("bob", role="admin")
    done = await asyncio.gather(
        client.people.remove("ann", by="bob"),
        client.people.remove("bob", by="ann"),
        return_exceptions=True,
    )
    assert sorted(type(each) for each in done if each) == [Trouble]
    assert [each.role for each in await client.people.list()] == [Role.ADMIN]


async def test_what_cannot_be_a_person_is_refused(client):
    await add(client)
    for name in ("", "Änne", "a b", "group:x", "a_", "_a", "a__b", "x" * 101, "token:ci"):
        with pytest.raises(Mistake, match=r"name: .* is no name"):
            await client.people.add(name)
    with pytest.raises(Trouble, match="there is 'ann' already"):
        await client.people.add("Ann")
    with pytest.raises(Mistake, match="role: 'boss' is none; use viewer, approver"):
        await client.people.add("bob", role="boss")
    with pytest.raises(Mistake, match="groups: 'a b' cannot be"):
        await client.people.add("bob", groups=["a b"])
    with pytest.raises(Mistake, match="groups: 'oncall' is a text; give a list"):
        await client.people.add("bob", groups="oncall")
    with pytest.raises(Mistake, match="password: it has 5 characters, not 12 to 1,000"):
        await client.people.add("bob", password="short")
    for call in (
        client.people.get("bob"),
        client.people.remove("bob"),
        client.people.set_role("bob", "admin"),
        client.people.set_groups("bob", []),
        client.people.set_password("bob", PASSWORD),
    ):
        with pytest.raises(NotFound, match="nobody is called 'bob'"):
            await call


async def test_a_link_signs_in_once_within_minutes(client, clock):
    secret = await client.people.one_time_link()
    assert await client.people.identify(secret) is None
    session = await client.people.sign_in_by_link(secret, address="127.0.0.1")
    who = await client.people.identify(session.secret)
    assert (who.name, who.role) == ("root", Role.ADMIN)
    old = await client.people.one_time_link()
    clock.by += timedelta(minutes=10)
    for wrong in (secret, old, session.secret, "vl_", ""):
        with pytest.raises(NotSignedIn, match="this link is not good"):
            await client.people.sign_in_by_link(wrong)


async def test_a_link_that_two_use_at_once_signs_one_of_them_in(client):
    secret = await client.people.one_time_link()
    done = await asyncio.gather(
        *(client.people.sign_in_by_link(secret) for _ in range(4)), return_exceptions=True
    )
    assert sum(isinstance(each, NotSignedIn) for each in done) == 3


async def test_a_token_is_a_program_within_its_role_and_scopes(client):
    issued = await client.tokens.issue(
        "ci", role="operator", scopes=["read", "events:publish"], is_agent=True
    )
    who = await client.people.identify(issued.secret)
    assert (who.name, who.role, who.token) == ("token:ci", Role.OPERATOR, issued.token_id)
    assert (who.is_person, who.is_agent) == (False, True)
    assert who.may(Role.VIEWER, "read")
    assert not who.may(Role.OPERATOR, "definitions:apply")
    assert not who.may(Role.ADMIN, "read")


async def test_a_token_ends_when_it_is_revoked_or_its_time_is_over(client, clock):
    short = await client.tokens.issue("ci", expires_in="1h")
    long = await client.tokens.issue("ci")
    clock.by += timedelta(hours=1)
    assert await client.people.identify(short.secret) is None
    assert await client.people.identify(long.secret) is not None
    assert await client.tokens.revoke(long.token_id, reason="leaked")
    clock.by += timedelta(seconds=IDENTIFIED_S)
    assert await client.people.identify(long.secret) is None
    assert not await client.tokens.revoke(long.token_id)
    with pytest.raises(NotFound, match="there is no token '000000000000'"):
        await client.tokens.revoke("0" * 12)
    with pytest.raises(Mistake, match="token_id: 'x' is no id"):
        await client.tokens.revoke("x")
    with pytest.raises(Mistake, match="expires_in: '1s' is not from 1m to 366d long"):
        await client.tokens.issue("ci", expires_in="1s")


async def test_a_token_may_no_more_than_its_owner_and_ends_with_that_one(client, clock):
    await add(client)
    await client.people.add("bob", role="operator")
    with pytest.raises(Trouble, match="'bob' is operator, and no token of that one may be admin"):
        await client.tokens.issue("ci", role="admin", by="bob")
    issued = await client.tokens.issue("ci", role="operator", by="bob")
    await client.people.set_role("bob", "viewer")
    assert (await client.people.identify(issued.secret)).role is Role.VIEWER
    await client.people.remove("bob")
    await client.people.add("bob", role="admin")
    assert await client.people.identify(issued.secret) is None


async def test_whether_people_have_to_sign_in_is_an_order(client):
    assert not await client.people.is_login_required()
    with pytest.raises(Trouble, match="nobody could sign in as an admin"):
        await client.people.require_login()
    await client.people.add("eve", role="admin")  # Without a password.
    with pytest.raises(Trouble, match="nobody could sign in as an admin"):
        await client.people.require_login()
    await add(client)
    assert (await client.people.require_login(reason="audit")).is_new
    assert not (await client.people.require_login()).is_new
    assert await client.people.is_login_required()
    assert (await client.people.require_login(is_required=False)).is_new
    assert not await client.people.is_login_required()


async def test_what_people_have_done_is_told_by_the_audit_and_no_row_has_a_hash(
    ports, pool, client
):
    await add(client)
    await refused(client, address="10.0.0.7")
    session = await signed_in(client)
    issued = await client.tokens.issue("ci", by="ann")
    await client.tokens.revoke(issued.token_id, by="ann", reason="leaked")
    await client.people.sign_out(session.secret)
    async with projecting(ports, pool):
        await wait_projected(ports, pool, Stream.STATE)
        page = await client.people.audit()
        of_ann = await client.people.audit(name="ann", change=["sign_in_refused"])
        tokens = await client.tokens.list()
        good = await client.tokens.list(is_good=True)
        rows = [
            await rows_of(pool, table, stack=client.stack)
            for table in ("people", "tokens", "audit")
        ]
    assert [(each.change, each.person, each.name) for each in reversed(page.items)] == [
        ("added", "root", "ann"),
        ("password_set", "root", "ann"),
        ("sign_in_refused", "ann", "ann"),
        ("session_begun", "ann", "ann"),
        ("token_issued", "ann", "ci"),
        ("token_revoked", "ann", "ci"),
        ("session_ended", "ann", "ann"),
    ]
    assert [each.address for each in of_ann] == ["10.0.0.7"]
    assert [(each.name, each.owner, each.revoked_reason) for each in tokens] == [
        ("ci", "ann", "leaked")
    ]
    assert list(good) == []
    shown = str(rows)
    assert "argon2" not in shown
    assert session.secret not in shown
    assert issued.secret not in shown


async def test_the_audit_is_read_in_pages_from_either_end(ports, pool, client):
    for number in range(5):
        await client.people.add(f"p{number}")
    async with projecting(ports, pool):
        await wait_projected(ports, pool, Stream.STATE)
    whole = list((await client.people.audit()).rows)
    assert len(whole) == 5
    for reverse in (False, True):
        rows, after = [], None
        while True:
            page = await client.people.audit(after=after, limit=2, reverse=reverse)
            rows += page.rows
            if (after := page.next) is None:
                break
        assert rows == (whole[::-1] if reverse else whole)
    with pytest.raises(Mistake, match="change: 'aded' is not one of"):
        await client.people.audit(change="aded")


async def test_views_are_of_one_person_and_of_the_one_who_was_added(client):
    await add(client, "bob", role="viewer")
    saved = await client.people.save_view("Mine", "/inbox?after=x", by="bob")
    same = await client.people.save_view("Mine", "/inbox", by="bob")
    assert (saved, same) == (True, False)
    assert [(v.name, v.address) for v in await client.people.views(by="bob")] == [
        ("Mine", "/inbox")
    ]
    assert await client.people.views() == ()
    assert await client.people.set_default_view("/inbox", "Mine", by="bob")
    assert [each.is_default for each in await client.people.views(by="bob")] == [True]
    await client.people.remove("bob")
    await add(client, "bob", role="viewer")
    assert await client.people.views(by="bob") == ()
    assert not await client.people.remove_view("/inbox", "Mine", by="bob")


async def test_who_can_be_nobody_among_the_people_has_no_views(client):
    assert await client.people.views(by="token:ci") == ()
    with pytest.raises(Mistake, match="is no name"):
        await client.people.save_view("Mine", "/inbox", by="token:ci")
    assert not await client.people.remove_view("/login", "Mine")
    assert not await client.people.set_default_view("/login")
    with pytest.raises(Mistake, match="no saved view"):
        await client.people.set_default_view("/inbox", "Mine")

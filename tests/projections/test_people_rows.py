"""There is a row for each person and token as it stands, and one for each thing done about them."""

from __future__ import annotations

import msgspec
import pytest

from projections.project import project as changes_of
from streams.errors import UnreadableEvent
from streams.model.events import (
    GroupsSet,
    IdentityLinked,
    PasswordSet,
    PersonAdded,
    PersonRemoved,
    RoleSet,
    SessionUsed,
    TokenIssued,
    TokenRevoked,
)
from streams.model.people import Role
from streams.ports.log import Recorded
from tests.projections.lives import AT, commit, only_row, opened, rows_of, write
from tests.streams.samples import EVENTS

ADDED = PersonAdded(name="ann", role=Role.ADMIN, groups=("dba",), by="root")
REMOVED = PersonRemoved(name="ann", by="bob")
CHANGES = (
    RoleSet(name="ann", role=Role.OPERATOR, by="root"),
    GroupsSet(name="ann", groups=(), by="root"),
    PasswordSet(name="ann", password_hash="argon2", by="root"),
    IdentityLinked(name="ann", issuer="https://id", subject="s1", by="ann"),
)
ISSUED = TokenIssued(
    id="0123456789ab", name="ci", role=Role.VIEWER, secret_hash="ab", expires_at=AT, by="ann"
)
REVOKED = TokenRevoked(id="0123456789ab", name="ci", by="bob", reason="leaked")
TABLES = ("people", "tokens", "audit")


def recorded(subject, *commits):
    return [
        Recorded(subject=subject, seq=seq, commit=commit(*events))
        for seq, events in enumerate(commits, start=1)
    ]


async def all_of(pool, stack):
    return [await rows_of(pool, each, stack=stack) for each in TABLES]


async def test_a_person_has_one_row_as_things_stand(pool, stack):
    records = recorded(stack.person("people"), (ADDED, *CHANGES))
    await write(pool, changes_of(records, stack=stack), stack=stack)
    row = await only_row(pool, "people", stack=stack)
    assert (row["role"], row["groups"], row["has_password"]) == ("operator", [], True)
    assert (row["issuer"], row["subject"], row["removed_at"]) == ("https://id", "s1", None)
    await write(
        pool, changes_of(recorded(stack.person("people"), (REMOVED,)), stack=stack), stack=stack
    )
    row = await only_row(pool, "people", stack=stack)
    assert (row["removed_at"], row["removed_by"], row["role"]) == (AT, "bob", "operator")


@pytest.mark.parametrize(
    ("key", "commits"),
    [
        ("people", [(ADDED,), *((each,) for each in CHANGES), (REMOVED,)]),
        ("people", [(ADDED, *CHANGES), (REMOVED,), (ADDED,)]),
        ("token.0123456789ab", [(ISSUED,), (REVOKED,)]),
    ],
)
async def test_people_in_pieces_and_repeated_leave_the_same_rows(pool, stack, key, commits):
    records = recorded(stack.person(key), *commits)
    await write(pool, changes_of(records, stack=stack), stack=stack)
    whole = await all_of(pool, stack)
    for record in records:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    assert await all_of(pool, stack) == whole


UNAUDITED = ("LoginKept", "SessionUsed", "ViewsSaved")


async def test_everything_about_people_but_bookkeeping_is_audited_without_secrets(pool, stack):
    about = ("person.", "token.", "link.")
    events = [each for tag, those in EVENTS.items() if tag.startswith(about) for each in those]
    records = recorded(stack.person("people"), *((each,) for each in events))
    await write(pool, changes_of(records, stack=stack), stack=stack)
    audited = await rows_of(pool, "audit", stack=stack)
    kept = [each for each in events if type(each).__name__ not in UNAUDITED]
    assert len(audited) == len(kept)
    shown = str(await all_of(pool, stack))
    for event in events:
        for field in ("secret_hash", "password_hash"):
            assert msgspec.structs.asdict(event).get(field, "nowhere") not in shown


def test_what_is_not_about_people_stops_the_rows_there(stack):
    stray = recorded(stack.person("people"), (opened(),))
    with pytest.raises(UnreadableEvent, match="EpisodeOpened in the life of people"):
        changes_of(stray, stack=stack)
    used = recorded(stack.person("login.ann"), (SessionUsed(name="ann", session_id="s"),))
    assert changes_of(used, stack=stack) == []

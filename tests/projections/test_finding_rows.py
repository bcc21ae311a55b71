"""The whole life of a finding, as rows: how it ends, gets worse, is judged and is explained."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest

from projections.errors import QueryRefused
from projections.postgres import reader
from projections.project import project as changes_of
from streams.model.events import (
    FindingAcknowledged,
    FindingClearedByHand,
    FindingEscalated,
    FindingExpired,
    FindingNoted,
)
from streams.model.findings import DueTimer, FindingStatus, Person, Severity
from streams.ports.log import Commit, Recorded
from tests.projections import lives
from tests.projections.lives import AT, only_row, rows_of, write, write_events

LATER = AT + timedelta(hours=1)
TIMER = DueTimer(timer_id="t1")
ADA = Person(by="ada", reason="false alarm")


def expired(**fields):
    ended = {"status": FindingStatus.EXPIRED, "cleared_at": LATER, "expires_at": LATER}
    return FindingExpired(finding=lives.finding(**(ended | fields)), cause=TIMER)


def cleared_by_hand(**fields):
    ended = {"status": FindingStatus.CLEARED, "cleared_at": LATER, "cleared_by": "ada"}
    said = ended | {"cleared_reason": "false alarm"} | fields
    return FindingClearedByHand(finding=lives.finding(**said), cause=ADA)


LIFE = (
    lives.raised(ttl_s=3600.0, expires_at=LATER, severity=Severity.LOW),
    FindingEscalated(
        finding=lives.finding(severity=Severity.HIGH, escalated_to=Severity.HIGH),
        cause=TIMER,
        from_severity=Severity.LOW,
    ),
    FindingAcknowledged(
        finding=lives.finding(acknowledged_by="ada", acknowledged_at=AT), cause=ADA
    ),
    FindingNoted(finding=lives.finding(acknowledged_by="ada"), cause=Person(by="bob", reason="hm")),
    expired(),
    lives.raised(raise_no=2, raised_at=LATER),
    cleared_by_hand(raise_no=2),
    lives.raised(raise_no=3),
    lives.cleared(raise_no=3),
    lives.raised(raise_no=4),
)


async def live(pool, stack, *events):
    await write_events(pool, *events, stack=stack, subject=stack.finding("disk:h1"))


def in_commits(stack, events):
    """Return the events as one commit each, from sequence 1."""
    subject = stack.finding("disk:h1")
    return [
        Recorded(subject=subject, seq=seq, commit=Commit(id=f"c{seq}", at=AT, events=(event,)))
        for seq, event in enumerate(events, start=1)
    ]


async def test_a_finding_shows_when_it_ends(pool, stack):
    await live(pool, stack, LIFE[0])
    row = await only_row(pool, "active_findings", stack=stack)
    assert row["expires_at"] == LATER
    assert (await only_row(pool, "findings", stack=stack))["ttl_s"] == 3600


async def test_a_finding_that_says_nothing_of_its_end_has_none(pool, stack):
    await live(pool, stack, lives.raised())
    row = await only_row(pool, "findings", stack=stack)
    assert (row["expires_at"], row["ttl_s"], row["escalated_to"]) == (None, None, None)


async def test_what_has_expired_is_not_active_and_nobody_has_cleared_it(pool, stack):
    await live(pool, stack, lives.raised(), expired())
    row = await only_row(pool, "findings", stack=stack)
    assert (row["status"], row["cleared_at"]) == ("expired", LATER)
    assert (row["cleared_by"], row["cleared_by_episode_id"], row["cleared_reason"]) == (None,) * 3
    assert await rows_of(pool, "active_findings", stack=stack) == []


async def test_what_a_person_has_cleared_says_who_and_why(pool, stack):
    await live(pool, stack, lives.raised(), cleared_by_hand())
    row = await only_row(pool, "findings", stack=stack)
    assert (row["status"], row["cleared_by"]) == ("cleared", "ada")
    assert row["cleared_reason"] == "false alarm"


async def test_every_raise_but_the_last_is_superseded(pool, stack):
    await live(pool, stack, *LIFE)
    rows = sorted(await rows_of(pool, "findings", stack=stack), key=lambda row: row["raise_no"])
    assert [row["status"] for row in rows] == ["superseded"] * 3 + ["active"]
    assert [row["superseded_at"] for row in rows] == [LATER, AT, AT, None]
    assert rows[1]["cleared_by"] == "ada"


async def test_the_history_says_what_happened_who_did_it_and_why(pool, stack):
    await live(pool, stack, *LIFE)
    rows = sorted(
        await rows_of(pool, "finding_events", stack=stack), key=lambda row: row["event_no"]
    )
    assert [(row["kind"], row["person"], row["reason"]) for row in rows] == [
        ("finding_raised", None, None),
        ("finding_escalated", None, None),
        ("finding_acknowledged", "ada", "false alarm"),
        ("finding_noted", "bob", "hm"),
        ("finding_expired", None, None),
        ("finding_raised", None, None),
        ("finding_cleared", "ada", "false alarm"),
        ("finding_raised", None, None),
        ("finding_cleared", None, "cleaned"),
        ("finding_raised", None, None),
    ]
    assert (rows[1]["from_severity"], rows[1]["severity"]) == ("low", "high")
    assert [row["episode_id"] is None for row in rows] == [
        *(False, True, True, True, True),
        *(False, True, False, False, False),
    ]


@pytest.mark.parametrize("cut", range(len(LIFE) + 1))
async def test_rows_are_the_same_however_the_life_is_cut_into_batches(pool, stack, cut):
    """I6."""
    records = in_commits(stack, LIFE)
    for batch in (records[:cut], records[cut:]):
        await write(pool, changes_of(batch, stack=stack), stack=stack)
    parts = [await rows_of(pool, table, stack=stack) for table in ("findings", "finding_events")]
    await pool.execute("TRUNCATE findings, finding_events, projection_checkpoints")
    for record in records:
        await write(pool, changes_of([record], stack=stack), stack=stack)
    again = [await rows_of(pool, table, stack=stack) for table in ("findings", "finding_events")]
    assert [sorted(map(repr, each)) for each in parts] == [
        sorted(map(repr, each)) for each in again
    ]


# What explains what.


async def explained(pool, stack, causes):
    """Write findings, each with the key of what explains it."""
    for key, cause in causes.items():
        raised = lives.raised(key, caused_by_key=cause)
        await write_events(pool, raised, stack=stack, subject=stack.finding(key))


CAUSES = {"site": "disk", "disk": "rack", "rack": "power", "power": "", "mail": "disk"}


async def keys(pool, query, *args):
    return [row["finding_key"] for row in await pool.fetch(query, *args)]


async def test_a_finding_is_explained_step_by_step(pool, stack):
    await explained(pool, stack, CAUSES)
    rows = await reader.list_causal_chain(pool, stack, "site")
    assert [(row["depth"], row["finding_key"]) for row in rows] == [
        (0, "site"),
        (1, "disk"),
        (2, "rack"),
        (3, "power"),
    ]
    short = await reader.list_causal_chain(pool, stack, "site", depth=1)
    assert [row["finding_key"] for row in short] == ["site", "disk"]
    assert await reader.list_causal_chain(pool, stack, "nothing") == []


async def test_a_finding_explains_others(pool, stack):
    await explained(pool, stack, CAUSES)
    found = await keys(pool, "SELECT * FROM finding_caused_by('disk')")
    assert sorted(found) == ["mail", "site"]


async def test_the_last_that_explains_a_finding_is_its_root(pool, stack):
    await explained(pool, stack, CAUSES)
    assert await keys(pool, "SELECT * FROM finding_root_cause('site')") == ["power"]
    assert await keys(pool, "SELECT * FROM finding_root_cause('power')") == ["power"]


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_findings_that_explain_each_other_in_a_circle_come_once_each(pool, stack, size):
    names = [f"k{number}" for number in range(size)]
    await explained(pool, stack, dict([*pairwise(names), (names[-1], names[0])]))
    rows = await reader.list_causal_chain(pool, stack, "k0", depth=100)
    assert [row["finding_key"] for row in rows] == names


async def test_what_nobody_has_found_explains_nothing(pool, stack):
    await explained(pool, stack, {"site": "gone"})
    assert await keys(pool, "SELECT * FROM finding_root_cause('site')") == ["site"]


async def test_only_the_latest_raise_counts(pool, stack):
    raises = (
        lives.raised("site", caused_by_key="disk"),
        lives.cleared("site"),
        lives.raised("site", caused_by_key="power", raise_no=2),
    )
    await write_events(pool, *raises, stack=stack, subject=stack.finding("site"))
    await explained(pool, stack, {"disk": "", "power": ""})
    rows = await reader.list_causal_chain(pool, stack, "site")
    assert [row["finding_key"] for row in rows] == ["site", "power"]
    assert await keys(pool, "SELECT * FROM finding_caused_by('disk')") == []


async def test_stacks_that_share_tables_explain_their_own_findings(pool, stack):
    await explained(pool, stack, {"site": "disk", "disk": ""})
    other = msgspec.structs.replace(stack, name=f"{stack.name}-2"[-32:])
    await explained(pool, other, {"site": "power", "power": ""})
    rows = await reader.list_causal_chain(pool, other, "site")
    assert [row["finding_key"] for row in rows] == ["site", "power"]


async def test_whoever_has_another_search_path_can_ask_too(pool, stack, schema):
    await explained(pool, stack, CAUSES)
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SET LOCAL search_path TO public")
        found = await connection.fetch(f"SELECT * FROM {schema}.finding_root_cause('site')")  # noqa: S608 - our own words
    assert [row["finding_key"] for row in found] == ["power"]


# Who asks by other things than the key.


async def found(pool, stack, **asked):
    return [row["finding_key"] for row in await reader.active_for(pool, stack, **asked)]


@pytest.fixture
async def several(pool, stack):
    """Four active findings and one that has ended."""
    said = {
        "a": {"severity": Severity.LOW, "actor_id": "watch", "raised_at": AT},
        "b": {"severity": Severity.HIGH, "class_": "slow", "raised_at": LATER},
        "c": {"severity": Severity.CRITICAL, "subject_id": "h2", "expires_at": LATER},
        "d": {"severity": Severity.MEDIUM, "caused_by_key": "b", "expires_at": AT},
    }
    for key, fields in said.items():
        raised = lives.raised(key, **fields)
        await write_events(pool, raised, stack=stack, subject=stack.finding(key))
    ended = (lives.raised("e"), lives.cleared("e"))
    await write_events(pool, *ended, stack=stack, subject=stack.finding("e"))
    return pool


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({}, "cbda"),
        ({"actor": "watch"}, "a"),
        ({"class_": "slow"}, "b"),
        ({"key": "d"}, "d"),
        ({"key": "e"}, ""),
        ({"subject": ("host", "h2")}, "c"),
        ({"subject": ("host", None)}, "cbda"),
        ({"subject": ("disk", None)}, ""),
        ({"caused_by": "b"}, "d"),
        ({"severity_at_least": "high"}, "cb"),
        ({"severity_at_least": "high", "class_": "disk_full"}, "c"),
        ({"limit": 2}, "cb"),
        ({"limit": 2, "offset": 1}, "bd"),
        ({"order_by": "expires_at", "limit": 2}, "dc"),
        ({"order_by": "raised_at", "limit": 1}, "b"),
    ],
)
async def test_active_findings_are_found_by_what_is_known_of_them(several, stack, asked, keys):
    assert await found(several, stack, **asked) == list(keys)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"order_by": "colour"}, "order_by 'colour': use one of severity, updated_at"),
        ({"severity_at_least": "awful"}, "awful"),
        ({"limit": -1}, "LIMIT must not be negative"),
    ],
)
async def test_what_cannot_be_asked_is_refused(several, stack, asked, why):
    with pytest.raises(QueryRefused, match=why):
        await found(several, stack, **asked)

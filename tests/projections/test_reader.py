"""Questions of the console, and of anybody."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from engine.lanes.lane import ranked
from projections.errors import BadSchema, PostgresUnavailable, QueryRefused
from projections.postgres import reader
from projections.postgres.dsn import address
from projections.postgres.pool import connect, open_pool
from projections.project import project
from streams.model.events import DeadDiscarded, EndStatus
from streams.model.findings import Severity
from streams.ports.log import Commit, Recorded
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import AT, write, write_events


@pytest.fixture
async def filled(pool, stack):
    """Three episodes (queued, running, failed) and three findings."""
    for number, later in enumerate(
        [(), (lives.started(),), (lives.started(), lives.finished(EndStatus.FAILED))], start=1
    ):
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, lives.opened(number), *later, stack=stack, subject=subject)
    for key, severity in [("a", Severity.LOW), ("b", Severity.CRITICAL), ("c", Severity.HIGH)]:
        happened = lives.raised(key, severity=severity)
        await write_events(pool, happened, stack=stack, subject=stack.finding(key))
    gone = lives.cleared("c", severity=Severity.HIGH)
    await write_events(pool, gone, stack=stack, subject=stack.finding("c"))
    return pool


async def test_episodes_come_queued_first(filled, stack):
    rows = await reader.list_episodes(filled, stack)
    assert rows[0]["status"] == "queued"
    assert {row["status"] for row in rows} == {"queued", "running", "failed"}


async def test_episodes_can_be_narrowed(filled, stack):
    failed = await reader.list_episodes(filled, stack, status="failed")
    assert [row["episode_id"] for row in failed] == [UUID(int=3)]
    assert len(await reader.list_episodes(filled, stack, limit=2)) == 2
    assert await reader.list_episodes(filled, stack, actor="nobody") == []


async def test_episodes_can_be_narrowed_by_what_they_are_about_and_when(filled, stack):
    async def found(**narrowed):
        return len(await reader.list_episodes(filled, stack, **narrowed))

    assert await found(subject="h1", expectation="check_disk") == 3
    assert await found(subject="h2") == await found(expectation="other") == 0
    assert (await found(since=AT), await found(until=AT)) == (3, 0)
    later = AT + timedelta(seconds=1)
    assert (await found(since=later), await found(until=later)) == (0, 3)


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_episodes_can_be_read_page_by_page(filled, stack, limit):
    # Queued at the same moment: the id tells them apart.
    await write_events(
        filled, lives.opened(9), stack=stack, subject=stack.episode(lives.episode_id(9))
    )
    rows = await reader.list_episodes(filled, stack)
    found, past = [], None
    while page := await reader.list_episodes(filled, stack, past=past, limit=limit):
        found, past = [*found, *page], page[-1]
    assert (len(rows), found) == (4, rows)


async def test_what_an_actor_has_open_can_be_narrowed(filled, stack):
    rows = await reader.list_unended_episodes(filled, stack, actor="monitor")
    assert [row["status"] for row in rows] == ["queued", "running"]
    (running,) = await reader.list_unended_episodes(
        filled, stack, actor="monitor", status="running"
    )
    assert running["expectation_id"] == rows[1]["expectation_id"]
    for wrong in ({"actor": "nobody"}, {"actor": "monitor", "expectation": "other"}):
        assert await reader.list_unended_episodes(filled, stack, **wrong) == []


async def test_what_an_actor_has_open_can_be_read_part_by_part(filled, stack):
    rows = await reader.list_unended_episodes(filled, stack, actor="monitor")
    found, past = [], None
    for _ in rows:
        (past,) = await reader.list_unended_episodes(
            filled, stack, actor="monitor", past=past, limit=1
        )
        found.append(past)
    assert found == rows
    assert await reader.list_unended_episodes(filled, stack, actor="monitor", past=past) == []


async def test_the_latest_episode_was_opened_last_whether_or_not_it_has_started(pool, stack):
    seen = [await reader.latest_episode(pool, stack)]
    for seconds, number, *later in (
        (1, 3),
        (2, 1, lives.started()),
        (3, 2),
        (0, 4, lives.started()),
    ):
        at = AT + timedelta(seconds=seconds)
        events = (lives.opened(number), *later)
        await write_events(
            pool, *events, stack=stack, subject=stack.episode(lives.episode_id(number)), at=at
        )
        seen.append(await reader.latest_episode(pool, stack))

    assert [each and each.int for each in seen] == [None, 3, 1, 2, 2]


async def test_an_episode_that_had_to_wait_for_its_start_is_not_the_latest(pool, stack):
    late_start = {1: 9, 2: 3}  # The first one waited for its turn.
    for number, started in late_start.items():
        subject = stack.episode(lives.episode_id(number))
        opened_at, started_at = (AT + timedelta(seconds=each) for each in (number, started))
        await write_events(pool, lives.opened(number), stack=stack, subject=subject, at=opened_at)
        await write_events(pool, lives.started(), stack=stack, subject=subject, at=started_at)

    assert await reader.latest_episode(pool, stack) == UUID(int=2)


async def test_ids_of_episodes_are_found_between_two(filled, stack):
    ids = await reader.list_episode_ids(filled, stack, first=UUID(int=2), last=UUID(int=3), limit=9)
    assert ids == [UUID(int=2), UUID(int=3)]
    none = {"first": UUID(int=4), "last": UUID(int=2**128 - 1), "limit": 9}
    assert await reader.list_episode_ids(filled, stack, **none) == []


async def test_those_that_wait_their_turn_show_their_place(pool, stack):
    for number in (1, 2, 3, 4):
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, lives.opened(number), stack=stack, subject=subject)
    moves = (
        lives.placed(lives.ticket(1), lives.ticket(2), lives.ticket(3, priority=1)),
        lives.placed(lives.ticket(4, priority=2)),
        lives.admitted(4),
    )
    await write_events(pool, *moves, stack=stack, subject=stack.lane("monitor"))
    rows = await reader.list_episodes(pool, stack)
    places = {row["episode_id"].int: row["position"] for row in rows}
    assert places == {3: 1, 1: 2, 2: 3, 4: None}


async def test_a_blocked_one_is_listed_with_what_it_waits_for_now(pool, stack):
    subject = stack.episode(lives.episode_id(1))
    waits = (lives.blocked(ref="payment:41"), lives.resolved(), lives.blocked(2, ref="payment:42"))
    events = (lives.opened(1), lives.started(), *waits)
    await write_events(pool, *events, stack=stack, subject=subject)
    (row,) = await reader.list_episodes(pool, stack)
    assert (row["blocked_ref"], row["blocked_until"]) == ("payment:42", None)


async def test_places_are_those_of_the_lane(pool, stack):
    aged = [lives.ticket(1), lives.ticket(2, priority=-1), lives.ticket(101, priority=1)]
    aged += [lives.ticket(100, priority=1), lives.ticket(103, priority=1), lives.ticket(3)]
    for each in aged:
        subject = stack.episode(each.episode_id)
        await write_events(pool, lives.opened(each.number), stack=stack, subject=subject)
    await write_events(pool, lives.placed(*aged), stack=stack, subject=stack.lane("monitor"))
    rows = sorted(await reader.list_episodes(pool, stack), key=lambda row: row["position"])
    assert [row["episode_id"].int for row in rows] == [each.number for each in ranked((), aged)]


async def test_one_episode_is_shown_in_full(filled, stack):
    row = await reader.show_episode(filled, stack, UUID(int=1))
    assert row is not None
    assert row["trigger_ref"]["payload"] == {"host": "h1"}
    assert await reader.show_episode(filled, stack, UUID(int=9)) is None


async def test_steps_come_in_order(pool, stack):
    steps = (lives.recorded(2), lives.recorded(1), lives.recorded(3))
    subject = stack.episode(lives.episode_id(1))
    await write_events(pool, lives.opened(), *steps, stack=stack, subject=subject)
    rows = await reader.list_steps(pool, stack, UUID(int=1))
    assert [row["step_no"] for row in rows] == [1, 2, 3]
    assert rows[0]["args_redacted"] == {"path": "/var"}


async def test_findings_come_worst_first(filled, stack):
    rows = await reader.list_findings(filled, stack)
    assert [row["severity"] for row in rows] == ["critical", "high", "low"]


async def test_findings_can_be_narrowed(filled, stack):
    active = await reader.list_findings(filled, stack, status="active", actor="monitor")
    assert [row["finding_key"] for row in active] == ["b", "a"]
    low = await reader.list_findings(filled, stack, severity="low")
    assert [row["finding_key"] for row in low] == ["a"]


async def test_a_severity_that_is_none_is_refused(filled, stack):
    with pytest.raises(QueryRefused, match="severity"):
        await reader.list_findings(filled, stack, severity="awful")


async def test_a_finding_is_shown_with_its_history(filled, stack):
    row = await reader.show_finding(filled, stack, "c")
    assert row is not None
    assert row["status"] == "cleared"
    assert "finding_cleared" in {each["kind"] for each in row["history"]}
    assert await reader.show_finding(filled, stack, "nothing") is None


async def test_columns_of_one_name_are_told_apart(pool):
    table = await reader.run_sql(pool, "SELECT 1 AS n, 2 AS n, 3 AS n_2, 4 AS n")

    assert table.as_rows() == [{"n": 1, "n_3": 2, "n_2": 3, "n_4": 4}]


@pytest.fixture
async def letters(pool, stack):
    """Two dead letters, of which the second was discarded."""
    for number, later in enumerate([(), (DeadDiscarded(by="ann"),)], start=1):
        events = (lives.lettered(seq=number), *later)
        subject = stack.dead("events", str(number))
        await write_events(pool, *events, stack=stack, subject=subject)
    return pool


async def test_dead_letters_can_be_narrowed(letters, stack):
    every = await reader.list_dead_letters(letters, stack)
    assert {row["letter_key"] for row in every} == {"events.1", "events.2"}
    (waiting,) = await reader.list_dead_letters(letters, stack, status="waiting")
    assert waiting["letter_key"] == "events.1"
    assert len(await reader.list_dead_letters(letters, stack, limit=1)) == 1


async def test_a_dead_letter_is_shown_in_full(letters, stack):
    row = await reader.show_dead_letter(letters, stack, "events.2")
    assert row is not None
    assert (row["payload"], row["headers"]) == (b"\x00\xff", {"ce-id": "x"})
    assert await reader.show_dead_letter(letters, stack, "events.9") is None


async def test_silent_episodes_are_those_that_wait_or_run_and_show_nothing(filled, stack):
    rows = await reader.list_silent_episodes(filled, stack, before=AT + timedelta(seconds=1))
    assert {row["episode_id"] for row in rows} == {UUID(int=1), UUID(int=2)}
    assert await reader.list_silent_episodes(filled, stack, before=AT) == []


async def test_an_episode_that_takes_steps_is_not_silent(filled, stack):
    later = AT + timedelta(minutes=5)
    step = Recorded(
        subject=stack.episode(lives.episode_id(2)),
        seq=2,
        commit=Commit(id="c", at=later, events=(lives.recorded(1),)),
    )
    await write(filled, project([step], stack=stack), stack=stack)
    rows = await reader.list_silent_episodes(filled, stack, before=later)
    assert [row["episode_id"] for row in rows] == [UUID(int=1)]


async def test_anyone_may_ask_anything(filled):
    table = await reader.run_sql(filled, "SELECT 1 AS one, '{\"a\": 2}'::jsonb AS doc")
    assert (table.columns, table.rows) == (("one", "doc"), ((1, {"a": 2}),))


async def test_an_answer_without_rows_still_has_columns(filled):
    table = await reader.run_sql(filled, "SELECT summary FROM active_findings WHERE false")
    assert (table.columns, table.rows) == (("summary",), ())


async def test_a_long_answer_is_cut_and_says_so(filled):
    table = await reader.run_sql(filled, "SELECT generate_series(1, 20000)")
    assert (len(table.rows), table.is_cut) == (reader.ROWS_MAX, True)


@pytest.mark.parametrize(
    "text",
    [
        "SELEC 1",
        "DELETE FROM episodes",
        "CREATE TABLE mine (a int)",
        "SELECT 1; DELETE FROM episodes",
        "DO $$ BEGIN COMMIT; DELETE FROM episodes; END $$",
        "SELECT 1 / 0",
        "SELECT 'x'::int",
        "SELECT $1::int",
    ],
)
async def test_what_does_not_read_is_refused(filled, text):
    with pytest.raises(QueryRefused):
        await reader.run_sql(filled, text)


async def test_a_statement_with_a_nul_byte_is_refused(filled):
    with pytest.raises(QueryRefused, match="a NUL byte"):
        await reader.run_sql(filled, "SELECT '\0'")


@pytest.mark.parametrize("text", ["", " ; ", "-- hello", "/* 1 */ /* ; */;\n"])
async def test_a_statement_that_says_nothing_is_refused(filled, text):
    with pytest.raises(QueryRefused, match=r"^an empty statement$"):
        await reader.run_sql(filled, text)


async def test_what_is_between_comments_is_a_statement(filled):
    table = await reader.run_sql(filled, "/* a */ SELECT 1 AS one /* b */")
    assert table.as_rows() == [{"one": 1}]


async def test_several_statements_are_told_from_other_mistakes(filled):
    with pytest.raises(QueryRefused, match=r"^one statement at a time$"):
        await reader.run_sql(filled, "SELECT 1; SELECT 2")


async def test_a_refusal_ends_with_the_hint_of_postgres(filled):
    with pytest.raises(QueryRefused, match=r'"statu" does not exist\. Perhaps you meant [^\n]+$'):
        await reader.run_sql(filled, "SELECT statu FROM episodes")


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("SELECT 1 FROM episodes, finding", "did you mean findings or "),
        ('SELECT 1 FROM "Active_finding"', "did you mean active_findings"),
        ("SELECT 1 FROM zzz", '"zzz" does not exist'),
    ],
)
async def test_a_query_of_a_misspelt_table_is_told_which_is_called_so(filled, text, ends):
    with pytest.raises(QueryRefused, match=f"{ends}[^;]*$"):
        await reader.run_sql(filled, text)


async def test_the_expectations_that_had_episodes_are_known_once_each(pool, stack):
    assert await reader.list_expectations(pool, stack, limit=5) == []
    pairs = [("b", "x"), ("a", "y"), ("b", "x"), ("a", "x"), ("b", "a")]
    for number, (actor, expectation) in enumerate(pairs, start=1):
        opened = replace(lives.opened(number), actor_id=actor, expectation_id=expectation)
        subject = stack.episode(lives.episode_id(number))
        await write_events(pool, opened, stack=stack, subject=subject)

    found = await reader.list_expectations(pool, stack, limit=5)
    assert found == [("a", "x"), ("a", "y"), ("b", "a"), ("b", "x")]
    assert await reader.list_expectations(pool, stack, limit=1) == [("a", "x")]


async def test_the_stacks_that_something_was_projected_for_are_known(pool, stack):
    assert not await reader.has_stack(pool, stack)
    assert await reader.list_stacks(pool, limit=5) == []
    for name in ("b", "a"):
        await pool.execute(
            "INSERT INTO projection_checkpoints (stack, projection, journal_seq, updated_at) "
            "VALUES ($1, 'p', 0, $2)",
            name,
            AT,
        )
    assert await reader.list_stacks(pool, limit=5) == ["a", "b"]
    assert await reader.list_stacks(pool, limit=1) == ["a"]
    assert await reader.has_stack(pool, Stack("a"))


async def test_a_query_that_takes_too_long_is_ended(filled):
    with pytest.raises(QueryRefused, match="timeout"):
        await reader.run_sql(filled, "SELECT pg_sleep(20)", query_s_max=0.05)


async def test_a_connection_that_ends_under_a_query_is_no_mistake_of_the_query(filled):
    with pytest.raises(PostgresUnavailable):
        await reader.run_sql(filled, "SELECT pg_terminate_backend(pg_backend_pid())")


async def test_an_unreachable_postgres_is_one_line_without_the_password():
    dsn = "postgresql://ann:hunter2@127.0.0.1:1/vigil"
    with pytest.raises(PostgresUnavailable) as caught:
        await connect(dsn)
    assert "127.0.0.1:1/vigil" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_database_that_is_not_there_is_named(postgres):
    with pytest.raises(PostgresUnavailable, match="nowhere"):
        await connect(f"{postgres.dsn.rpartition('/')[0]}/nowhere")


@pytest.mark.parametrize(
    "dsn", ["hunter2", "http://a:hunter2@b", "postgresql://a:hunter2@b:port/c"]
)
def test_an_unreadable_dsn_is_never_shown(dsn):
    with pytest.raises(PostgresUnavailable) as caught:
        address(dsn)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("schema", ["", "Vigil", "a-b", 'a"b', "1a", "a" * 64])
def test_only_a_plain_name_is_a_schema(postgres, schema):
    with pytest.raises(BadSchema):
        open_pool(postgres.dsn, schema=schema)

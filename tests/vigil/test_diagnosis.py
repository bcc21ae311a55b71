"""What `vigil doctor` says of projections that do not keep up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.cluster.modes import ModeOrder, Orders, PauseOrder
from projections.postgres import store
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from projections.postgres.queries import migrations
from streams.clock import SystemClock
from streams.jetstream import StreamReport
from streams.json import raw
from streams.model.definitions import RegisteredDefinition
from streams.model.events.definitions import DefinitionKind
from streams.model.modes import NodeMode
from tests.databases import database_in
from tests.vigil.journal import said_by
from vigil.asking.repairs import diagnosis

FIRST = migrations()[0].name


@pytest.fixture(scope="module")
def postgres(postgres_server):
    return database_in(postgres_server)


@pytest.fixture
async def pool(postgres):
    async with await connect(postgres.dsn) as pool:
        await migrate(pool)
        yield pool


async def reach(pool, stack, position, *, projection="journal", ago_s=0.0):
    at = SystemClock().now() - timedelta(seconds=ago_s)
    since = await store.load(pool, stack=stack.name, projection=projection, now=at)
    async with pool.acquire() as connection:
        await store.apply(connection, [], since=since, position=position, now=at)


async def look(pool, stack, *, head):
    (check,) = await diagnosis.look_at_lags(pool, stack, {"journal": head})
    return check


async def test_rows_that_show_everything_are_in_order_however_long_ago(pool, stack):
    await reach(pool, stack, 10, ago_s=9_000)
    assert (await look(pool, stack, head=10)).status == "ok"


async def test_a_projection_in_trouble_is_a_problem_and_says_which(pool, stack):
    await reach(pool, stack, 10)
    await store.note_trouble(pool, stack=stack.name, projection="journal", trouble="@11: no JSON")
    check = await look(pool, stack, head=10)
    assert (check.status, "@11: no JSON" in check.says) == ("problem", True)


async def test_a_log_that_ends_before_the_rows_is_a_problem(pool, stack):
    await reach(pool, stack, 10)
    check = await look(pool, stack, head=4)
    assert check.status == "problem"
    assert "drop the schema vigil with CASCADE" in check.remedy


async def test_a_few_messages_that_just_came_are_no_problem(pool, stack):
    await reach(pool, stack, 10)
    assert (await look(pool, stack, head=12)).status == "ok"


async def test_a_backlog_that_nobody_works_on_is_a_problem(pool, stack, monkeypatch):
    monkeypatch.setattr(diagnosis, "PATIENCE_S", 0.05)
    await reach(pool, stack, 10, ago_s=61)
    check = await look(pool, stack, head=12)
    assert (check.status, "stands still" in check.says) == ("problem", True)


async def test_a_message_after_a_quiet_hour_is_given_time_to_become_rows(pool, stack, monkeypatch):
    await reach(pool, stack, 10, ago_s=3_600)
    ask, looks = diagnosis.list_checkpoints, []

    async def while_a_projector_writes(*args):
        looks.append(args)
        if len(looks) == 2:
            await reach(pool, stack, 12)
        return await ask(*args)

    monkeypatch.setattr(diagnosis, "list_checkpoints", while_a_projector_writes)
    assert (await look(pool, stack, head=12)).status == "ok"


async def test_each_partition_has_a_lag_of_its_own(pool, stack):
    await reach(pool, stack, 10, projection="journal-0of2")
    await reach(pool, stack, 10, projection="journal-1of2")
    heads = {"journal-0of2": 10, "journal-1of2": 10 + diagnosis.LAG_MAX + 1}
    one, other = await diagnosis.look_at_lags(pool, stack, heads)
    assert (one.what, one.status) == ("projection journal-0of2", "ok")
    assert (other.what, other.status) == ("projection journal-1of2", "problem")


async def test_rows_of_another_layout_of_the_journal_are_a_problem(pool, stack):
    await reach(pool, stack, 10)
    await reach(pool, stack, 10, projection="claims")
    checks = await diagnosis.look_at_lags(pool, stack, {"journal-0of2": 0, "journal-1of2": 0})
    (problem,) = [check for check in checks if check.status == "problem"]
    assert problem.what == "projection journal"
    assert "drop the schema vigil with CASCADE" in problem.remedy


def of_migrations(**changes):
    """What is said of tables whose migrations, name → checksum, are ours but for `changes`."""
    ours = {each.name: each.checksum for each in migrations()}
    applied = {name: each for name, each in {**ours, **changes}.items() if each is not None}
    return diagnosis.of_migrations(applied)


def test_tables_of_this_version_or_a_newer_one_are_in_order():
    assert of_migrations().status == of_migrations(**{"9999_newer.sql": "ab"}).status == "ok"


def test_tables_that_a_projector_has_still_to_change_are_a_problem():
    check = of_migrations(**{FIRST: None})
    assert (check.status, check.says) == ("problem", f"missing: {FIRST}")
    assert "`vigil project`" in check.remedy


def test_tables_of_another_version_are_a_problem_that_no_projector_mends():
    changed = of_migrations(**{FIRST: "ab"})
    assert (changed.status, changed.says) == (
        "problem",
        f"changed after they were applied: {FIRST}",
    )
    other = of_migrations(**{FIRST: None, "0001_other.sql": "ab"})
    assert other.status == "problem"
    assert other.says == f"of another version: with 0001_other.sql and without {FIRST}"
    assert "drop the schema vigil with CASCADE" in other.remedy


def applied(id_, revision):
    return RegisteredDefinition(
        kind=DefinitionKind.AGENT, id=id_, revision=revision, seq=1, body=raw({})
    )


def test_definitions_that_nodes_run_are_in_order():
    running = said_by("n1", {}, disk_watch=2)
    (check,) = diagnosis.look_at_definitions([running], [applied("disk_watch", 2)])
    assert (check.status, check.says) == ("ok", "1, and nodes run them")
    (none,) = diagnosis.look_at_definitions([running], [])
    assert (none.status, none.says) == ("ok", "none")


def test_a_definition_that_no_node_runs_is_a_problem_with_its_reason():
    nodes = [said_by("n1", {"agent.lost": "there is no 'disks'"}, disk_watch=2)]
    lost, stale = diagnosis.look_at_definitions(
        nodes, [applied("lost", 1), applied("disk_watch", 3)]
    )
    assert (lost.what, lost.status) == ("actor lost", "problem")
    assert lost.says == "nobody runs revision 1: n1 cannot: there is no 'disks'"
    assert stale.says == "nobody runs revision 3: n1 does not say why"


def test_what_people_have_ordered_to_do_less_is_a_note_that_says_who_why_and_how_to_undo_it():
    at = datetime(2030, 1, 31, 9, tzinfo=UTC)
    slow = ModeOrder(
        mode=NodeMode.TRIGGER_ONLY,
        actors={"disks": NodeMode.DISABLED, "web": NodeMode.FULL},
        by="ann",
        at=at,
        reason="it is slow",
    )
    orders = Orders(
        modes={"n1": ModeOrder(mode=NodeMode.FULL, by="ann"), "n2": slow},
        pauses={"web": PauseOrder(by="bob", at=at)},
    )
    checks = diagnosis.look_at_modes(orders)
    given = "ordered by ann at 2030-01-31 09:00:00 UTC: it is slow"
    assert {each.status for each in checks} == {"note"}
    assert [(each.what, each.says, each.remedy) for each in checks] == [
        (
            "node n2",
            f"trigger_only: opens episodes, and leaves them to other nodes; {given}",
            "To undo that: `vigil mode n2 --reset`.",
        ),
        (
            "node n2, actor disks",
            f"disabled: opens no episodes, and runs none; {given}",
            "To undo that: `vigil mode n2 --reset --actor disks`.",
        ),
        (
            "actor web",
            "is paused, and opens no episodes: ordered by bob at 2030-01-31 09:00:00 UTC",
            "To undo that: `vigil actors resume web`.",
        ),
    ]
    assert diagnosis.look_at_modes(Orders()) == []


def test_while_no_node_is_up_nobody_can_say_what_runs():
    (check,) = diagnosis.look_at_definitions([], [applied("disk_watch", 2)])
    assert (check.status, check.says) == ("note", "1, and no node is up")


def test_servers_of_one_version_are_in_order_and_what_nobody_can_see_is_said():
    check = diagnosis.look_at_servers({"s1": "2.15.1", "s2": "2.15.1", "s3": "2.15.1"}, copies=3)
    assert check.status == "ok"
    assert "s1 2.15.1, s2 2.15.1, s3 2.15.1" in check.says
    assert "sync_interval" in check.says


def test_servers_of_several_versions_are_told():
    check = diagnosis.look_at_servers({"s1": "2.14.6", "s2": "2.15.1"}, copies=1)
    assert (check.status, "several versions" in check.says) == ("note", True)


def test_a_server_that_does_not_answer_is_told():
    check = diagnosis.look_at_servers({"s1": "2.15.1", "s2": "2.15.1"}, copies=3)
    assert (check.status, "3 copies" in check.says) == ("note", True)


def test_a_stream_of_which_a_copy_is_behind_or_away_is_not_whole():
    report = StreamReport(name="vigil-events", exists=True, replicas=3, behind=("s2 is away",))
    check = diagnosis.of_stream(report)
    assert (check.status, check.says) == ("note", "not whole: s2 is away")


def test_a_compressed_stream_with_one_copy_is_changed_by_the_next_node():
    report = StreamReport(name="vigil-events", exists=True, is_compressed=True)
    assert diagnosis.of_stream(report).status == "note"

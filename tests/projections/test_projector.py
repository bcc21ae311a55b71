"""The projector keeps rows and journal the same, whatever breaks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from structlog.testing import capture_logs

from projections.embedded import EmbeddedPostgres
from projections.errors import NotCaughtUp, PostgresUnavailable, ProjectorFenced
from projections.postgres import store
from projections.postgres.batches import mark_of
from projections.postgres.migrator import migrate
from projections.postgres.pool import AWAY, connect
from projections.postgres.progress import caught_up, heads
from projections.postgres.projector import project
from projections.project import project as changes_of
from projections.rows import arrange
from streams.clock import SystemClock
from streams.keys import episode_claim
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.memory import memory_ports
from streams.model.definitions import definition_id
from streams.model.events import (
    ActorPaused,
    ActorResumed,
    DefinitionKind,
    OutputDelivered,
    PersonAdded,
    PersonRemoved,
    TokenIssued,
    TokenRevoked,
)
from streams.model.losses import Lack, LogLost
from streams.model.people import Role
from streams.ports.log import Recorded
from tests.engine.workflows.flows import done, flow, given
from tests.projections import lives
from tests.projections.lives import (
    AT,
    HurriedClock,
    all_rows,
    append,
    only_row,
    projecting,
    rows_of,
    wait_projected,
    wait_until,
)
from tests.streams.three_copies import OfThree


async def fill(ports, *, first: int = 1, count: int = 5) -> None:
    """Put whole lives on the journal, each with a finding, an output, a turn, a workflow, orders,
    and the definitions of an agent and of a workflow."""
    for number in range(first, first + count):
        subject = ports.stack.episode(lives.episode_id(number))
        whole = ((lives.opened(number),), *lives.WHOLE_LIFE[1:])
        await append(ports.log, subject, *whole)
        key = f"disk:h{number}"
        happened = ((lives.raised(key),), (lives.updated(key),), (lives.cleared(key),))
        await append(ports.log, ports.stack.finding(key), *happened)
        delivered = ((lives.proposed(number, key=key),), (OutputDelivered(attempt=1),))
        await append(ports.log, ports.stack.output(key), *delivered)
        moves = ((lives.placed(lives.ticket(number)),), (lives.admitted(number),))
        await append(ports.log, ports.stack.lane("monitor"), *moves)
        ran = [each.commit.events for each in given(flow("a")).when(done("a")).flow.journal]
        await append(ports.log, ports.stack.workflow(lives.episode_id(number)), *ran)
        orders = (
            (event(actor_id=f"a{number}", by="ada"),) for event in (ActorPaused, ActorResumed)
        )
        await append(ports.log, ports.stack.order(f"pause.a{number}"), *orders)
        people = (
            (PersonAdded(name=f"p{number}", role=Role.ADMIN, by="ada"),),
            (PersonRemoved(name=f"p{number}", by="ada"),),
        )
        await append(ports.log, ports.stack.person(f"people{number}"), *people)
        token = f"{number:012x}"
        issued = TokenIssued(
            id=token, name="ci", role=Role.VIEWER, secret_hash="ab", expires_at=AT, by="ada"
        )
        revoked = TokenRevoked(id=token, name="ci", by="ada")
        await append(ports.log, ports.stack.person(f"token.{token}"), (issued,), (revoked,))
        for kind in DefinitionKind:
            defined = ((lives.applied(kind, f"d{number}"),), (lives.disabled(kind, f"d{number}"),))
            subject = ports.stack.definition(definition_id(kind, f"d{number}"))
            await append(ports.log, subject, *defined)


async def test_what_is_on_the_journal_becomes_rows(ports, bare_pool):
    await fill(ports)
    async with projecting(ports, bare_pool):
        await wait_projected(ports, bare_pool)
        await fill(ports, first=6)
        await wait_projected(ports, bare_pool)
    episodes = await rows_of(bare_pool, "episodes", stack=ports.stack)
    findings = await rows_of(bare_pool, "findings", stack=ports.stack)
    assert [row["status"] for row in episodes] == ["done"] * 10
    assert [row["status"] for row in findings] == ["cleared"] * 10


async def test_a_replay_makes_the_same_rows(ports, bare_pool, postgres, schema):
    """I6."""
    await fill(ports, count=2)
    async with projecting(ports, bare_pool):
        await wait_projected(ports, bare_pool)
        await fill(ports, first=3)
        await wait_projected(ports, bare_pool)
    rebuilt = await connect(postgres.dsn, schema=f"{schema}_rebuilt")
    async with projecting(ports, rebuilt, node="n2"):
        await wait_projected(ports, rebuilt)
    before = await all_rows(bare_pool, stack=ports.stack)
    assert await all_rows(rebuilt, stack=ports.stack) == before
    assert all(before[table] for table in before.keys() - {"dead_letters"})
    await rebuilt.close()


async def test_a_replay_over_rows_that_exist_makes_the_same_rows(ports, pool):
    await fill(ports)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    before = await all_rows(pool, stack=ports.stack)
    await pool.execute(
        "UPDATE projection_checkpoints SET journal_seq = least(journal_seq, 1), mark = ''"
    )
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    assert await all_rows(pool, stack=ports.stack) == before


async def test_dead_letters_become_rows(ports, bare_pool):
    await append(ports.log, ports.stack.dead("events", "7"), (lives.lettered(),))
    async with projecting(ports, bare_pool):
        await wait_until_migrated(bare_pool)
        await wait_projected(ports, bare_pool, Stream.DEAD)
    assert (await only_row(bare_pool, "dead_letters", stack=ports.stack))["reason"] == "unreadable"


async def wait_until_migrated(pool):
    async def is_migrated():
        return await pool.fetchval("SELECT to_regclass('projection_checkpoints')") is not None

    await wait_until(is_migrated)


async def claim_state(ports, pool, key):
    rows = await rows_of(pool, "work_claims", stack=ports.stack)
    return {row["dedupe_key"]: row["state"] for row in rows}.get(key)


async def test_claims_become_rows_as_they_come_and_go(ports, pool):
    key = episode_claim("monitor", lives.episode_id(1))
    async with projecting(ports, pool):
        lease = await ports.leases.acquire(key, holder="n7")

        async def is_claimed():
            return await claim_state(ports, pool, key) == "claimed"

        async def is_done():
            return await claim_state(ports, pool, key) == "done"

        await wait_until(is_claimed)
        await ports.leases.complete(lease)
        await wait_until(is_done)


async def test_a_claim_given_up_while_nobody_projected_shows_as_done(ports, pool):
    key = episode_claim("monitor", lives.episode_id(1))
    lease = await ports.leases.acquire(key, holder="n7")

    async def is_claimed():
        return await claim_state(ports, pool, key) == "claimed"

    async def is_done():
        return await claim_state(ports, pool, key) == "done"

    async with projecting(ports, pool):
        await wait_until(is_claimed)
    await ports.leases.complete(lease)
    async with projecting(ports, pool):
        await wait_until(is_done)


async def test_a_zombie_writes_nothing(pool, stack):
    """The guard of the checkpoint, by itself."""
    record = Recorded(
        subject=stack.episode(lives.episode_id(1)), seq=1, commit=lives.commit(lives.opened())
    )
    batches = arrange(changes_of([record], stack=stack))
    stale = await store.load(pool, stack=stack.name, projection="journal", now=AT)
    async with pool.acquire() as connection:
        await store.apply(connection, [], since=stale, position=5, now=AT)
        with pytest.raises(ProjectorFenced, match="no longer at 0"):
            await store.apply(connection, batches, since=stale, position=1, now=AT)
    assert await rows_of(pool, "episodes", stack=stack) == []


async def test_two_projectors_that_both_hold_the_lease_leave_the_right_rows(
    ports, bare_pool, postgres, schema
):
    """The lease is switched off: each has leases of its own, and the fence stands alone."""
    rival = replace(ports, leases=memory_ports(stack=ports.stack, clock=SystemClock()).leases)
    with capture_logs() as logged:
        async with projecting(ports, bare_pool), projecting(rival, bare_pool, node="n2"):
            await wait_until_migrated(bare_pool)
            for number in range(1, 30):
                await fill(ports, first=number, count=1)
                await wait_projected(ports, bare_pool)
    alone = await connect(postgres.dsn, schema=f"{schema}_alone")
    async with projecting(ports, alone):
        await wait_projected(ports, alone)
    expected = await all_rows(alone, stack=ports.stack)
    assert await all_rows(bare_pool, stack=ports.stack) == expected
    assert any(entry["event"] == "standing by" for entry in logged)
    await alone.close()


async def test_another_node_goes_on_when_the_projecting_one_stops(ports, pool):
    async with projecting(ports, pool, node="n2"):
        async with projecting(ports, pool, node="n1"):
            await fill(ports, count=1)
            await wait_projected(ports, pool)
        await fill(ports, first=2, count=1)
        await wait_projected(ports, pool)
    assert len(await rows_of(pool, "episodes", stack=ports.stack)) == 2


async def test_postgres_may_go_away_and_come_back(ports, directory):
    with EmbeddedPostgres(directory) as server:
        pool = await connect(server.dsn)
        with capture_logs() as logged:
            async with projecting(ports, pool):
                await fill(ports, count=1)
                await wait_until_migrated(pool)
                await wait_projected(ports, pool)
                server.stop()
                await fill(ports, first=2, count=3)

                async def is_noticed():
                    return any(entry["event"] == "cannot go on" for entry in logged)

                await wait_until(is_noticed)
                server.restart()
                await wait_until_answers(pool)
                await wait_projected(ports, pool)
        assert len(await rows_of(pool, "episodes", stack=ports.stack)) == 4
        told = [entry["log_level"] for entry in logged if entry.get("projection") == "journal"]
        assert len(told) < 8, "one line per change of state, not one per try"
        await pool.close()


async def wait_until_answers(pool):
    async def answers():
        try:
            await pool.fetchval("SELECT 1")
        except AWAY:
            return False
        return True

    await wait_until(answers)


async def test_a_crash_of_postgres_takes_rows_and_checkpoint_back_together(ports, directory):
    with EmbeddedPostgres(directory) as server:
        pool = await connect(server.dsn)
        async with projecting(ports, pool):
            await fill(ports)
            await wait_until_migrated(pool)
            await wait_projected(ports, pool)
            server.kill()
            server.restart()
            await wait_until_answers(pool)
            await fill(ports, first=6, count=1)
            await wait_projected(ports, pool)
        episodes = await rows_of(pool, "episodes", stack=ports.stack)
        assert [row["status"] for row in episodes] == ["done"] * 6
        await pool.close()


async def test_what_cannot_be_read_is_stood_before_and_said_once(ports, pool):
    await fill(ports, count=1)
    good = await ports.log.head()
    ports.log.publish_raw(ports.stack.episode(lives.episode_id(2)), b"{", {})
    await fill(ports, first=3, count=1)
    with capture_logs() as logged:
        async with projecting(ports, pool):
            await caught_up(pool, ports.stack, {"journal": good}, timeout_s=lives.WAIT_S)

            async def is_said():
                return any(entry["log_level"] == "error" for entry in logged)

            await wait_until(is_said)
    said = [entry for entry in logged if entry["log_level"] == "error"]
    assert len(said) == 1
    assert f"@{good + 1}" in said[0]["error"]
    assert len(await rows_of(pool, "episodes", stack=ports.stack)) == 1


async def test_what_does_not_belong_is_stood_before_too_and_what_came_before_is_kept(ports, pool):
    await fill(ports, count=1)
    good = await ports.log.head()
    await append(ports.log, ports.stack.episode("no-uuid"), (lives.opened(2),))
    with capture_logs() as logged:
        async with projecting(ports, pool):
            await caught_up(pool, ports.stack, {"journal": good}, timeout_s=lives.WAIT_S)

            async def is_said():
                return any(entry["log_level"] == "error" for entry in logged)

            await wait_until(is_said)
    assert len(await rows_of(pool, "episodes", stack=ports.stack)) == 1


def has_said(logged, reason):
    """Return a condition: the projector has said that it cannot go on, and why."""

    async def is_said():
        return any(entry.get("reason") == reason for entry in logged)

    return is_said


async def checkpoint_of(ports, pool, projection="journal"):
    return await store.load(pool, stack=ports.stack.name, projection=projection, now=AT)


async def lost(ports, pool) -> LogLost:
    """Return why a projector ends."""
    with pytest.raises(LogLost) as told:
        async with asyncio.timeout(lives.WAIT_S):
            await project(ports, pool, node="n1", clock=HurriedClock(), stop=asyncio.Event())
    return told.value


async def test_a_journal_that_ends_before_the_rows_is_not_taken_for_theirs(ports, pool):
    since = await checkpoint_of(ports, pool)
    async with pool.acquire() as connection:
        await store.apply(connection, [], since=since, position=1_000, now=AT)
    (found,) = (await lost(ports, pool)).losses
    assert (found.part, found.lack, found.known_seq) == ("journal", Lack.ENDS_EARLY, 1_000)


async def test_rows_wait_while_the_leader_of_several_copies_catches_up(ports, pool):
    await fill(ports, count=2)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    states = OfThree(ports.states)
    with capture_logs() as logged:
        async with projecting(replace(ports, states=states), pool):
            await wait_until(has_said(logged, "Unavailable"))
            states.is_behind = False
            await fill(ports, first=3)
            await wait_projected(ports, pool)


async def test_a_journal_made_anew_is_not_taken_for_the_old_one_however_long_it_is(ports, pool):
    """The same episodes, even: their subjects and the ids of their commits are the same again."""
    await fill(ports, count=2)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    before = await all_rows(pool, stack=ports.stack)
    anew = memory_ports(stack=ports.stack, clock=SystemClock())
    for number in range(1, 9):
        whole = ((lives.opened(number),), *lives.WHOLE_LIFE[1:])
        await append(anew.log, ports.stack.episode(lives.episode_id(number)), *whole)
    await fill(anew, first=9)
    assert await anew.log.head() > await ports.log.head()
    (found,) = (await lost(anew, pool)).losses
    assert found.part in AGGREGATE_STREAMS
    assert found.lack is Lack.MADE_ANEW
    noted = (await checkpoint_of(anew, pool, found.part)).trouble or ""
    assert "`vigil recover --accept-loss`" in noted
    assert await all_rows(pool, stack=ports.stack) == before


async def test_rows_of_a_loss_that_was_accepted_go_on_where_the_stream_does(ports, pool):
    since = await checkpoint_of(ports, pool)
    async with pool.acquire() as connection:
        await store.apply(connection, [], since=since, position=1_000, mark="gone", now=AT)
    await store.resume(pool, stack=ports.stack.name, positions={"journal": 0}, now=AT)
    await fill(ports, count=2)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    assert (await checkpoint_of(ports, pool)).position == await ports.log.head()


async def test_a_commit_is_told_from_its_like_in_another_journal_by_its_time(stack):
    one = lives.record(stack, lives.opened())
    later = msgspec.structs.replace(one.commit, at=AT + timedelta(seconds=1))
    assert mark_of(one) != mark_of(msgspec.structs.replace(one, commit=later))


async def test_rows_that_postgres_refuses_are_stood_before_and_said_once(ports, own_pool):
    await fill(ports, count=1)
    await own_pool.execute("ALTER TABLE episodes ADD CONSTRAINT strict CHECK (actor_id = 'none')")
    with capture_logs() as logged:
        async with projecting(ports, own_pool):
            await wait_until(has_said(logged, "RowsRefused"))

            async def is_noted():
                return (await checkpoint_of(ports, own_pool)).trouble is not None

            await wait_until(is_noted)
            noted = await checkpoint_of(ports, own_pool)
            await own_pool.execute("ALTER TABLE episodes DROP CONSTRAINT strict")
            await wait_projected(ports, own_pool)
    (said,) = [entry for entry in logged if "reason" in entry]
    assert (said["log_level"], said["error"], noted.position) == ("error", noted.trouble, 0)
    head = await ports.log.head()
    assert f"messages 1 to {head}, open_episodes: " in said["error"]
    assert "Failing row" not in said["error"], "a row may hold secrets"
    assert (await checkpoint_of(ports, own_pool)).trouble is None


async def test_trouble_that_is_over_is_forgotten_though_nothing_comes_after_it(pool, stack):
    since = await store.load(pool, stack=stack.name, projection="journal", now=AT)
    await store.note_trouble(pool, stack=stack.name, projection="journal", trouble="oh")
    noted = await store.load(pool, stack=stack.name, projection="journal", now=AT)
    assert noted == msgspec.structs.replace(since, trouble="oh")
    ports = memory_ports(stack=stack, clock=SystemClock())
    async with projecting(ports, pool):

        async def is_forgotten():
            return (await checkpoint_of(ports, pool)).trouble is None

        await wait_until(is_forgotten)


@pytest.mark.parametrize(
    ("made_otherwise", "why"),
    [
        ("UPDATE schema_migrations SET checksum = 'other'", "MigrationChanged"),
        ("UPDATE schema_migrations SET name = '0001_other.sql'", "MigrationUnknown"),
    ],
)
async def test_tables_of_another_version_are_said_and_nothing_is_written(
    ports, own_pool, made_otherwise, why
):
    await own_pool.execute(made_otherwise)
    with capture_logs() as logged:
        async with projecting(ports, own_pool):

            async def is_said():
                return any(entry.get("reason") == why for entry in logged)

            await wait_until(is_said)


async def test_a_reader_sees_its_own_writes(ports, pool):
    async with projecting(ports, pool):
        await fill(ports, count=1)
        await caught_up(pool, ports.stack, await heads(ports), timeout_s=lives.WAIT_S)
        assert len(await rows_of(pool, "episodes", stack=ports.stack)) == 1


async def test_waiting_for_rows_that_nobody_writes_ends(pool, stack):
    with pytest.raises(NotCaughtUp, match=r"at 0 of 7 after 0\.05 s"):
        await caught_up(pool, stack, {"journal": 7}, timeout_s=0.05)


async def test_waiting_while_postgres_is_away_says_so(stack, directory):
    with EmbeddedPostgres(directory) as server:
        pool = await connect(server.dsn)
        await migrate(pool)
        server.stop()
        with pytest.raises(PostgresUnavailable):
            await caught_up(pool, stack, {"journal": 1}, timeout_s=5.0)
        pool.terminate()

"""How long things are kept, what would go, what goes and what is held, by calls of a client."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from engine.retention.store import declare
from engine.retention.worker import last_run
from projections.postgres.reader import show_episode
from streams.clock import SystemClock
from streams.keys import RETENTION
from streams.model.retention import Retention
from streams.ports.log import START, Commit
from tests.projections.lives import WHOLE_LIFE, episode_id, projecting
from tests.projections.test_projector import wait_projected
from vigil.client import Client
from vigil.errors import Mistake, NotFound, Trouble

CLOCK = SystemClock()
EPISODE = episode_id(1)
LONG_AGO = timedelta(days=40)
DAY_S = 86_400


@pytest.fixture
async def filled(ports, pool):
    """An episode that ended 40 days ago, on a stack that keeps such for 30."""
    await declare(
        ports,
        node="n1",
        stack=Retention(done="30d"),
        actors={"audit": Retention(findings="90d")},
        clock=CLOCK,
    )
    seq = START
    for number, events in enumerate(WHOLE_LIFE):
        commit = Commit(id=f"c{number}", at=CLOCK.now() - LONG_AGO, events=tuple(events))
        seq = await ports.log.append(ports.stack.episode(EPISODE), commit, after=seq)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
        yield


async def is_there(pool, stack):
    return await show_episode(pool, stack, UUID(EPISODE)) is not None


async def test_what_is_kept_for_how_long_is_shown_with_what_is_over_due(client, filled):
    seen = await client.retention.show()
    assert {(each.actor_id, each.what): each.kept_s for each in seen.kept} == {
        (None, "done"): 30 * DAY_S,
        (None, "failed"): 120 * DAY_S,
        ("audit", "findings"): 90 * DAY_S,
    }
    (old,) = seen.old
    assert (old.kind, old.actor_id, old.state, old.due) == ("episodes", "monitor", "done", 1)
    assert (seen.holds, seen.cuts, seen.last) == ([], (), None)


async def test_a_dry_run_says_what_would_go_and_nothing_goes(client, pool, stack, filled):
    done = await client.retention.run(dry_run=True)
    assert (done.is_dry, done.deleted) == (True, {})
    assert [each.due for each in done.old] == [1]
    assert await is_there(pool, stack)


async def test_a_run_deletes_what_is_over_due_and_is_noted(client, ports, pool, stack, filled):
    done = await client.retention.run(by="bob")
    assert not done.is_dry
    # The projector may have been faster.
    assert done.deleted.get("episodes", 1) == 1
    assert not await is_there(pool, stack)
    seen = await client.retention.show()
    assert seen.old == []
    assert {each.what.value for each in seen.cuts} == {"done", "failed", "findings"}
    assert seen.last == await last_run(ports.gates)
    assert seen.last.by == "bob"


@pytest.mark.parametrize("what", [("actor", "monitor"), ("episode", EPISODE), ("subject", "h1")])
async def test_what_is_held_does_not_go_until_it_is_released(client, pool, stack, filled, what):
    kind, held = what
    assert (await client.retention.hold(kind, held, reason="case 7")).is_new
    assert not (await client.retention.hold(kind, held)).is_new
    (hold,) = await client.retention.holds()
    assert (hold.kind, hold.held, hold.by, hold.reason) == (kind, held, "ann", "case 7")
    await client.retention.run()
    assert await is_there(pool, stack)
    (old,) = (await client.retention.show()).old
    assert (old.due, old.stay) == (0, {f"{kind} {held}": 1})

    assert (await client.retention.release(kind, held)).is_new
    assert not (await client.retention.release(kind, held)).is_new
    await client.retention.run()
    assert not await is_there(pool, stack)
    assert await client.retention.holds() == []


async def test_the_beginning_of_an_id_holds_the_whole_episode(client, pool, stack, filled):
    await client.retention.hold("episode", EPISODE[:8])
    assert [each.held for each in await client.retention.holds()] == [EPISODE]
    await client.retention.run()
    assert await is_there(pool, stack)
    assert (await client.retention.release("episode", EPISODE[:8])).is_new


@pytest.mark.parametrize(
    ("kind", "held", "remedy"),
    [
        ("actor", "monitro", "give --unseen"),
        ("subject", "host/h1", "by its value alone, such as 'h1'"),
        ("episode", episode_id(7), "give --unseen"),
        ("episode", "abc", "episodes list"),
    ],
)
async def test_what_is_not_there_is_held_only_on_purpose(client, filled, kind, held, remedy):
    with pytest.raises(NotFound) as caught:
        await client.retention.hold(kind, held)
    assert remedy in str(caught.value.remedy)
    assert await client.retention.holds() == []
    if held != "abc":
        assert (await client.retention.hold(kind, held, unseen=True)).is_new


async def test_nobody_runs_while_a_node_does(client, ports, filled):
    assert await ports.leases.acquire(RETENTION, holder="n1") is not None
    with pytest.raises(Trouble, match="another process lets go what is old now"):
        await client.retention.run()


async def test_a_hold_that_the_rows_do_not_know_yet_is_no_success(ports, pool, monkeypatch):
    monkeypatch.setattr("vigil.client.stack.retention.LEVEL_S", 0.1)
    async with Client.on(ports, pool, by="ann") as client:
        with pytest.raises(Trouble):
            await client.retention.hold("actor", "monitor", unseen=True)
        assert len(await client.retention.holds()) == 1


@pytest.mark.parametrize(
    ("kind", "held", "problem"),
    [
        ("finding", "x", "kind: 'finding' is not one of subject"),
        ("actor", " ", "held: give"),
    ],
)
async def test_what_cannot_be_held_is_a_mistake(client, kind, held, problem):
    for asked in (client.retention.hold, client.retention.release):
        with pytest.raises(Mistake, match=problem):
            await asked(kind, held)


async def test_what_has_gone_does_not_come_back_with_a_rebuild(client, pool, stack, filled):
    await client.retention.run()
    assert (await client.projections.verify()).difference is None
    await pool.execute("DELETE FROM orders WHERE stack = $1", stack.name)
    done = await client.projections.rebuild()
    assert [each.table for each in done.changes] == ["orders"]
    assert not await is_there(pool, stack)


async def test_what_is_held_comes_back_with_a_rebuild(client, pool, stack, filled):
    await client.retention.hold("subject", "h1")
    await client.retention.run()
    await pool.execute("DELETE FROM episodes WHERE stack = $1", stack.name)
    await client.projections.rebuild()
    assert await is_there(pool, stack)

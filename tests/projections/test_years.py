"""A stack runs for a year with retention on: its journal and its tables stay as large as they were
after some weeks, and nothing is lost that is open, held or referred to.

VIGIL_TEST_SIZE=full lets a whole year pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from engine.archive.run import ArchivePlan, KnownRows, archive_once
from engine.orders.store import give_order
from engine.retention.worker import RetentionWorker
from engine.runtime.leases import Keeper
from projections.postgres.migrator import migrate
from projections.postgres.pool import connect
from projections.postgres.progress import known_positions
from projections.postgres.prune import prune, prune_beside
from streams.archive.archive import Archive
from streams.archive.memory import MemoryArchive
from streams.clock import SystemClock
from streams.layout import Stream
from streams.memory import memory_ports
from streams.model.events import EndStatus, HoldAdded
from streams.model.retention import HoldKind, Retention
from streams.ports.log import START, Commit
from streams.subjects import Stack
from tests.followed import note_followed
from tests.projections import lives
from tests.projections.lives import (
    AT,
    HurriedClock,
    all_rows,
    episode_id,
    projecting,
    rows_of,
    wait_projected,
)
from tests.projections.test_archived import whole
from tests.size import size

pytestmark = pytest.mark.timeout(600)

DAYS = size("retained", short=75, full=365)
DONE, FAILED, FINDINGS, HOT = (timedelta(days=each) for each in (20, 40, 30, 10))
OPEN_DAYS = 15
"""How long the one of a day that takes long is open."""
ACTIVE_DAYS = 25
"""How long what is found is active."""
A_DAY = 8
"""Episodes of a day: the first takes long, the second fails, and the third finds something."""
HELD_EVERY = 40
"""Of so many episodes one is held."""
PARTS = ("episode_steps", "episode_attempts", "episode_checkpoints", "episode_blocks")


class DayClock(SystemClock):
    """Shows the day that the test is at; pauses are short."""

    at = AT

    def now(self):
        return self.at

    async def sleep(self, seconds):
        await super().sleep(min(seconds, 0.01))


def caused(event, number):
    """Return a change of a finding that an episode has made."""
    return replace(event, cause=replace(lives.CAUSE, episode_id=episode_id(number)))


@dataclass
class Year:
    """What happened, day by day, and what must be there of it."""

    ports: object
    clock: DayClock
    versions: dict[str, int] = field(default_factory=dict)
    ended: dict[int, tuple[datetime, bool]] = field(default_factory=dict)
    """Episode → when it ended, and whether it failed."""
    opened: set[int] = field(default_factory=set)
    found: dict[int, datetime | None] = field(default_factory=dict)
    """Episode that found something → when that was cleared."""
    held: set[int] = field(default_factory=set)

    async def write(self, subject, *lives_):
        for events in lives_:
            after = self.versions.get(subject, START)
            commit = Commit(id=f"{subject}-{after}", at=self.clock.now(), events=tuple(events))
            self.versions[subject] = await self.ports.log.append(subject, commit, after=after)

    async def pass_day(self, day):
        stack = self.ports.stack
        first = day * A_DAY + 1
        for number in range(first, first + A_DAY):
            self.opened.add(number)
            subject = stack.episode(episode_id(number))
            await self.write(subject, *[(lives.opened(number),), *lives.WHOLE_LIFE[1:5]])
            if number % HELD_EVERY == 0:
                await self.hold(number)
            if number != first:
                await self.end(number, failed=number == first + 1)
        await self.find(first + 2)
        if day >= OPEN_DAYS:
            await self.end((day - OPEN_DAYS) * A_DAY + 1, failed=False)
        if day >= ACTIVE_DAYS:
            await self.clear((day - ACTIVE_DAYS) * A_DAY + 3)
        self.clock.at += timedelta(days=1)

    async def end(self, number, *, failed):
        status = EndStatus.FAILED if failed else EndStatus.DONE
        subject = self.ports.stack.episode(episode_id(number))
        await self.write(
            subject, *lives.WHOLE_LIFE[5:7], (lives.converged(),), (lives.finished(status),)
        )
        self.ended[number] = (self.clock.now(), failed)

    async def find(self, number):
        key, now = f"found:{number}", self.clock.now()
        said = {"raised_by_episode_id": episode_id(number), "raised_at": now, "updated_at": now}
        await self.write(
            self.ports.stack.finding(key), (caused(lives.raised(key, **said), number),)
        )
        self.found[number] = None

    async def clear(self, number):
        key, now = f"found:{number}", self.clock.now()
        said = {"raised_by_episode_id": episode_id(number), "updated_at": now, "cleared_at": now}
        cleared = caused(lives.cleared(key, **said), number)
        await self.write(self.ports.stack.finding(key), (cleared,))
        self.found[number] = now

    async def hold(self, number):
        self.held.add(number)
        event = HoldAdded(kind=HoldKind.EPISODE, held=episode_id(number), by="ann")
        await give_order(self.ports, event, clock=self.clock)

    def episodes(self, cuts):
        """Return the episodes that must be there."""
        return {
            number
            for number in self.opened
            if number not in self.ended
            or number in self.held
            or (number in self.found and self.found[number] is None)
            or self.ended[number][0] >= cuts["failed" if self.ended[number][1] else "done"]
        }

    def findings(self, cuts):
        """Return the findings that must be there, by who found them."""
        return {
            number
            for number, cleared_at in self.found.items()
            if cleared_at is None or number in self.held or cleared_at >= cuts["findings"]
        }


async def test_a_year_of_retention_loses_nothing_and_nothing_piles_up(postgres, bare_pool, schema):
    clock = DayClock()
    ports = memory_ports(stack=Stack("years"), clock=clock, lease_ttl_s=60)
    kept = Retention(done=DONE, failed=FAILED, findings=FINDINGS)
    keeper = Keeper(ports.leases, holder="n1", clock=clock)
    worker = RetentionWorker(ports, "n1", keeper, dict, kept)
    await worker.declare()
    archive = Archive(MemoryArchive(), ports.stack)
    year, journal, most = Year(ports, clock), [], 0
    await migrate(bare_pool)
    async with projecting(ports, bare_pool):
        for day in range(DAYS):
            await year.pass_day(day)
            assert await worker.look() is not None
            if day % 5 == 4:
                await wait_projected(ports, bare_pool, Stream.JOURNAL, Stream.STATE)
                await prune(ports, bare_pool, clock=clock)
                await archive_old(ports, archive, bare_pool, clock)
                await see_whole(year, bare_pool)
                state = await ports.states.of("journal")
                journal.append(state.last_seq - state.first_seq)
                most = max(most, len(await rows_of(bare_pool, "episodes", stack=ports.stack)))
    settled = (max(OPEN_DAYS, HOT.days) + 10) // 5 + 1
    assert max(journal[settled:]) <= 1.1 * max(journal[:settled])
    assert journal[-1] < (await ports.states.of("journal")).last_seq / 2
    assert most < 0.8 * len(year.opened)
    await see_equal_when_made_anew(ports, archive, bare_pool, postgres, schema)


async def archive_old(ports, archive, pool, clock):
    await note_followed(ports)
    plan = ArchivePlan(hot_s=HOT.total_seconds())
    rows = KnownRows(positions=await known_positions(pool, ports.stack))
    assert await archive_once(ports, archive, plan, rows=rows, node="n1", clock=clock) is not None


async def see_whole(year, pool):
    """See that exactly what must be there is, each with all that it has."""
    stack = year.ports.stack
    cut = await rows_of(pool, "retention_cuts", stack=stack)
    cuts = {row["what"]: row["before"] for row in cut}
    there = await rows_of(pool, "episodes", stack=stack)
    numbers = {row["episode_id"].int for row in there}
    assert numbers == year.episodes(cuts)
    for table in PARTS:
        rows = await rows_of(pool, table, stack=stack)
        assert {row["episode_id"].int for row in rows} <= numbers
    steps = await rows_of(pool, "episode_steps", stack=stack)
    assert {row["episode_id"].int for row in steps} == numbers
    found = await rows_of(pool, "findings", stack=stack)
    assert {row["raised_by_episode_id"].int for row in found} == year.findings(cuts)
    history = await rows_of(pool, "finding_events", stack=stack)
    assert {row["finding_key"] for row in history} == {row["finding_key"] for row in found}


async def see_equal_when_made_anew(ports, archive, pool, postgres, schema):
    """I6: rows that are made of archive and journal, and cut, are those that there are."""
    await wait_projected(ports, pool, Stream.JOURNAL, Stream.STATE)
    await prune(ports, pool, clock=HurriedClock())
    anew = await connect(postgres.dsn, schema=f"{schema}_anew")
    async with projecting(whole(ports, archive), anew, node="n2"):
        await wait_projected(ports, anew)
    async with pool.acquire() as live, anew.acquire() as beside, beside.transaction():
        await prune_beside(beside, ports.stack, live)
    assert await all_rows(anew, stack=ports.stack) == await all_rows(pool, stack=ports.stack)
    await anew.close()

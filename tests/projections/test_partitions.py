"""A journal that is spread over partitions becomes the same rows, each partition by itself."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from projections.errors import BadPlace, NotCaughtUp
from projections.postgres import store
from projections.postgres.progress import caught_up, heads
from projections.postgres.reader import list_checkpoints
from streams.clock import SystemClock
from streams.layout import Kind, Stream
from streams.memory import memory_ports
from streams.subjects import Stack
from tests.projections import lives
from tests.projections.lives import AT, append, projecting, rows_of, wait_projected, wait_until

PARTITIONS = 3


@pytest.fixture
def stack(stack):
    """The test's stack, spread."""
    return Stack(stack.name, PARTITIONS)


async def fill(ports, *, first=1, count=8):
    """Put whole lives on the journal, and a finding for each."""
    for number in range(first, first + count):
        subject = ports.stack.episode(lives.episode_id(number))
        await append(ports.log, subject, (lives.opened(number),), *lives.WHOLE_LIFE[1:])
        key = f"disk:h{number}"
        happened = ((lives.raised(key),), (lives.updated(key),), (lives.cleared(key),))
        await append(ports.log, ports.stack.finding(key), *happened)


async def places(pool, stack):
    return {row["projection"]: row["journal_seq"] for row in await list_checkpoints(pool, stack)}


async def test_every_partition_becomes_rows_behind_a_checkpoint_of_its_own(ports, pool):
    await fill(ports)
    newest = await heads(ports)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    assert len(await rows_of(pool, "episodes", stack=ports.stack)) == 8
    assert len(await rows_of(pool, "findings", stack=ports.stack)) == 8
    reached = await places(pool, ports.stack)
    assert all(newest.values()), "the lives are spread"
    assert reached == reached | newest


async def test_a_projector_goes_on_where_each_partition_was(ports, pool):
    await fill(ports, count=4)
    async with projecting(ports, pool):
        await wait_projected(ports, pool)
    await fill(ports, first=5, count=4)
    async with projecting(ports, pool, node="n2"):
        await wait_projected(ports, pool)
    episodes = await rows_of(pool, "episodes", stack=ports.stack)
    assert [row["status"] for row in episodes] == ["done"] * 8


async def test_the_partitions_make_the_rows_that_one_journal_makes(ports, pool, stack):
    whole = memory_ports(stack=Stack("whole"), clock=SystemClock())
    for each in (ports, whole):
        await fill(each)
        async with projecting(each, pool):
            await wait_projected(each, pool)
    spread, one = [
        [
            {name: value for name, value in row.items() if not name.endswith(("_seq", "_at"))}
            for row in await rows_of(pool, "episodes", stack=each.stack)
        ]
        for each in (ports, whole)
    ]
    assert sorted(spread, key=repr) == sorted(one, key=repr)


async def test_a_partition_that_cannot_be_read_does_not_hold_up_the_others(ports, pool):
    number = 1
    stuck = ports.stack.part_of(Kind.EPISODE, lives.episode_id(number))
    ports.log.publish_raw(ports.stack.episode(lives.episode_id(number)), b"{", {})
    await fill(ports, first=2)
    newest = await heads(ports)
    others = {name: seq for name, seq in newest.items() if name != stuck}
    with capture_logs() as logged:
        async with projecting(ports, pool):
            await caught_up(pool, ports.stack, others, timeout_s=lives.WAIT_S)

            async def is_said():
                return any(entry["log_level"] == "error" for entry in logged)

            await wait_until(is_said)
    (said,) = [entry for entry in logged if entry["log_level"] == "error"]
    assert said["projection"] == stuck


async def reach(pool, stack, projection, position):
    since = await store.load(pool, stack=stack.name, projection=projection, now=AT)
    async with pool.acquire() as connection:
        await store.apply(connection, [], since=since, position=position, now=AT)


async def test_a_reader_waits_for_the_partitions_that_it_names(pool, stack):
    await reach(pool, stack, "journal-1of3", 7)
    await caught_up(pool, stack, {"journal-1of3": 7}, timeout_s=lives.WAIT_S)
    with pytest.raises(NotCaughtUp, match="journal-2of3: at 0 of 4"):
        await caught_up(pool, stack, {"journal-1of3": 7, "journal-2of3": 4}, timeout_s=0.05)


@pytest.mark.parametrize("name", ["journal", "journal-3of4", "work-1of3"])
async def test_a_place_in_no_projection_is_refused(pool, stack, name):
    with pytest.raises(BadPlace):
        await caught_up(pool, stack, {name: 7}, timeout_s=lives.WAIT_S)


async def test_dead_letters_have_one_sequence_however_the_journal_is_spread(ports, pool):
    await append(ports.log, ports.stack.dead("events", "7"), (lives.lettered(),))
    assert await heads(ports, [Stream.DEAD]) == {"dead": 1}
    async with projecting(ports, pool):
        await caught_up(pool, ports.stack, {"dead": 1}, timeout_s=lives.WAIT_S)
    assert len(await rows_of(pool, "dead_letters", stack=ports.stack)) == 1


@pytest.mark.parametrize("shown", ["journal", "journal-0of2"])
async def test_rows_of_another_layout_are_not_added_to(ports, pool, shown):
    """Their positions mean something else: the history of a finding would be there twice."""
    await reach(pool, ports.stack, shown, 5)
    await fill(ports)
    with capture_logs() as logged:
        async with projecting(ports, pool):

            async def all_have_said():
                said = [each for each in logged if each.get("reason") == "OtherJournal"]
                return len(said) == PARTITIONS

            await wait_until(all_have_said)
    assert await rows_of(pool, "episodes", stack=ports.stack) == []
    assert f"that is {shown}" in next(each["error"] for each in logged if "reason" in each)

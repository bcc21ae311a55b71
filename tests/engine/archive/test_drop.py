"""Old segments leave the archive, but for those of which something is made, open or held."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.archive.drop import SegmentHold
from engine.orders.store import give_order
from engine.retention.rules import RetentionHolds
from streams.archive.archive import Archive
from streams.archive.history import with_history
from streams.archive.memory import MemoryArchive
from streams.archive.segment import SegmentLimits
from streams.layout import Kind, Stream
from streams.model.events import HoldAdded
from streams.model.retention import HoldKind
from streams.subjects import Stack
from tests.engine.archive.stage import HOUR_S, Stage, play
from tests.engine.reactor import journals as given
from tests.simulation.time import EPOCH

KEPT_S = 100 * HOUR_S
SMALL = SegmentLimits(messages_max=3, block_bytes=300)
"""Segments of one episode each."""


def staged(scene, **how):
    """Return what the coroutine function `scene` makes of a new stage, on virtual time."""
    return play(scene(Stage(**how)))


async def dropped(stage: Stage, **plan):
    """Run, and return what was done with the segments of the only journal."""
    report = await stage.run(kept_s=KEPT_S, limits=SMALL, **plan)
    (told,) = report.dropped
    return told


async def aged(stage: Stage) -> None:
    """Have two episodes in the archive that are old enough to leave it, and one that is not."""
    await stage.live("a")
    await stage.live("b")
    await stage.later(95)
    await stage.live("c")
    await stage.later()
    await stage.run(limits=SMALL)


def log_of(stage: Stage):
    async def find() -> Archive:
        return Archive(stage.store, stage.stack)

    return with_history(stage.ports, find).log


async def followed(stage: Stage, after=0):
    """Return the sequences of all that is there."""
    seqs = []
    async with log_of(stage).follow(Stream.JOURNAL, after=after) as follower:
        while records := await follower.receive(most=100, wait_s=0.1):
            seqs += [each.seq for each in records]
    return seqs


def test_what_ended_long_ago_leaves_the_archive():
    async def scene(stage: Stage):
        await aged(stage)
        told = await dropped(stage)
        segments = [name for name in stage.store.files if name.endswith(".vigseg")]
        return told, segments, await stage.archive.names()

    told, segments, names = staged(scene)
    assert (told.segments, told.begin, told.hold) == (2, 7, SegmentHold.AGE)
    assert [*segments] == [*names]
    assert len(names) == 1


def test_what_is_left_is_read_as_ever():
    async def scene(stage: Stage):
        await aged(stage)
        await dropped(stage)
        await stage.live("d")
        archive = Archive(stage.store, stage.stack)
        log = log_of(stage)
        return (
            await followed(stage),
            await followed(stage, after=3),
            await log.first_seq(Stream.JOURNAL),
            [len(await archive.history(Kind.EPISODE, name)) for name in "ac"],
            [each.seq for each in await log.page(Stream.JOURNAL, after=0, up_to=9, most=1)],
        )

    whole = [7, 8, 9, 10, 11, 12]
    assert staged(scene) == (whole, whole, 7, [0, 3], [7])


def test_the_archive_goes_on_after_what_was_dropped():
    async def scene(stage: Stage):
        await aged(stage)
        await dropped(stage)
        for name in ("d", "e"):
            await stage.live(name)
            await stage.later(101)
            await stage.react()
            told = await dropped(stage)
        return told, await followed(stage)

    told, seqs = staged(scene)
    assert (told.segments, told.begin, seqs) == (1, 13, [13, 14, 15])


def test_the_newest_segment_stays_as_it_says_what_is_open():
    async def scene(stage: Stage):
        await aged(stage)
        await stage.later(200)
        return await dropped(stage)

    told = staged(scene)
    assert (told.segments, told.hold) == (2, SegmentHold.JOURNAL)


def test_what_the_journal_still_has_stays():
    async def scene(stage: Stage):
        await stage.open("slow")
        await stage.live("a", "b")
        await stage.later(120)
        await stage.run(limits=SMALL)
        return await dropped(stage)

    told = staged(scene)
    assert (told.segments, told.hold) == (0, SegmentHold.JOURNAL)


def test_what_ended_lately_stays_however_long_ago_it_began():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.open("slow")
        await stage.live("b")
        await stage.later(95)
        await stage.end("slow")
        await stage.live("c")
        await stage.later()
        await stage.run(limits=SMALL)
        return await dropped(stage)

    told = staged(scene)
    assert (told.segments, told.begin, told.hold) == (1, 4, SegmentHold.OPEN)


def test_what_the_tables_have_something_of_stays():
    async def scene(stage: Stage):
        await aged(stage)
        stage.rows_since = EPOCH
        return await dropped(stage)

    told = staged(scene)
    assert (told.segments, told.hold) == (0, SegmentHold.ROWS)


@pytest.mark.parametrize(("position", "segments"), [(5, 1), (2, 0)])
def test_what_the_tables_have_yet_to_read_stays(position, segments):
    async def scene(stage: Stage):
        await aged(stage)
        stage.rows = {"journal": position}
        return await dropped(stage)

    told = staged(scene)
    assert (told.segments, told.hold) == (segments, SegmentHold.ROWS)


def test_nothing_leaves_while_nobody_knows_what_the_tables_have():
    async def scene(stage: Stage):
        await aged(stage)
        stage.rows = None
        return (await stage.run(kept_s=KEPT_S)).dropped, await stage.archive.names()

    dropped_, names = staged(scene)
    assert (dropped_, len(names)) == ([], 3)


def test_what_is_held_stays_with_all_that_came_after_it():
    async def scene(stage: Stage):
        await aged(stage)
        held = RetentionHolds(frozenset({(HoldKind.EPISODE, "b")}))
        return await dropped(stage, holds=held)

    told = staged(scene)
    assert (told.segments, told.begin, told.hold) == (1, 4, SegmentHold.HELD)


def test_what_is_held_only_since_the_run_began_stays_too():
    async def scene(stage: Stage):
        await aged(stage)
        hold = HoldAdded(kind=HoldKind.ACTOR, held=given.OPENED.actor_id, by="ann")
        await give_order(stage.ports, hold, clock=stage.clock)
        return await dropped(stage)

    told = staged(scene)
    assert (told.segments, told.hold) == (0, SegmentHold.HELD)


def test_what_came_of_something_held_stays_in_other_partitions():
    stack = Stack("s", partitions=2)
    home = stack.partition_of(Kind.EPISODE, "b")
    keys = [f"o{number}" for number in range(99)]
    away = [each for each in keys if stack.partition_of(Kind.OUTPUT, each) != home]

    async def scene(stage: Stage):
        opened = replace(given.OPENED, episode_id="b")
        await stage.append(stage.stack.episode("b"), opened, given.FINISHED)
        for key in away[:9]:
            await stage.output(key, given.PROPOSED, given.DELIVERED)
        await stage.later(95)
        await stage.output(away[10], given.PROPOSED, given.DELIVERED)
        await stage.append(
            stage.stack.episode(next_home(stack, home)),
            replace(given.OPENED, episode_id=next_home(stack, home)),
            given.FINISHED,
        )
        await stage.later()
        await stage.run(limits=SMALL)
        held = RetentionHolds(frozenset({(HoldKind.EPISODE, "b")}))
        report = await stage.run(limits=SMALL, kept_s=KEPT_S, holds=held)
        freed = await stage.run(limits=SMALL, kept_s=KEPT_S)
        return [each.segments for each in report.dropped], sum(
            each.segments for each in freed.dropped
        )

    assert staged(scene, stack=stack) == ([0, 0], 3)


def next_home(stack: Stack, home: int) -> str:
    names = (f"e{number}" for number in range(99))
    return next(each for each in names if stack.partition_of(Kind.EPISODE, each) == home)


def test_a_dry_run_deletes_nothing():
    async def scene(stage: Stage):
        await aged(stage)
        before = dict(stage.store.files)
        told = await dropped(stage, is_dry=True)
        return told, before == stage.store.files

    told, is_same = staged(scene)
    assert (told.segments, is_same) == (2, True)


class Dies(Exception):
    """The process is gone."""


class DyingArchive(MemoryArchive):
    """Dies after so many changes; None: lives."""

    left: int | None = None

    async def create(self, name: str, data: bytes) -> bool:
        self._pass()
        return await super().create(name, data)

    async def delete(self, name: str) -> None:
        self._pass()
        await super().delete(name)

    def _pass(self) -> None:
        if self.left is not None:
            if not self.left:
                raise Dies
            self.left -= 1


@pytest.mark.parametrize("changes", range(4))
def test_whoever_dies_at_it_leaves_what_the_next_one_takes_along(changes):
    async def scene(stage: Stage):
        await aged(stage)
        stage.store.left = changes
        try:
            await dropped(stage)
        except Dies:
            is_dead = True
        else:
            is_dead = False
        stage.store.left = None
        seqs, names = await followed(stage), await stage.archive.names()
        assert len(names) == (1 if changes else 3)
        told = await dropped(stage)
        return is_dead, seqs, told.begin, len(stage.store.files), await followed(stage)

    is_dead, seqs, begin, files, after = staged(scene, store=DyingArchive())
    assert is_dead is (changes < 3)
    assert seqs == ([7, 8, 9] if changes else [*range(1, 10)])
    assert (begin, files, after) == (7, 2, [7, 8, 9])


def test_segments_of_a_stream_that_is_in_use_no_more_leave_by_their_age_alone():
    async def scene(stage: Stage):
        await stage.open("slow")
        await stage.later()
        await stage.run(limits=SMALL)
        (name,) = stage.store.files
        elsewhere = Stage(clock=stage.clock, stack=Stack("s", partitions=2), store=stage.store)
        await elsewhere.later(200)
        report = await elsewhere.run(kept_s=KEPT_S)
        return [(each.part, each.segments) for each in report.dropped], name in stage.store.files

    assert staged(scene) == ([("journal", 1)], False)

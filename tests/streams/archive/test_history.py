"""The log with all that it ever had: archive and live read as one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from engine.archive.purge import note_floor
from streams.archive.archive import Archive
from streams.archive.history import with_history
from streams.archive.memory import MemoryArchive
from streams.archive.restored import restore
from streams.errors import DamagedSegment, NotInArchive, Unavailable, UnreadableEvent
from streams.keys import ARCHIVED
from streams.layout import Kind, Stream
from streams.ports.log import START
from streams.subjects import Stack
from tests.engine.archive.stage import HOUR_S, Stage, play
from tests.engine.reactor import journals as given

RESTORED_S = 3_600


def staged(scene, **how):
    return play(scene(Stage(**how)))


async def purged(stage: Stage) -> None:
    """Have four episodes in the archive alone, and two in the journal alone."""
    await stage.live("a", "b", "c", "d")
    await stage.later()
    await stage.live("e")
    await stage.open("f")
    await stage.run()
    assert await stage.first_seq() == 13


def log_of(stage: Stage, archive: Archive | None = None):
    return with_history(stage.ports, finds(archive or stage.archive)).log


def finds(archive: Archive | None):
    async def find() -> Archive | None:
        return archive

    return find


async def followed(log, *, after=START, most=100, until=10_000):
    """Return the sequences of all that is there."""
    seqs = []
    async with log.follow(Stream.JOURNAL, after=after) as follower:
        while (records := await follower.receive(most=most, wait_s=0.1)) and len(seqs) < until:
            seqs += [each.seq for each in records]
    return seqs


@pytest.mark.parametrize("after", [0, 1, 6, 7, 11, 12, 13, 16])
@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_follower_gets_everything_once_and_in_order(after, most):
    async def scene(stage: Stage):
        await purged(stage)
        return await followed(log_of(stage), after=after, most=most)

    assert staged(scene) == [*range(after + 1, 17)]


def test_a_follower_sees_what_comes_later():
    async def scene(stage: Stage):
        await purged(stage)
        async with log_of(stage).follow(Stream.JOURNAL) as follower:
            seqs = []
            while records := await follower.receive(most=100, wait_s=0.1):
                seqs += [each.seq for each in records]
            assert follower.pending == 0
            await stage.end("f")
            (record,) = await follower.receive(most=100, wait_s=1)
        return seqs, record.seq

    assert staged(scene) == ([*range(1, 17)], 17)


def test_a_follower_knows_about_how_much_is_left():
    async def scene(stage: Stage):
        await purged(stage)
        async with log_of(stage).follow(Stream.JOURNAL) as follower:
            before = follower.pending
            await follower.receive(most=1, wait_s=1)
            return before, follower.pending

    assert staged(scene) == (16, 15)


def test_a_journal_that_is_purged_while_it_is_followed_is_read_on_from_the_archive():
    async def scene(stage: Stage):
        await purged(stage)
        async with log_of(stage).follow(Stream.JOURNAL) as follower:
            seqs = [each.seq for each in await follower.receive(most=2, wait_s=1)]
            await stage.end("f")
            await stage.later()
            await stage.react()
            await stage.run()
            assert await stage.first_seq() == 18
            await stage.live("g")
            while records := await follower.receive(most=100, wait_s=0.1):
                seqs += [each.seq for each in records]
        return seqs

    assert staged(scene) == [*range(1, 21)]


class SometimesAway(MemoryArchive):
    """Every other read fails."""

    reads = 0

    async def read(self, name, *, start=0, length=None):
        self.reads += 1
        if self.reads % 2:
            raise Unavailable("archive", detail="it is away")
        return await super().read(name, start=start, length=length)


def test_whoever_asks_again_after_an_archive_was_away_misses_nothing():
    async def scene(stage: Stage):
        await purged(stage)
        store = SometimesAway()
        store.files = stage.store.files
        log = log_of(stage, Archive(store, stage.stack))
        seqs, pages = [], []
        async with log.follow(Stream.JOURNAL) as follower:
            while seqs[-1:] != [16]:
                with suppress(Unavailable):
                    seqs += [each.seq for each in await follower.receive(most=2, wait_s=1)]
        while pages[-1:] != [16]:
            with suppress(Unavailable):
                last = pages[-1] if pages else START
                page = await log.page(Stream.JOURNAL, after=last, up_to=16, most=2)
                pages += [each.seq for each in page]
        return seqs, pages

    assert staged(scene) == ([*range(1, 17)], [*range(1, 17)])


def test_other_streams_are_followed_as_ever():
    async def scene(stage: Stage):
        await purged(stage)
        await stage.append(stage.stack.finding("disk"), given.RAISED)
        async with log_of(stage).follow(Stream.STATE) as follower:
            return [each.seq for each in await follower.receive(most=9, wait_s=1)]

    assert staged(scene) == [1]


def test_without_its_archive_a_purged_journal_is_not_followed_from_its_beginning():
    async def scene(stage: Stage):
        await purged(stage)
        log = with_history(stage.ports, finds(None)).log
        with pytest.raises(NotInArchive, match="up to 12 are in an archive"):
            await followed(log)
        return await followed(log, after=12)

    assert staged(scene) == [13, 14, 15, 16]


async def paged(log, *, after=START, up_to=100, most=100):
    """Return the sequences of all pages."""
    seqs = []
    while page := await log.page(Stream.JOURNAL, after=after, up_to=up_to, most=most):
        assert len(page) <= most
        seqs += [each.seq for each in page]
        after = seqs[-1]
    return seqs


@pytest.mark.parametrize("after", [0, 1, 7, 11, 12, 13, 16])
@pytest.mark.parametrize("most", [1, 3, 100])
def test_pages_have_everything_once_and_in_order(after, most):
    async def scene(stage: Stage):
        await purged(stage)
        log = log_of(stage)
        assert await log.first_seq(Stream.JOURNAL) == 1
        return await paged(log, after=after, most=most), await paged(log, after=2, up_to=5)

    assert staged(scene) == ([*range(after + 1, 17)], [3, 4, 5])


def test_without_its_archive_there_are_no_pages_of_half_a_past():
    async def scene(stage: Stage):
        await purged(stage)
        log = with_history(stage.ports, finds(None)).log
        with pytest.raises(NotInArchive, match="up to 12 are in an archive"):
            await log.first_seq(Stream.JOURNAL)
        with pytest.raises(NotInArchive, match="up to 12 are in an archive"):
            await paged(log)
        return await paged(log, after=12)

    assert staged(scene) == [13, 14, 15, 16]


def test_pages_pass_over_nothing_between_archive_and_journal():
    async def scene(stage: Stage):
        await purged(stage)
        log = log_of(stage, Archive(MemoryArchive(), stage.ports.stack))
        return await paged(log)

    with pytest.raises(NotInArchive):
        staged(scene)


def test_an_archive_of_nothing_is_noticed():
    async def scene(stage: Stage):
        await purged(stage)
        with pytest.raises(NotInArchive, match="the archive ends at 0"):
            await followed(log_of(stage, Archive(MemoryArchive(), stage.stack)))

    staged(scene)


def test_a_segment_that_is_missing_is_noticed():
    async def scene(stage: Stage):
        await purged(stage)
        first, *_ = await stage.archive.names()
        del stage.store.files[first]
        with pytest.raises(DamagedSegment, match="ended at 7, is missing"):
            await followed(log_of(stage, Archive(stage.store, stage.stack)))

    staged(scene)


def test_a_journal_whose_loss_was_accepted_is_followed_from_where_it_begins():
    async def scene(stage: Stage):
        await stage.live("a", "b")
        await stage.ports.states.purge("journal", below=4)
        return await followed(log_of(stage))

    assert staged(scene) == [4, 5, 6]


def test_an_unreadable_commit_comes_after_all_before_it():
    async def scene(stage: Stage):
        await stage.live("a")
        await stage.later()
        await stage.run(purges=False)
        await stage.ports.states.purge("journal", below=4)
        state = await stage.ports.states.of("journal")
        await note_floor(stage.ports, "journal", created=state.created, floor=4)
        log, archive = log_of(stage), stage.archive
        reader = archive.blocks

        async def spoilt(manifest, *, after=0):
            async for messages in reader(manifest, after=after):
                yield [replace(each, data=b"?") if each.seq == 3 else each for each in messages]

        archive.blocks = spoilt
        async with log.follow(Stream.JOURNAL) as follower:
            seqs = []
            while len(seqs) < 2:
                seqs += [each.seq for each in await follower.receive(most=9, wait_s=1)]
            with pytest.raises(UnreadableEvent):
                await follower.receive(most=9, wait_s=1)
        return seqs

    assert staged(scene) == [1, 2]


def test_an_episode_is_read_wherever_it_is():
    async def scene(stage: Stage):
        await purged(stage)
        log = log_of(stage)
        return [
            [each.seq for each in await log.read(stage.stack.episode(name))]
            for name in ("a", "e", "f", "none")
        ]

    archived, live, is_open, none = staged(scene)
    assert len(archived) == 3
    assert max(archived) <= 12
    assert (live, is_open, none) == ([13, 14, 15], [16], [])


def test_an_episode_that_is_half_purged_is_read_whole():
    async def scene(stage: Stage):
        await stage.open("a")
        await stage.step("a")
        await stage.later(1)
        await stage.open("b")
        await stage.end("a", "b")
        await stage.later()
        await stage.run(purges=False)
        await stage.ports.states.purge("journal", below=3)
        state = await stage.ports.states.of("journal")
        await note_floor(stage.ports, "journal", created=state.created, floor=3)
        return [each.seq for each in await log_of(stage).read(stage.stack.episode("a"))]

    assert staged(scene) == [1, 2, 4]


def test_an_output_that_was_proposed_again_has_its_whole_past():
    async def scene(stage: Stage):
        await stage.output("o1", given.PROPOSED)
        await stage.output("o1", given.FAILED)
        await stage.later()
        await stage.run()
        await stage.output("o1", given.PROPOSED)
        return [each.seq for each in await log_of(stage).read(stage.stack.output("o1"))]

    assert staged(scene) == [1, 2, 3]


def test_what_is_past_a_version_is_live():
    async def scene(stage: Stage):
        await purged(stage)
        return await log_of(stage).read(stage.stack.episode("a"), after=3)

    assert staged(scene) == []


def test_a_restored_episode_is_read_without_the_archive():
    async def scene(stage: Stage):
        await purged(stage)
        messages = await stage.archive.history(Kind.EPISODE, "a")
        await restore(
            stage.ports,
            Kind.EPISODE,
            "a",
            messages,
            by="ann",
            at=stage.clock.now(),
            ttl_s=RESTORED_S,
        )
        log = with_history(stage.ports, finds(None)).log
        restored = await log.read(stage.stack.episode("a"))
        others = await log.read(stage.stack.episode("b"))
        await stage.clock.sleep(2 * HOUR_S)
        return len(restored), others, await log.read(stage.stack.episode("a"))

    assert staged(scene) == (3, [], [])


def test_an_episode_is_read_after_its_stack_was_spread_over_more_streams():
    async def scene(stage: Stage):
        await purged(stage)
        spread = Stage(stack=Stack("s", partitions=3), clock=stage.clock, store=stage.store)
        entry = await stage.ports.registry.get(ARCHIVED)
        await spread.ports.registry.put(ARCHIVED, entry.value)
        subject = spread.stack.episode("a")
        records = await log_of(spread).read(subject)
        return len(records), {each.subject for each in records} == {subject}

    assert staged(scene) == (3, True)

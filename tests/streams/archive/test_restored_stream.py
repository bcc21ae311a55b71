"""A stream that was restored from a backup has the archive of the one that it was before."""

from __future__ import annotations

import msgspec
import pytest

from streams.archive.archive import Archive
from streams.archive.memory import MemoryArchive
from streams.errors import DamagedSegment
from streams.keys import ARCHIVED, STREAMS
from streams.layout import Kind, Stream
from streams.model.losses import restored
from streams.noted import noted
from streams.ports.log import START
from streams.subjects import Stack
from tests.engine.archive.stage import Stage, play
from tests.streams.archive.test_history import log_of

FLOOR, BACKED_UP = 13, 16
"""Where the journal of the backup begins, and ends."""


def staged(scene):
    return play(scene(Stage()))


async def begin(stage: Stage) -> None:
    """Live up to the backup."""
    await stage.live("a", "b", "c", "d")
    await stage.later()
    await stage.live("e")
    await stage.open("f")


async def archive_all(stage: Stage) -> None:
    """Have nothing but the archive know what has ended."""
    await stage.later()
    await stage.react()
    await stage.run()


async def gone_back(stage: Stage, *, made: str = "restored") -> Stage:
    """Live, lose what came after the backup, and return the stack that was made of that."""
    await begin(stage)
    await stage.run()
    backed_up = await noted(stage.ports)
    await stage.end("f")
    await stage.live("lost")
    await archive_all(stage)
    return await restored_of(stage, backed_up, made=made)


async def restored_of(stage: Stage, backed_up, *, made: str) -> Stage:
    again = Stage(store=stage.store, clock=stage.clock)
    await begin(again)
    await again.ports.states.purge("journal", below=FLOOR)
    again.ports.states.stream("journal").created = made
    state = await again.ports.states.of("journal")
    earlier = (await stage.ports.states.of("journal")).created
    known = restored(backed_up["journal"], state, part="journal", earlier=earlier)
    for bucket in (again.ports.registry, again.ports.gates):
        await bucket.put(STREAMS, msgspec.json.encode({"journal": known}))
    archived = await stage.ports.registry.get(ARCHIVED)
    await again.ports.registry.put(ARCHIVED, archived.value)
    return again


async def followed(log) -> list[tuple[int, str]]:
    """Return sequence and episode of each commit, as a follower gets them."""
    found = []
    async with log.follow(Stream.JOURNAL) as follower:
        while records := await follower.receive(most=5, wait_s=0.1):
            found += [(each.seq, each.subject.rpartition(".")[2]) for each in records]
    return found


async def paged(log) -> list[tuple[int, str]]:
    found, head = [], await log.head()
    while page := await log.page(
        Stream.JOURNAL, after=found[-1][0] if found else START, up_to=head, most=5
    ):
        found += [(each.seq, each.subject.rpartition(".")[2]) for each in page]
    return found


WHOLE = [*"abcd", *"abcd", *"abcd", *"eee", "f"]
"""Whose each commit of the backup is."""


def test_a_restored_stream_is_read_from_the_beginning_that_was_archived_before():
    async def scene(stage: Stage):
        log = log_of(await gone_back(stage))
        return await followed(log), await paged(log), await log.first_seq(Stream.JOURNAL)

    everything, pages, first = staged(scene)
    assert (everything, first) == (pages, 1)
    assert everything == [*enumerate(WHOLE, start=1)]


@pytest.mark.parametrize("is_archived", [False, True])
def test_what_was_lost_is_no_past_of_the_restored_stream(is_archived):
    async def scene(stage: Stage):
        again = await gone_back(stage)
        await again.live("new")
        await again.end("f")
        if is_archived:
            await archive_all(again)
            assert await again.first_seq() == BACKED_UP + 5
        log = log_of(again)
        of_each = [await log.read(again.stack.episode(name)) for name in ("a", "f", "lost", "new")]
        return await followed(log), await paged(log), [len(each) for each in of_each]

    everything, pages, lengths = staged(scene)
    assert everything == pages
    assert everything == [*enumerate([*WHOLE, "new", "new", "new", "f"], start=1)]
    assert lengths == [3, 2, 0, 3]


@pytest.mark.parametrize("partitions", [1, 4])
def test_what_was_lost_is_no_past_for_who_knows_the_archive_alone(partitions):
    async def scene(stage: Stage):
        again = await gone_back(stage)
        await again.live("new")
        await again.end("f")
        await archive_all(again)
        archive = Archive(again.store, Stack(again.stack.name, partitions))
        return [
            len(await archive.history(Kind.EPISODE, name)) for name in ("a", "f", "lost", "new")
        ]

    assert staged(scene) == [3, 2, 0, 3]


def test_a_stream_that_was_restored_twice_has_both_pasts():
    async def scene(stage: Stage):
        again = await gone_back(stage)
        backed_up = await noted(again.ports)
        await again.live("lost too")
        await archive_all(again)
        third = await restored_of(again, backed_up, made="restored again")
        await third.live("new")
        await archive_all(third)
        return await followed(log_of(third))

    assert staged(scene) == [*enumerate([*WHOLE, "new", "new", "new"], start=1)]


def test_an_archive_that_lacks_what_was_before_the_restoration_is_noticed():
    async def scene(stage: Stage):
        again = await gone_back(stage)
        await again.end("f")
        again.archive = Archive(MemoryArchive(), again.stack)
        await archive_all(again)
        with pytest.raises(DamagedSegment, match="ended at 12, is missing"):
            await followed(log_of(again))

    staged(scene)


def test_a_journal_that_goes_on_in_another_archive_is_not_whole_in_that():
    async def scene(stage: Stage):
        await begin(stage)
        await stage.run()
        await stage.end("f")
        stage.archive = Archive(MemoryArchive(), stage.stack)
        await archive_all(stage)
        with pytest.raises(DamagedSegment, match="ended at 12, is missing"):
            await followed(log_of(stage))

    staged(scene)

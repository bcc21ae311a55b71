"""How the streams of a stack are: the same in memory and on a server."""

from __future__ import annotations

import pytest

from streams.errors import Unavailable
from streams.layout import Kind, Stream
from streams.model.losses import keeps_all
from streams.subjects import Stack
from tests.contracts.samples import commit


@pytest.fixture
def stack(stack, partitions):
    return Stack(stack.name, partitions=partitions)


async def test_a_new_stream_begins_nowhere(ports):
    for part in ports.states.parts:
        if not keeps_all(part):
            continue
        state = await ports.states.of(part)
        assert (state.first_seq, state.last_seq, state.messages) == (0, 0, 0)
        assert state.created


async def test_a_stream_says_what_it_has(ports, partitions):
    stack = ports.stack
    for number in range(6):
        await ports.log.append(stack.episode(f"e{number}"), commit("c"), after=0)
    found = [
        await ports.states.of(stack.part(Stream.JOURNAL, each))
        for each in stack.partitions_of(Stream.JOURNAL)
    ]
    assert sum(each.messages for each in found) == sum(each.last_seq for each in found) == 6
    assert {each.first_seq for each in found if each.messages} == {1}


async def test_what_was_acknowledged_here_is_known_here(ports):
    subject = ports.stack.episode("e1")
    part = ports.stack.part_of(Kind.EPISODE, "e1")
    assert ports.states.newest(part) == 0
    version = await ports.log.append(subject, commit("c"), after=0)
    assert ports.states.newest(part) == version == 1


async def test_streams_that_keep_all_come_first(ports, partitions):
    keeping = [keeps_all(part) for part in ports.states.parts]
    assert keeping == sorted(keeping, reverse=True)
    assert sum(keeping) == 2 * partitions


async def fill(ports, count: int) -> str:
    """Have one partition hold so many commits of one episode; return the partition's name."""
    subject = ports.stack.episode("e1")
    version = 0
    for number in range(count):
        version = await ports.log.append(subject, commit(f"c{number}", number), after=version)
    return ports.stack.part_of(Kind.EPISODE, "e1")


async def raw(ports, part: str, *, after: int = 0, most: int = 100):
    found = []
    async with ports.states.read(part, after=after) as reader:
        while messages := await reader.receive(most=most, wait_s=0.3):
            found += messages
    return found


async def test_what_is_stored_is_read_as_it_is_and_in_order(ports):
    part = await fill(ports, 5)
    found = await raw(ports, part, most=2)
    assert [each.seq for each in found] == [1, 2, 3, 4, 5]
    assert {each.subject for each in found} == {ports.stack.episode("e1")}
    assert [each.headers["Vigil-Commit"] for each in found] == [f"c{n}" for n in range(5)]
    assert all(each.data.startswith(b"{") and each.at.tzinfo for each in found)
    assert [each.seq for each in await raw(ports, part, after=3)] == [4, 5]


async def test_a_purge_takes_what_is_before_a_sequence_and_leaves_the_rest(ports):
    part = await fill(ports, 5)
    subject = ports.stack.episode("e1")

    assert await ports.states.purge(part, below=4) == 3

    state = await ports.states.of(part)
    assert (state.first_seq, state.last_seq, state.messages, state.subjects) == (4, 5, 2, 1)
    assert [each.seq for each in await ports.log.read(subject)] == [4, 5]
    assert [each.seq for each in await raw(ports, part)] == [4, 5]
    assert await ports.log.append(subject, commit("c6"), after=5) == 6


async def test_a_purge_can_be_repeated(ports):
    part = await fill(ports, 5)
    await ports.states.purge(part, below=4)
    assert await ports.states.purge(part, below=4) == 0
    assert await ports.states.purge(part, below=2) == 0


async def test_a_stream_that_was_purged_whole_goes_on_where_it_was(ports):
    part = await fill(ports, 3)
    assert await ports.states.purge(part, below=4) == 3
    state = await ports.states.of(part)
    assert (state.first_seq, state.last_seq, state.messages) == (4, 3, 0)
    assert await ports.log.last(ports.stack.episode("e1")) is None
    assert await ports.log.append(ports.stack.episode("e2"), commit("c"), after=0) >= 1


async def test_other_partitions_are_not_purged(ports):
    part = await fill(ports, 3)
    before = {each: await ports.states.of(each) for each in ports.states.parts if each != part}
    await ports.states.purge(part, below=3)
    after = {each: await ports.states.of(each) for each in ports.states.parts if each != part}
    assert before == after


async def test_a_reader_of_more_than_there_is_says_so(ports):
    part = await fill(ports, 2)
    async with ports.states.read(part, after=9) as reader:
        with pytest.raises(Unavailable):
            await reader.receive(most=1, wait_s=0.3)

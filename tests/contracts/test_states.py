"""How the streams of a stack are: the same in memory and on a server."""

from __future__ import annotations

import pytest

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

"""Reading messages by subject, when the server leaves some of them for the next question."""

from __future__ import annotations

import pytest
from nats import connect as open_client

from streams.errors import Unavailable
from streams.jetstream import connect
from streams.jetstream.messages import stored
from streams.layout import Stream
from tests.contracts.samples import commit

KEYS = [f"disk:{number}" for number in range(9)]


@pytest.mark.parametrize("bytes_max", [1, 600, 1_000_000])
async def test_the_newest_of_each_is_found_however_many_messages_an_answer_has(
    nats, stack, monkeypatch, bytes_max
):
    monkeypatch.setattr(stored, "BATCH_BYTES_MAX", bytes_max)
    async with connect(nats.url, stack=stack) as ports:
        subjects = [ports.stack.finding(key) for key in KEYS]
        versions = [await ports.log.append(each, commit("c1"), after=0) for each in subjects]
        found = await ports.log.newest([*subjects, ports.stack.finding("none")])
    assert sorted((each.seq, subject) for subject, each in found.items()) == [
        *zip(versions, subjects, strict=True)
    ]


async def test_an_answer_that_leaves_everything_is_not_asked_for_for_ever(nats, stack, monkeypatch):
    asked = []

    async def nothing_of_it(link, stream, question):
        asked.append(question)
        assert len(asked) < len(KEYS)
        return [], True

    monkeypatch.setattr(stored, "_ask_directly", nothing_of_it)
    async with connect(nats.url, stack=stack) as ports:
        with pytest.raises(Unavailable):
            await ports.log.newest([ports.stack.finding("disk")])


async def test_a_page_ends_with_the_last_that_was_asked_for_also_past_a_gap(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        subjects = [ports.stack.finding(key) for key in KEYS]
        for each in subjects:
            await ports.log.append(each, commit("c1"), after=0)
        client = await open_client(nats.url)
        stream = ports.stack.stream(Stream.STATE)
        await client.jetstream().purge_stream(stream, subject=subjects[3])
        await client.close()
        page = await ports.log.page(Stream.STATE, after=2, up_to=4, most=10)
        none = await ports.log.page(Stream.STATE, after=3, up_to=4, most=10)
    assert [each.seq for each in page] == [3]
    assert list(none) == []

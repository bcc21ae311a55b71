"""One connection: what it sends together, and what is known when it ends."""

from __future__ import annotations

import asyncio
import json

import pytest
from nats.errors import FlushTimeoutError

from streams.embedded import EmbeddedNats
from streams.errors import Incompatible, TooLarge, Unavailable, UnknownOutcome
from streams.jetstream import LinkSettings
from streams.jetstream.connection.client import UNSENT_BYTES_MAX
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.session import open_session
from tests.streams.jetstream.test_link import LIMITED
from tests.streams.jetstream.wire import WAIT_S, Wire, eventually

STREAM = "pairs"
MIB = 1024 * 1024


@pytest.fixture
async def session(own_nats):
    session = await open_session([own_nats.url], LinkSettings())
    config = {"name": STREAM, "subjects": ["pair.*"], "storage": "memory", "allow_atomic": True}
    await session.request(f"$JS.API.STREAM.CREATE.{STREAM}", json.dumps(config).encode())
    yield session
    await session.close()


def batch_of(*subjects, expected=0):
    """An atomic batch (ADR-50) that expects each subject at sequence `expected`."""
    numbered = enumerate(subjects, start=1)
    messages = [
        (
            subject,
            b"x",
            {
                "Nats-Batch-Id": "b1",
                "Nats-Batch-Sequence": str(number),
                "Nats-Expected-Last-Subject-Sequence": str(expected),
            },
        )
        for number, subject in numbered
    ]
    messages[-1][2]["Nats-Batch-Commit"] = "1"
    return messages


async def stored_in(session):
    answer = await session.request(f"$JS.API.STREAM.INFO.{STREAM}")
    return json.loads(answer.data)["state"]["messages"]


async def test_a_batch_is_answered_once_for_all(session):
    answer = json.loads((await session.request_batch(batch_of("pair.a", "pair.b"))).data)
    assert (answer["seq"], answer["count"]) == (2, 2)


async def test_a_batch_of_one_is_a_request(session):
    answer = json.loads((await session.request_batch([("pair.a", b"x", {})])).data)
    assert answer["seq"] == 1


async def test_a_check_that_fails_in_a_batch_is_the_answer_to_it(session):
    await session.request("pair.a", b"x")
    answer = json.loads((await session.request_batch(batch_of("pair.a", "pair.b"))).data)
    assert answer["error"]["err_code"] == 10071
    assert await stored_in(session) == 1


async def test_a_batch_with_a_message_over_the_limit_is_not_sent_at_all(session):
    body = b"x" * (1024 * 1024 - 8)
    with pytest.raises(TooLarge):
        await session.request_batch([("pair.a", b"x", {}), ("pair.b", body, {"Name": "value"})])
    assert await stored_in(session) == 0


async def test_a_batch_whose_answer_is_lost_has_an_unknown_outcome(nats):
    async with Wire(nats.url) as wire, Link(wire.url, LinkSettings()) as link:
        wire.loses_answers = True
        asking = asyncio.create_task(
            link.request_batch([("a", b"x", {}), ("$JS.API.INFO", b"", {})])
        )
        await asyncio.sleep(0)
        wire.cut()
        with pytest.raises(UnknownOutcome):
            await asking


async def test_a_batch_on_an_ended_session_is_not_sent(session):
    await session.abandon()
    with pytest.raises(Unavailable, match="not connected") as caught:
        await session.request_batch([("pair.a", b"x", {}), ("pair.b", b"x", {})])
    assert not isinstance(caught.value, UnknownOutcome)


async def test_a_batch_with_a_subject_that_is_known_to_be_denied_is_not_sent(tmp_path):
    with EmbeddedNats(tmp_path, extra_config=LIMITED) as server:
        settings = LinkSettings(user="reader", password="x", request_timeout_s=30.0)
        session = await open_session([server.url], settings)
        with pytest.raises(Incompatible):
            await session.request("denied")
        with pytest.raises(Incompatible, match="may not publish to denied"):
            await session.request_batch([("denied", b"x", {}), ("$JS.API.INFO", b"", {})])
        await session.close()


async def test_what_a_listener_raises_ends_the_connection(session):
    """A connection that is up and deaf would look well for ever."""

    def fail(msg):
        raise LookupError(msg.subject)

    inbox = session.open_inbox(fail)
    session.post(inbox.subject)
    async with asyncio.timeout(WAIT_S):
        await session.ended.wait()


async def test_a_flush_that_is_answered_late_does_no_harm(own_nats, session):
    own_nats.pause()
    with pytest.raises(FlushTimeoutError):
        await session._client.flush(timeout=0.1)
    own_nats.unpause()
    for _ in range(2):  # The late answer may come with the first of these.
        assert await stored_in(session) == 0


async def test_a_server_that_reads_nothing_is_sent_only_so_much(own_nats, session):
    async def send_much():
        for _ in range(2 * UNSENT_BYTES_MAX // MIB):
            session.post("nobody.home", b"x" * MIB)
            await asyncio.sleep(0)

    own_nats.pause()
    with pytest.raises(Unavailable, match="does not read"):
        await send_much()
    own_nats.unpause()

    async def has_read():
        try:
            return await stored_in(session) == 0
        except Unavailable:
            return False

    await eventually(has_read)


async def test_what_no_server_says_ends_the_connection(session):
    session._client._parser.feed(b"MSG a ")
    session.post("nobody.home", reply="nobody.home")
    with pytest.raises(UnknownOutcome):
        await session.request("pair.a")
    assert session.ended.is_set()

"""The stream of refusals on a server: what it drops by itself, and that nothing depends on it."""

from __future__ import annotations

import nats as client

from streams.jetstream import connect
from streams.layout import Stream
from streams.ports.refusals import KEPT_MAX, KEPT_S
from tests.contracts.test_refusals import refusal


async def test_the_server_drops_what_is_old_and_more_than_enough(nats, stack):
    async with connect(nats.url, stack=stack):
        connection = await client.connect(nats.url)
        info = await connection.jetstream().stream_info(stack.stream(Stream.REFUSALS))
        await connection.close()

    assert info.config.max_age == KEPT_S
    assert info.config.max_msgs_per_subject == KEPT_MAX
    assert info.config.discard == "old"


async def test_what_a_newer_version_has_written_is_passed_over(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        await ports.refusals.store([refusal(1)])
        connection = await client.connect(nats.url)
        subject = stack.refusal("monitor", "disk")
        await connection.jetstream().publish(subject, b'{"against":{"kind":"newer"}}')
        await connection.close()
        await ports.refusals.store([refusal(2)])

        newest = await ports.refusals.newest("monitor", "disk")

    assert [each.event_id for each in newest] == ["x2", "x1"]


async def test_a_stack_that_has_lost_its_refusals_goes_on_with_none(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        await ports.refusals.store([refusal(1)])
        connection = await client.connect(nats.url)
        await connection.jetstream().delete_stream(stack.stream(Stream.REFUSALS))
        await connection.close()

    async with connect(nats.url, stack=stack) as ports:
        assert await ports.refusals.newest("monitor", "disk") == []

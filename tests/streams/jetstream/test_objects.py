"""Objects on a server: what others see of them, how long they stay, and what damages them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

import nats as nats_py
import pytest

from streams.clock import SystemClock
from streams.errors import DamagedObject
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.ports.configs import DAY_S
from streams.jetstream.ports.objects import CHUNK_BYTES, JetStreamObjects
from tests.streams.jetstream.wire import eventually

DATA: Final = b"0123456789abcdef" * (CHUNK_BYTES // 16 * 2 + 1)
"""Two chunks and a bit of a third."""


class Later(SystemClock):
    """A clock that may be put forward."""

    ahead: timedelta = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.fixture
async def context(nats):
    connection = await nats_py.connect(nats.url)
    yield connection.jetstream()
    await connection.close()


@asynccontextmanager
async def objects_of(nats, stack, clock=None, *, days=90.0):
    async with connect(nats.url, stack=stack, settings=LinkSettings(results_days=days)):
        pass
    async with Link(nats.url, LinkSettings(), clock=clock or SystemClock()) as link:
        yield JetStreamObjects(link, stack.object_store())


async def chunks_of(context, stack) -> int:
    info = await context.stream_info(f"OBJ_{stack.object_store()}", subjects_filter="$O.*.C.>")
    return sum((info.state.subjects or {}).values())


async def test_an_object_is_as_the_clients_of_nats_have_it(nats, stack, context):
    async with objects_of(nats, stack) as objects:
        digest = await objects.put(DATA)

    store = await context.object_store(stack.object_store())
    found = await store.get(digest)

    assert found.data == DATA
    assert (found.info.size, found.info.chunks) == (len(DATA), 3)
    assert [each.name for each in await store.list()] == [digest]


async def test_what_was_put_a_short_time_ago_is_not_stored_again(nats, stack, context):
    async with objects_of(nats, stack) as objects:
        for _ in range(3):
            await objects.put(DATA)
    assert await chunks_of(context, stack) == 3


async def test_what_would_soon_be_gone_is_stored_again_and_stays(nats, stack, context):
    clock = Later()
    async with objects_of(nats, stack, clock, days=90.0) as objects:
        digest = await objects.put(DATA)
        clock.ahead = timedelta(days=8)
        await objects.put(DATA)
        assert await chunks_of(context, stack) == 3
        clock.ahead = timedelta(days=10)
        await objects.put(DATA)
        assert await chunks_of(context, stack) == 6
        assert await objects.get(digest) == DATA


async def test_what_is_renewed_is_stored_again_once_half_of_its_time_is_over(nats, stack, context):
    clock = Later()
    async with objects_of(nats, stack, clock, days=90.0) as objects:
        digest = await objects.put(DATA)
        clock.ahead = timedelta(days=44)
        assert await objects.renew(digest)
        assert await chunks_of(context, stack) == 3
        clock.ahead = timedelta(days=46)
        assert await objects.renew(digest)
        assert await chunks_of(context, stack) == 6
        assert await objects.get(digest) == DATA


async def test_what_is_renewed_outlives_its_time_on_the_server(nats, stack):
    async with objects_of(nats, stack, days=2 / DAY_S) as objects:
        renewed, other = await objects.put(DATA), await objects.put(b"other")

        async def other_is_gone():
            assert await objects.renew(renewed)
            return await objects.get(other) is None

        await eventually(other_is_gone)
        assert await objects.get(renewed) == DATA


async def test_what_is_damaged_cannot_be_renewed(nats, stack, context):
    clock = Later()
    async with objects_of(nats, stack, clock, days=90.0) as objects:
        digest = await objects.put(DATA)
        await context.delete_msg(f"OBJ_{stack.object_store()}", 2)
        clock.ahead = timedelta(days=60)
        with pytest.raises(DamagedObject, match=digest):
            await objects.renew(digest)


async def test_an_object_goes_when_its_time_is_over(nats, stack):
    async with objects_of(nats, stack, days=0.5 / DAY_S) as objects:
        digest = await objects.put(DATA)
        assert await objects.get(digest) == DATA

        async def is_gone():
            return await objects.get(digest) is None

        await eventually(is_gone)


async def test_a_chunk_that_is_lost_is_noticed_and_mended_by_a_put(nats, stack, context):
    clock = Later()
    async with objects_of(nats, stack, clock) as objects:
        digest = await objects.put(DATA)
        await context.delete_msg(f"OBJ_{stack.object_store()}", 2)
        with pytest.raises(DamagedObject, match=digest):
            await objects.get(digest)
        clock.ahead = timedelta(days=10)
        await objects.put(DATA)
        assert await objects.get(digest) == DATA


async def test_what_is_not_an_object_at_all_is_damaged(nats, stack, context):
    async with objects_of(nats, stack) as objects:
        digest = await objects.put(DATA)
        (subject,) = await subjects_of(context, stack, "$O.*.M.>")
        await context.publish(subject, b"nonsense")
        with pytest.raises(DamagedObject):
            await objects.get(digest)
        await objects.put(DATA)
        assert await objects.get(digest) == DATA


async def test_what_others_have_deleted_is_gone(nats, stack, context):
    async with objects_of(nats, stack) as objects:
        digest = await objects.put(DATA)
        await (await context.object_store(stack.object_store())).delete(digest)
        assert await objects.get(digest) is None
        await objects.put(DATA)
        assert await objects.get(digest) == DATA


async def test_an_upload_that_is_cut_off_is_begun_anew(wire, wired, direct):
    wire.loses_answers = True
    putting = asyncio.create_task(wired.objects.put(DATA))
    await asyncio.sleep(0)
    wire.cut()
    wire.loses_answers = False
    digest = await putting
    assert await direct.objects.get(digest) == DATA


async def subjects_of(context, stack, within: str) -> list[str]:
    info = await context.stream_info(f"OBJ_{stack.object_store()}", subjects_filter=within)
    return list(info.state.subjects or {})

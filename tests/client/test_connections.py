"""What a client makes of its connections, and of calls that cannot work."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from streams.clock import SystemClock
from streams.memory import memory_ports
from vigil.client import Client
from vigil.client.connections import Connections
from vigil.errors import Mistake, ServerAway


@pytest.fixture
def client(stack):
    """Ann's client on a log in memory, without rows."""
    return Client.on(memory_ports(stack=stack, clock=SystemClock()), by="ann")


@pytest.mark.parametrize("name", ["a b", "a.*", ""])
async def test_a_name_that_no_event_can_have_is_a_mistake(client, name):
    with pytest.raises(Mistake, match="not a dotted name"):
        await client.publish(name, {})


async def test_a_client_that_is_closed_is_not_opened_again(client):
    async with client:
        await client.publish("disk.measured", {})
    with pytest.raises(Mistake, match="this client is closed"):
        await client.publish("disk.measured", {})


async def test_who_could_not_be_asked_to_sign_in_orders_nothing(client):
    client.connections.withhold_log(ServerAway("nobody listens there"))
    with pytest.raises(ServerAway, match="nobody listens there"):
        await client.publish("disk.measured", {})


async def test_who_has_signed_in_orders_by_that_name(client):
    client.connections.order_as("bob")
    assert (client.connections.who(None), client.connections.who("eve")) == ("bob", "eve")


def test_a_client_is_of_one_event_loop(client):
    asyncio.run(client.publish("disk.measured", {}))
    with pytest.raises(Mistake, match="a second event loop; make one for each"):
        asyncio.run(client.publish("disk.measured", {}))


async def test_rows_do_not_wait_for_a_log_that_is_away(stack):
    @asynccontextmanager
    async def never(**_):
        await asyncio.Event().wait()
        yield

    @asynccontextmanager
    async def rows():
        yield SimpleNamespace()

    connections = Connections(
        stack,
        by="ann",
        node="n1",
        clock=SystemClock(),
        open_log=never,
        open_rows=rows,
        rows_at="here",
    )

    async def publishes():
        async with connections.log():
            pass

    waits = asyncio.create_task(publishes())
    await asyncio.sleep(0)
    async with connections.rows():
        assert not waits.done()
    waits.cancel()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda client: client.episodes.list(status="finished"), "'finished' is not one of queued"),
        (lambda client: client.findings.list(status="open"), "is not one of active, cleared"),
        (lambda client: client.outputs.list(status="sent"), "'sent' is not one of"),
        (lambda client: client.dead_letters.list(status="open"), "waiting, requeued, discarded"),
        (lambda client: client.workflows.list(status="finished"), "'finished' is not one of"),
        (lambda client: client.orders.list(limit=0), "limit: 0 is not a whole number from 1 to"),
        (lambda client: client.findings.list(limit="2"), "limit: '2' is not a whole number"),
        (lambda client: client.episodes.log("1" * 8, strategy="loud"), "'loud' is not one of none"),
    ],
)
async def test_a_list_of_what_there_cannot_be_is_a_mistake(client, call, why):
    with pytest.raises(Mistake, match=why):
        await call(client)


@pytest.mark.parametrize("dsn", ["postgres", "mysql://db/vigil", "postgresql://db:x/vigil", ""])
def test_a_dsn_that_cannot_be_read_is_a_mistake_at_once(dsn):
    with pytest.raises(Mistake, match=r"postgres_dsn: .*use postgresql://"):
        Client(postgres_dsn=dsn, stack="shop")


@pytest.mark.parametrize("by", ["", "  "])
def test_a_client_of_nobody_is_a_mistake_at_once(stack, by):
    with pytest.raises(Mistake, match="by: give a name"):
        Client(stack="shop", by=by)
    with pytest.raises(Mistake, match="by: give a name"):
        Client.on(memory_ports(stack=stack, clock=SystemClock()), by=by)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda client: client.signal(""), "ref"),
        (lambda client: client.findings.note("disk", " "), "text: a note says something"),
    ],
)
async def test_what_says_nothing_is_a_mistake(client, call, why):
    with pytest.raises(Mistake, match=why):
        await call(client)

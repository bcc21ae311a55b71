"""`GET /events/stream`: domain events for programs, over HTTP from a server."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from streams import jetstream
from tests.web.api.conftest import ADMIN, ROLE, SCOPES, TOKEN, api_on
from tests.web.api.served import following, serving
from vigil.client import Client
from vigil.web.api import routes as routing
from vigil.web.api.stream import Streams


@pytest.fixture
async def ports(nats, stack):
    """The log of a stack on a server."""
    async with jetstream.connect(nats.url, stack=stack) as served:
        yield served


@pytest.fixture
async def url(client: Client):
    """Where the API is."""
    async with serving(api_on(client)) as url:
        yield url


async def test_events_are_followed_and_gone_on_with_where_one_ended(client, url):
    for number in range(3):
        await client.publish("disk.measured", {"number": number})
    await client.publish("other", {})
    async with following(url, query="?after=0&name=disk.*") as reader:
        first, second = [await reader.next() for _ in range(2)]
        assert (first["event"], json.loads(first["data"])["payload"]) == ("event", {"number": 0})
        assert second["id"] == "2"
    async with following(url, last_id=second["id"]) as reader:
        rest = [await reader.next() for _ in range(2)]
        await client.publish("later", {"x": 1})
        later = await reader.next()
    assert [json.loads(each["data"])["name"] for each in rest] == ["disk.measured", "other"]
    assert json.loads(later["data"]) == {
        "id": json.loads(later["data"])["id"],
        "name": "later",
        "payload": {"x": 1},
        "seq": 5,
        "at": json.loads(later["data"])["at"],
    }


async def test_without_a_place_it_begins_now(client, url):
    await client.publish("before", {})
    async with following(url) as reader:
        waiting = asyncio.create_task(reader.next())
        while not waiting.done():
            await client.publish("after", {})
            await asyncio.wait({waiting}, timeout=0.1)
    assert json.loads(waiting.result()["data"])["name"] == "after"


async def test_a_reader_hears_when_nothing_happens(client, monkeypatch):
    monkeypatch.setattr(routing, "Streams", lambda: Streams(heartbeat_s=0.05))
    async with serving(api_on(client)) as url, following(url) as reader:
        assert await reader.next() == {"comment": "heartbeat"}


async def test_what_was_removed_before_it_was_read_ends_a_stream_with_a_problem(
    ports, client, url, nats, stack
):
    import nats as nats_py  # noqa: PLC0415 - the fixture has its name

    for number in range(3):
        await client.publish("disk.measured", {"number": number})
    connection = await nats_py.connect(nats.url)
    await connection.jetstream().purge_stream(f"{stack.name}-events", seq=3)
    await connection.close()
    async with following(url, last_id="1") as reader:
        last = await reader.next()
        closed = await reader.next()
    problem = json.loads(last["data"])
    assert last["event"] == "end"
    assert problem["type"] == "urn:vigil:problem:events-missed"
    assert "go on with after=2" in problem["remedy"]
    assert closed == {"event": "closed"}


async def test_a_process_has_room_for_so_many_streams_and_for_others_after_them(
    client, monkeypatch
):
    streams = Streams(streams_max=1)
    monkeypatch.setattr(routing, "Streams", lambda: streams)
    async with serving(api_on(client)) as url:
        async with following(url):
            async with httpx.AsyncClient() as other:
                refused = await other.get(f"{url}/events/stream", headers=ADMIN)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
            assert refused.json()["type"] == "urn:vigil:problem:too-many-streams"
        for _ in range(500):
            if not streams.open:
                break
            await asyncio.sleep(0.01)
        assert streams.open == 0
        async with following(url):
            pass


async def test_a_reader_that_takes_nothing_is_cut_off(client, monkeypatch):
    streams = Streams(stalled_s=0.2)
    monkeypatch.setattr(routing, "Streams", lambda: streams)
    text = "x" * 500_000
    for _ in range(40):
        await client.publish("large", {"text": text})
    async with serving(api_on(client)) as url:
        _, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        path = f"{httpx.URL(url).path}/events/stream?after=0"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{ROLE}: admin\r\n\r\n".encode())
        await writer.drain()
        opened = False
        for _ in range(1_000):  # It never reads.
            opened = opened or bool(streams.open)
            if opened and not streams.open:
                break
            await asyncio.sleep(0.01)
        assert opened
        assert streams.open == 0
        writer.close()


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?after=-1", {}, 422),
        ("?name=a%20b", {}, 200),
        ("", {"last-event-id": "x"}, 422),
        ("", {"last-event-id": "¹"}, 422),
        ("?since=yesterday", {}, 422),
    ],
)
async def test_what_a_stream_may_not_be_asked_for(url, query, headers, status):
    encoded = {name: value.encode() for name, value in {**ADMIN, **headers}.items()}
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{url}/events/stream{query}", headers=encoded)
    assert answer.status_code == status
    if status == 200:
        assert "event: end" in answer.text
        assert "urn:vigil:problem:mistake" in answer.text


async def test_it_is_for_who_is_known_and_reads(url):
    program = {**ADMIN, TOKEN: "t", SCOPES: "events:publish"}
    async with httpx.AsyncClient() as client:
        unknown = await client.get(f"{url}/events/stream")
        publisher = await client.get(f"{url}/events/stream", headers=program)
    assert (unknown.status_code, publisher.status_code) == (401, 403)


async def test_its_head_alone_ends_at_once(url):
    async with httpx.AsyncClient() as client:
        answer = await client.head(f"{url}/events/stream", headers=ADMIN)
    assert (answer.status_code, answer.text) == (200, "")
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_the_api_may_stand_behind_a_proxy_below_another_path(client):
    await client.publish("disk.measured", {})
    async with serving(api_on(client), root_path="/vigil") as url, httpx.AsyncClient() as sending:
        nodes = await sending.get(f"{url}/nodes", headers=ADMIN)
        finding = await sending.post(f"{url}/findings/a%2Fb/clear", headers=ADMIN, json={})
    assert nodes.json()["nodes"] == []
    assert (finding.status_code, "'a/b'" in finding.json()["detail"]) == (404, True)

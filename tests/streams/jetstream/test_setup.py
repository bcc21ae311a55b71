"""What a server must be and have, and what happens when it is or has something else."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Final

import nats as nats_py
import pytest

from streams.embedded import EmbeddedNats
from streams.errors import Incompatible
from streams.jetstream import Contradiction, LinkSettings, connect, inspect
from streams.jetstream.ports.configs import CONSUMERS_MAX, bucket_stream, shapes
from streams.layout import Stream
from tests.contracts.samples import commit

STREAMS: Final = 10


@asynccontextmanager
async def server_of_version(version):
    """A server that only says which version it is: enough for a client to connect."""

    async def greet(reader, writer):
        info = {"version": version, "headers": True, "max_payload": 1 << 20, "proto": 1}
        writer.write(f"INFO {json.dumps(info)}\r\n".encode())
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def api(url):
    """Asks the server's JSON API as an operator would."""
    connection = await nats_py.connect(url)

    async def ask(operation, request=None):
        data = json.dumps(request).encode() if request else b""
        return json.loads((await connection.request(f"$JS.API.{operation}", data)).data)

    yield ask
    await connection.close()


async def test_connecting_twice_creates_once(nats, stack):
    for _ in range(2):
        async with connect(nats.url, stack=stack) as ports:
            head = await ports.log.head()
            await ports.log.append(stack.episode(f"e{head}"), commit("c"), after=0)
    found = await inspect(nats.url, stack=stack)
    assert [(s.exists, s.contradictions) for s in found.streams] == [(True, ())] * STREAMS
    kept_s = {each.name: each.kept_s for each in found.streams}
    assert kept_s[stack.stream(Stream.EVENTS)] == LinkSettings().events_max_age_s
    assert kept_s[stack.stream(Stream.JOURNAL)] is None


async def test_nodes_that_start_together_agree(nats, stack):
    async def node():
        async with connect(nats.url, stack=stack) as ports:
            return await ports.log.head()

    assert await asyncio.gather(*(node() for _ in range(5))) == [0] * 5


async def test_every_stream_is_as_it_was_asked_for(nats, stack):
    """No field that we set is unknown to the server, or changed by it."""
    async with connect(nats.url, stack=stack), api(nats.url) as ask:
        for ours in shapes(stack, LinkSettings()):
            theirs = (await ask(f"STREAM.INFO.{ours['name']}"))["config"]
            said = ours.pop("metadata", {})
            assert said.items() <= theirs["metadata"].items()
            assert {key: theirs.get(key) for key in ours} == ours


async def test_what_a_server_makes_otherwise_than_it_was_asked_is_refused(nats, stack, wire):
    """It says so when it is read back, not when it is made: here, as the wire has it."""
    wire.rewrites = {b'"deny_delete":true': b'"deny_delete":null'}
    with pytest.raises(Incompatible, match="was asked for deny_delete True, and made None"):
        async with connect(wire.url, stack=stack):
            pass


async def test_a_bucket_that_a_stack_was_made_without_is_made(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        await ports.registry.put("mode.n1", b"full")
    async with api(nats.url) as ask:
        await ask(f"STREAM.DELETE.{bucket_stream(stack.gates_bucket())}")
    async with connect(nats.url, stack=stack) as ports:
        await ports.gates.put("node.n1", b"", ttl_s=60)
        assert list(await ports.gates.entries()) == ["node.n1"]
        assert list(await ports.registry.entries()) == ["mode.n1"]


async def test_a_queue_that_was_made_before_there_were_timers_is_named_and_can_be_widened(
    nats, stack
):
    ours = next(each for each in shapes(stack, LinkSettings()) if each["retention"] == "workqueue")
    older = {**ours, "subjects": [f"{stack.name}.inbox.>"]}
    async with api(nats.url) as ask:
        await ask(f"STREAM.CREATE.{ours['name']}", older)
        with pytest.raises(Incompatible, match=rf"{ours['name']}: subjects is .* must be .*timer"):
            async with connect(nats.url, stack=stack):
                pass
        found = await inspect(nats.url, stack=stack)
        contradictory = [each for report in found.streams for each in report.contradictions]
        assert [(each.stream, each.field) for each in contradictory] == [(ours["name"], "subjects")]
        assert "error" not in await ask(f"STREAM.UPDATE.{ours['name']}", ours)
    async with connect(nats.url, stack=stack) as ports:
        assert await ports.timers.pending("monitor", "debounce", "k") is None


async def test_a_stream_that_contradicts_us_is_named_and_left_alone(nats, stack):
    name = stack.stream(Stream.JOURNAL)
    theirs = {"name": name, "subjects": stack.stream_subjects(Stream.JOURNAL), "storage": "memory"}
    async with api(nats.url) as ask:
        await ask(f"STREAM.CREATE.{name}", theirs)
        with pytest.raises(Incompatible, match=rf"{name}: storage is 'memory' and must be 'file'"):
            async with connect(nats.url, stack=stack):
                pass
        assert (await ask(f"STREAM.INFO.{name}"))["config"]["storage"] == "memory"


async def test_what_an_operator_may_tune_is_no_contradiction(nats, stack):
    async with connect(nats.url, stack=stack), api(nats.url) as ask:
        name = stack.stream(Stream.EVENTS)
        config = (await ask(f"STREAM.INFO.{name}"))["config"]
        tuned = {**config, "max_age": 3_600_000_000_000, "max_bytes": 1 << 20}
        tuned["duplicate_window"] = 600_000_000_000
        assert "error" not in await ask(f"STREAM.UPDATE.{name}", tuned)
        async with connect(nats.url, stack=stack) as ports:
            assert await ports.domain_events.publish("disk.checked", {}, id="ev-1") == 1


async def test_a_stack_may_have_more_consumers_than_servers_allow_by_default(nats, stack):
    """1,000 for each stream since 2.15, and an actor needs three."""
    async with connect(nats.url, stack=stack), api(nats.url) as ask:
        for name in (stack.stream(Stream.WORK), stack.stream(Stream.EVENTS)):
            config = (await ask(f"STREAM.INFO.{name}"))["config"]
            assert config["max_consumers"] == CONSUMERS_MAX


def with_consumers(most):
    users = '[{user: "a", password: "b"}]'
    return f"accounts {{ LIMITED {{ users: {users}, jetstream: {{max_consumers: {most}}} }} }}"


async def test_an_account_may_allow_fewer_consumers(stack, tmp_path):
    with EmbeddedNats(tmp_path, extra_config=with_consumers(50)) as server:
        url = server.url.replace("nats://", "nats://a:b@")
        async with connect(url, stack=stack) as ports:
            assert await ports.domain_events.publish("disk.checked", {}, id="ev-1") == 1


async def test_an_actor_for_which_there_is_no_consumer_is_refused_with_what_to_do(stack, tmp_path):
    with EmbeddedNats(tmp_path, extra_config=with_consumers(1)) as server:
        url = server.url.replace("nats://", "nats://a:b@")
        async with connect(url, stack=stack) as ports:
            await (await ports.timers.open("first")).close()
            with pytest.raises(Incompatible, match=r"limit reached.*--max-consumers 100000"):
                await ports.timers.open("second")


async def test_a_subject_that_another_stream_holds_is_reported(nats, stack):
    async with api(nats.url) as ask:
        other = {"name": f"other-{stack.name}", "subjects": [f"{stack.name}.>"]}
        await ask(f"STREAM.CREATE.{other['name']}", other)
        with pytest.raises(Incompatible, match=stack.stream(Stream.EVENTS)):
            async with connect(nats.url, stack=stack):
                pass


async def test_looking_creates_nothing(nats, stack):
    found = await inspect(nats.url, stack=stack)
    assert (found.problem, [s.exists for s in found.streams]) == ("", [False] * STREAMS)
    async with api(nats.url) as ask:
        assert (await ask(f"STREAM.INFO.{stack.stream(Stream.JOURNAL)}"))["error"]["code"] == 404


async def test_whoever_does_not_create_is_told_that_there_is_no_such_stack(nats, stack):
    with pytest.raises(Incompatible, match=f"no stack '{stack.name}' on this server"):
        async with connect(nats.url, stack=stack, creates=False):
            pass
    found = await inspect(nats.url, stack=stack)
    assert not any(each.exists for each in found.streams)
    async with connect(nats.url, stack=stack), connect(nats.url, stack=stack, creates=False) as it:
        assert await it.log.head() == 0


async def test_looking_finds_every_contradiction(nats, stack):
    name = stack.stream(Stream.DEAD)
    async with api(nats.url) as ask:
        theirs = {"name": name, "subjects": stack.stream_subjects(Stream.DEAD), "discard": "new"}
        await ask(f"STREAM.CREATE.{name}", {**theirs, "duplicate_window": 60_000_000_000})
    (dead,) = [s for s in (await inspect(nats.url, stack=stack)).streams if s.name == name]
    assert dead.contradictions == (
        Contradiction(name, "allow_direct", theirs=False, ours=True),
        Contradiction(name, "duplicate_window", 60_000_000_000, 120_000_000_000),
    )


@pytest.mark.parametrize("version", ["2.10.29", "2.11.10", "1.4.1"])
async def test_an_old_server_is_refused_with_what_to_do(stack, version):
    async with server_of_version(version) as url:
        with pytest.raises(Incompatible, match=rf"{version} has no message schedules") as caught:
            async with connect(url, stack=stack):
                pass
        assert "2.12" in caught.value.remedy
        assert "2.12" in (await inspect(url, stack=stack)).problem


async def test_a_server_without_jetstream_is_refused_with_what_to_do(stack, tmp_path):
    with EmbeddedNats(tmp_path, jetstream=False) as server:
        with pytest.raises(Incompatible, match="without JetStream"):
            async with connect(server.url, stack=stack):
                pass
        assert "JetStream" in (await inspect(server.url, stack=stack)).problem


async def test_an_account_without_jetstream_is_refused_with_what_to_do(stack, tmp_path):
    accounts = 'accounts { PLAIN { users: [{user: "a", password: "b"}] } }'
    settings = LinkSettings(user="a", password="b")
    with (
        EmbeddedNats(tmp_path, extra_config=accounts) as server,
        pytest.raises(Incompatible, match="account may not use it"),
    ):
        async with connect(server.url, stack=stack, settings=settings):
            pass

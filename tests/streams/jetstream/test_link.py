"""The connection: how it fails at the start, what it refuses, and that it comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from streams.errors import BadName, Incompatible, TooLarge, Unavailable, UnknownOutcome
from streams.jetstream import LinkSettings, connect
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.session import NobodyServes, open_session
from streams.ports.domain_events import EVENT_BYTES_MAX
from tests.contracts.samples import commit
from tests.streams.jetstream.wire import Wire, eventually

SLACK_S: Final = 1.0

LIMITED: Final = """
authorization { users: [
  {user: "admin", password: "x"},
  {user: "reader", password: "x", permissions: {
    publish: {allow: ["$JS.API.INFO", "$JS.API.STREAM.INFO.>"]}, subscribe: {allow: ["_INBOX.>"]}}},
  {user: "boxed", password: "x", permissions: {publish: {allow: [">"]}, subscribe: {allow: ["_BOX.>"]}}},
] }
"""  # noqa: E501 - the server's format


def unused_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_server_that_is_not_there_is_one_clear_line_in_time(stack):
    url = f"nats://127.0.0.1:{unused_port()}"
    started_s = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        async with connect(url, stack=stack, settings=LinkSettings(first_tries_s=0.5)):
            pass
    assert time.monotonic() - started_s < 0.5 + SLACK_S
    assert str(caught.value).startswith(f"connecting to {url}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["nats://127.0.0.1:abc", "nats://127.0.0.1:99999", "", "nats://"])
async def test_what_is_no_address_is_a_bad_name(stack, url):
    with pytest.raises(BadName, match="not the address of a NATS server"):
        async with connect(url, stack=stack):
            pass


async def test_what_the_client_refuses_to_try_is_one_clear_line(stack):
    with pytest.raises(Unavailable, match="mixing of websocket and non websocket"):
        async with connect("nats://127.0.0.1:1,ws://127.0.0.1:1", stack=stack):
            pass


async def test_a_server_that_says_nothing_is_given_up_in_time(stack):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        started_s = time.monotonic()
        settings = LinkSettings(connect_timeout_s=0.5, first_tries_s=0.5)
        with pytest.raises(Unavailable, match="no answer"):
            async with connect(url, stack=stack, settings=settings):
                pass
        assert time.monotonic() - started_s < 0.5 + SLACK_S


async def test_a_server_that_is_just_starting_is_waited_for(stack, tmp_path):
    server = EmbeddedNats(tmp_path, port=unused_port())

    async def use():
        async with connect(server.url, stack=stack) as ports:
            return await ports.log.head()

    using = asyncio.create_task(use())
    await asyncio.sleep(0)
    with server:
        assert await using == 0


async def test_a_wrong_password_is_refused_at_once_and_not_shown(stack, tmp_path):
    with EmbeddedNats(tmp_path, extra_config=LIMITED) as server:
        started_s = time.monotonic()
        url = server.url.replace("nats://", "nats://admin:secret@")
        with pytest.raises(Unavailable, match="Authorization Violation") as caught:
            async with connect(url, stack=stack):
                pass
        assert time.monotonic() - started_s < SLACK_S
        assert "secret" not in str(caught.value)


async def test_a_denied_subject_is_named_at_once(stack, tmp_path):
    settings = LinkSettings(user="reader", password="x", request_timeout_s=30.0)
    with (
        EmbeddedNats(tmp_path, extra_config=LIMITED) as server,
        pytest.raises(Incompatible, match=r"may not publish to \$JS\.API\.STREAM\.CREATE"),
    ):
        async with connect(server.url, stack=stack, settings=settings):
            pass


async def test_an_inbox_that_may_not_be_read_is_named_at_once(stack, tmp_path):
    settings = LinkSettings(user="boxed", password="x", request_timeout_s=30.0)
    with (
        EmbeddedNats(tmp_path, extra_config=LIMITED) as server,
        pytest.raises(Incompatible, match="may not receive answers at _INBOX"),
    ):
        async with connect(server.url, stack=stack, settings=settings):
            pass


async def test_an_inbox_prefix_is_where_answers_go(stack, tmp_path):
    settings = LinkSettings(user="boxed", password="x", inbox_prefix="_BOX.a")
    with EmbeddedNats(tmp_path, extra_config=LIMITED) as server:
        async with connect(server.url, stack=stack, settings=settings) as ports:
            await ports.log.append(stack.episode("e1"), commit("c1"), after=0)
            assert len(await ports.log.read(stack.episode("e1"))) == 1


async def test_being_thrown_out_is_not_the_end(stack, tmp_path):
    """A changed password ends the client for good; the link opens another, and again."""
    users = 'authorization {{ users: [{{user: "node", password: "{}"}}] }}'
    settings = LinkSettings(user="node", password="old", request_timeout_s=1.0)
    with EmbeddedNats(tmp_path, extra_config=users.format("old")) as server:
        async with connect(server.url, stack=stack, settings=settings) as ports:
            config = tmp_path / "nats.conf"
            original = config.read_text()

            async def is_out():
                try:
                    await ports.log.head()
                except Unavailable:
                    return True
                return False

            config.write_text(original.replace('"old"', '"new"'))
            os.kill(server.pid, signal.SIGHUP)
            await eventually(is_out)
            config.write_text(original)
            os.kill(server.pid, signal.SIGHUP)
            assert await ports.log.append(stack.episode("e1"), commit("c1"), after=0) == 1


async def test_a_question_that_nobody_answers_fails_at_once(nats):
    async with Link(nats.url, LinkSettings(request_timeout_s=30.0)) as link:
        with pytest.raises(NobodyServes):
            await link.request("nobody.home")


async def test_a_lost_connection_is_told_from_a_refusal(nats):
    async with Wire(nats.url) as wire, Link(wire.url, LinkSettings()) as link:
        wire.loses_answers = True
        asking = asyncio.create_task(link.request("$JS.API.INFO"))
        await asyncio.sleep(0)
        wire.cut()
        with pytest.raises(UnknownOutcome):
            await asking
        assert (await link.request("$JS.API.INFO")).data


async def test_a_late_answer_reaches_nobody(own_nats):
    async with Link(own_nats.url, LinkSettings(request_timeout_s=0.2)) as link:
        own_nats.pause()
        with pytest.raises(UnknownOutcome):
            await link.request("$JS.API.STREAM.INFO.none")
        own_nats.unpause()
        assert b"account_info" in (await link.ask("$JS.API.INFO")).data


async def test_what_the_headers_push_over_the_limit_is_refused_before_it_is_sent(nats):
    """The server ends the connection of a client that sends more than it allows."""
    session = await open_session([nats.url], LinkSettings())
    body = b"x" * (1024 * 1024 - 8)
    with pytest.raises(TooLarge):
        await session.request("nobody.home", body, more={"Name": "value"})
    assert not session.ended.is_set()
    with pytest.raises(NobodyServes):
        await session.request("nobody.home", body)
    await session.close()


async def test_the_largest_event_there_may_be_is_published(nats, stack):
    async with connect(nats.url, stack=stack) as ports:
        payload = {"x": "y" * (EVENT_BYTES_MAX - len('{"x":""}'))}
        assert await ports.domain_events.publish("big", payload, id="ev-1") == 1


async def test_a_link_can_be_closed_though_its_cancellation_is_lost_as_it_connects(
    own_nats, monkeypatch
):
    connecting, lost = asyncio.Event(), []

    async def lose_cancellation(servers, settings):
        connecting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as canceled:
            lost.append(canceled)
            if len(lost) > 1:  # Once is enough.
                raise
            raise Unavailable("connecting", detail="refused") from None

    link = Link(own_nats.url, LinkSettings())
    await link.__aenter__()
    monkeypatch.setattr("streams.jetstream.connection.link.open_session", lose_cancellation)
    own_nats.kill()
    await connecting.wait()
    async with asyncio.timeout(10):
        await link.__aexit__(None, None, None)


async def test_a_closed_link_is_closed_for_good(nats):
    async with Link(nats.url, LinkSettings()) as link:
        pass
    with pytest.raises(Unavailable):
        await link.request("$JS.API.INFO")

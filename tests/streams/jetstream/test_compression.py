"""Compressed streams on one server: changed by the next node. On three, see tests/cluster."""

from __future__ import annotations

import pytest

from streams.jetstream import LinkSettings, connect, inspect, uncompress
from streams.jetstream.connection.link import Link
from streams.jetstream.ports.configs import UNCOMPRESSING, shapes
from streams.jetstream.setup import setup
from streams.jetstream.setup.cluster import Server, servers_of, version_in
from streams.jetstream.setup.compression import Copies
from streams.jetstream.setup.setup import behind
from streams.json import JsonObject
from streams.layout import Stream
from tests.streams.jetstream.test_setup import api

PEERS = ("s1", "s2", "s3")
OLD, NEW = "2.14.6", "2.15.1"


async def compress(ask, name):
    config = (await ask(f"STREAM.INFO.{name}"))["config"]
    assert "error" not in await ask(f"STREAM.UPDATE.{name}", {**config, "compression": "s2"})


async def compression_of(ask, name):
    return (await ask(f"STREAM.INFO.{name}"))["config"]["compression"]


def test_no_stream_or_bucket_of_ours_is_compressed(stack):
    assert {each["compression"] for each in shapes(stack, LinkSettings(replicas=3))} == {"none"}


async def test_a_node_changes_a_stream_with_one_copy(nats, stack):
    name = stack.stream(Stream.EVENTS)
    async with connect(nats.url, stack=stack) as ports, api(nats.url) as ask:
        await ports.domain_events.publish("disk.checked", {"n": 1}, id="ev-1")
        await compress(ask, name)
        async with connect(nats.url, stack=stack, is_for_node=True):
            assert await compression_of(ask, name) == "none"


async def test_who_is_no_node_leaves_it_as_it_is(nats, stack):
    name = stack.stream(Stream.EVENTS)
    async with connect(nats.url, stack=stack), api(nats.url) as ask:
        await compress(ask, name)
        async with connect(nats.url, stack=stack):
            assert await compression_of(ask, name) == "s2"
        found = await inspect(nats.url, stack=stack)
        assert [each.name for each in found.streams if each.is_compressed] == [name]


async def test_the_command_changes_streams_with_one_copy_at_once(nats, stack):
    names = [stack.stream(Stream.EVENTS), stack.stream(Stream.JOURNAL)]
    told = []
    async with connect(nats.url, stack=stack), api(nats.url) as ask:
        for name in names:
            await compress(ask, name)

        assert (
            await uncompress(nats.url, stack=stack, tell=lambda *said: told.append(said)) == names
        )
        assert {await compression_of(ask, name) for name in names} == {"none"}
        assert await uncompress(nats.url, stack=stack, tell=lambda *_: None) == []
    assert told == []


def copies(peers=PEERS, *, replicas=3, mark=None, **servers):
    config = {"num_replicas": replicas, "metadata": {} if mark is None else {UNCOMPRESSING: mark}}
    said = {name: Server(name, ver, id=f"{name}-now") for name, ver in servers.items()}
    return Copies(config, peers, said, ())


@pytest.mark.parametrize(
    ("versions", "is_cut_back"),
    [
        ({"s1": OLD, "s2": OLD, "s3": OLD}, False),
        ({"s1": OLD, "s2": OLD, "s3": NEW}, True),
        ({"s1": OLD, "s2": OLD}, True),
        ({"s1": OLD, "s2": OLD, "s3": OLD, "leaf": NEW}, False),
    ],
    ids=["old ones", "a new one", "one that is away", "another one, without a copy"],
)
def test_only_servers_that_are_all_known_and_old_never_cut_a_replica_back(versions, is_cut_back):
    assert copies(**versions).is_cut_back is is_cut_back


def test_a_stream_whose_peers_nobody_names_may_be_anywhere():
    assert copies((), s1=OLD).is_cut_back


def test_one_copy_is_never_cut_back():
    assert not copies((), replicas=1, s1=NEW).is_cut_back


def test_a_server_compresses_until_it_is_another_run_of_it():
    everyone = {"s1": NEW, "s2": NEW, "s3": NEW}
    assert copies(mark="s1-now s2-now s3-now", **everyone).old == ["s1", "s2", "s3"]
    assert copies(mark="s1-then s2-now s3-then", **everyone).old == ["s2"]
    assert copies(mark="s1-then s2-then s3-then", **everyone).old == []


def test_a_server_that_does_not_answer_may_compress():
    assert copies(mark="s1-then s2-then s3-then", s1=NEW, s2=NEW).old == ["s3"]


@pytest.mark.parametrize(
    ("replica", "found"),
    [
        ({"current": True, "active": 900_000_000}, []),
        ({"current": False, "active": 900_000_000}, ["s2 is behind"]),
        ({"current": True, "offline": True}, ["s2 is away"]),
        ({"current": True, "active": 60_000_000_000}, ["s2 is away"]),
    ],
    ids=["whole", "behind", "offline", "silent for a minute"],
)
def test_a_replica_is_whole_behind_or_away(replica, found):
    assert behind({"cluster": {"replicas": [{"name": "s2", **replica}]}}) == found


@pytest.mark.parametrize("written", ["2.15.1", "2.15.0-RC.1", "2.15.0-dev"])
def test_a_version_is_read_by_its_first_two_numbers(written):
    assert version_in(written) == (2, 15)


async def test_a_stream_that_this_server_does_not_know_yet_is_looked_for_again(monkeypatch):
    """Another node has just made it, through another server."""
    answers = iter([None, None, {"config": {"name": "s"}}])

    async def info_of(link: Link, name: str) -> JsonObject | None:
        return next(answers)

    monkeypatch.setattr(setup, "info_of", info_of)
    monkeypatch.setattr(setup, "LOOK_S", 0.0)
    assert await setup.require_config(Link("nats://nowhere", LinkSettings()), "s") == {"name": "s"}


async def test_every_server_says_which_version_it_is_and_which_run(own_nats):
    async with Link(own_nats.url, LinkSettings()) as link:
        (before,) = (await servers_of(link, expected=1)).values()
        assert before.ver == link.session.server_version
    own_nats.restart()
    async with Link(own_nats.url, LinkSettings()) as link:
        (after,) = (await servers_of(link, expected=1)).values()
        assert (after.name, after.id) != (before.name, before.id)

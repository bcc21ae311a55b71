"""What counts as lost, and as different, on the replicas of three servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from streams.embedded import EmbeddedNats
from streams.jetstream import connect
from streams.jetstream.connection import headers
from streams.layout import Stream
from streams.subjects import Stack
from tests.cluster.acknowledged import Acknowledged, Written, digest_of
from tests.cluster.replicas import End, Kept, differences, lost, read
from tests.contracts.samples import commit
from tests.streams.jetstream.wire import Wire

END: Final = datetime(2026, 11, 23, 12, tzinfo=UTC)
STOP: Final = End(since=END, until=END + timedelta(seconds=5))
LOG: Final = "vigil-journal"
BUCKET: Final = "KV_vigil-registry"
QUEUE: Final = "vigil-work"


def kept(data: bytes = b"a", *, ago_s: float = 60.0, **said: str) -> Kept:
    at = (END - timedelta(seconds=ago_s)).isoformat()
    return Kept("s", at, {name.replace("_", "-"): value for name, value in said.items()}, data)


def written(data: bytes = b"a", *, subject: str = "s", expires: bool = False) -> Written:
    return Written(subject, digest_of(data), expires)


def lost_of(stream: str, there: Mapping[int, Kept], acknowledged: Mapping[int, Written]):
    found = lost({stream: there}, {stream: acknowledged}, for_ever=[LOG], buckets=[BUCKET])
    return list(found)


def test_equal_replicas_do_not_differ():
    assert list(differences({"s1": {LOG: {1: kept()}}, "s2": {LOG: {1: kept()}}}, STOP)) == []


@pytest.mark.parametrize(
    "other", [{}, {1: kept(b"b")}, {1: kept(), 2: kept()}, {1: kept(x="y")}, {2: kept()}]
)
def test_a_message_that_lacks_or_is_another_one_is_told(other):
    (told,) = differences({"s1": {LOG: {1: kept()}}, "s2": {LOG: other}}, STOP)
    assert told.startswith(f"{LOG}: ")


@pytest.mark.parametrize(
    ("message", "may_differ"),
    [
        (kept(ago_s=3, Nats_TTL="5s"), True),
        (kept(ago_s=3, Nats_TTL="4000ms"), True),
        (kept(ago_s=3, Nats_TTL="2s"), False),
        (kept(ago_s=3, Nats_TTL="3600s"), False),
        (kept(ago_s=-1, Nats_Marker_Reason="MaxAge"), True),
        (kept(ago_s=60, Nats_Marker_Reason="MaxAge"), False),
    ],
)
def test_only_what_expires_while_the_servers_stop_may_be_on_some(message, may_differ):
    found = list(differences({"s1": {BUCKET: {7: message}}, "s2": {BUCKET: {}}}, STOP))
    assert (found == []) is may_differ


def test_what_was_acknowledged_is_in_a_log_for_ever():
    assert lost_of(LOG, {1: kept()}, {1: written()}) == []
    assert lost_of(LOG, {}, {1: written()}) == [f"{LOG} 1 was acknowledged and is gone"]
    assert lost_of(LOG, {1: kept(b"b")}, {1: written()}) == [
        f"{LOG} 1 was acknowledged and is another message"
    ]


def test_a_queue_may_be_done_with_a_message_but_not_change_it():
    assert lost_of(QUEUE, {}, {1: written()}) == []
    assert lost_of(QUEUE, {1: kept(b"b")}, {1: written()}) != []


def test_a_bucket_has_the_newest_message_of_each_key_unless_that_expires():
    assert lost_of(BUCKET, {2: kept(b"b")}, {1: written(), 2: written(b"b")}) == []
    assert lost_of(BUCKET, {1: kept()}, {1: written(), 2: written(b"b")}) != []
    assert lost_of(BUCKET, {}, {1: written(expires=True)}) == []
    assert lost_of(BUCKET, {}, {1: written()}) != []


async def test_what_wires_see_acknowledged_is_what_a_store_has(tmp_path: Path, stack: Stack):
    seen, subjects = Acknowledged(), [stack.episode(f"e{number}") for number in range(40)]
    with EmbeddedNats(tmp_path / "nats") as server:
        async with Wire(server.url, tap=seen.tap) as wire, connect(wire.url, stack=stack) as ports:
            async with asyncio.TaskGroup() as group:
                for subject in subjects:
                    group.create_task(ports.log.append(subject, commit("c1"), after=0))
            await ports.registry.put("mode.n1", b"full", ttl_s=60)
    names = [stack.stream(Stream.JOURNAL), f"KV_{stack.registry_bucket()}"]
    replica = await read(tmp_path / "nats" / "store", names, tmp_path / "alone")

    journal, bucket = (seen.written[name] for name in names)
    assert {each.subject for each in journal.values()} == set(subjects)
    assert [each.expires for each in bucket.values()] == [True]
    assert {seq: one.subject for seq, one in replica[names[0]].items()} == {
        seq: one.subject for seq, one in journal.items()
    }
    assert list(lost(replica, seen.written, for_ever=names[:1], buckets=names[1:])) == []
    assert replica[names[1]][1].headers[headers.TTL] == "60s"

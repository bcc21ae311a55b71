"""What each server of a cluster has on its own disk, message by message.

A replica is read where nobody can help it: all servers are stopped, and a server by itself is
started on a copy of its messages. That one has a plain stream under the same name, without limits
and times to live, so it removes nothing; it refuses a stream with three replicas.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from streams.embedded import EmbeddedNats
from streams.jetstream.connection import headers
from tests.cluster.acknowledged import Written, digest_of

BATCH: Final = 1_000
"""Messages that are asked for at a time."""

ANSWER_S_MAX: Final = 20.0
SHOWN_MAX: Final = 5
"""Most messages that are told of one stream."""

MARGIN: Final = timedelta(seconds=2)
"""How late a server may be to remove what expires."""

LIFE: Final = re.compile(r"(\d+)(ms|s)")
"""A time to live as we write it."""

GONE: Final = "was acknowledged and is gone"

OF_THE_ANSWER: Final = frozenset({"Nats-Num-Pending", "Nats-Last-Sequence", "Nats-UpTo-Sequence"})
"""Headers that are about the answer, not the message."""


class Kept(NamedTuple):
    """One message as a server stores it."""

    subject: str
    at: str
    headers: Mapping[str, str]
    data: bytes


class End(NamedTuple):
    """When the servers stopped one by one, with some time before and after."""

    since: datetime
    until: datetime

    @classmethod
    def between(cls, begun: datetime, ended: datetime) -> Self:
        return cls(begun - MARGIN, ended + MARGIN)


Replica: TypeAlias = Mapping[str, Mapping[int, Kept]]
"""What one server has, by stream and sequence."""


async def read(store: Path, streams: Sequence[str], scratch: Path) -> Replica:
    """Return what the stopped server with this `store` has of `streams`."""
    lone = EmbeddedNats(scratch, extra_config="server_name: alone")
    copies = scratch / "store" / "jetstream" / "$G" / "streams"
    with lone:
        client = await nats.connect(lone.url)
        for number, stream in enumerate(streams):
            config = {"name": stream, "subjects": [f"alone.{number}"], "storage": "file"}
            await _call(client, f"STREAM.CREATE.{stream}", {**config, "allow_direct": True})
        await client.close()
        lone.stop()
        for stream in streams:
            messages = store / "jetstream" / "$G" / "streams" / stream / "msgs"
            shutil.rmtree(copies / stream / "msgs")
            if messages.exists():
                shutil.copytree(messages, copies / stream / "msgs")
        lone.restart()
        client = await nats.connect(lone.url)
        found = {stream: await _messages(client, stream) for stream in streams}
        await client.close()
    shutil.rmtree(scratch)
    return found


async def _call(client: Client, operation: str, request: object) -> None:
    answer = await client.request(f"$JS.API.{operation}", json.dumps(request).encode())
    assert "error" not in json.loads(answer.data), answer.data


async def _messages(client: Client, stream: str) -> dict[int, Kept]:
    """Return every message of `stream`, batch by batch."""
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    inbox, found, more = client.new_inbox(), dict[int, Kept](), True
    subscription = await client.subscribe(inbox, cb=arrived.put)
    while more:
        ask = json.dumps({"seq": max(found, default=0) + 1, "batch": BATCH}).encode()
        await client.publish(f"$JS.API.DIRECT.GET.{stream}", ask, reply=inbox)
        while "Status" not in (said := await _headers(arrived, found)):
            pass
        assert said["Status"] in {"204", "404"}, f"{stream}: {said}"
        more = int(said.get("Nats-Num-Pending", "0")) > 0
    await subscription.unsubscribe()
    return found


async def _headers(arrived: asyncio.Queue[Msg], found: dict[int, Kept]) -> Mapping[str, str]:
    """Take the next message into `found`, or what ends a batch; return its headers."""
    async with asyncio.timeout(ANSWER_S_MAX):
        message = await arrived.get()
    said = message.headers or {}
    if "Status" not in said:
        own = {name: value for name, value in said.items() if name not in OF_THE_ANSWER}
        seq, at = int(own.pop("Nats-Sequence")), own.pop("Nats-Time-Stamp")
        found[seq] = Kept(own.pop("Nats-Subject"), at, own, message.data)
    return said


def differences(replicas: Mapping[str, Replica], end: End) -> Iterator[str]:
    """Yield each stream whose messages are not the same on every server, in words.

    But for what expires, and the markers that are left of it, while the servers stop one by one.
    """
    (first, one), *others = replicas.items()
    for name, other in others:
        for stream in one:
            unlike = [
                seq
                for seq in one[stream].keys() | other[stream].keys()
                if one[stream].get(seq) != other[stream].get(seq)
                and not _goes_at(end, one[stream].get(seq), other[stream].get(seq))
            ]
            if unlike:
                shown = ", ".join(map(str, sorted(unlike)[:SHOWN_MAX]))
                counts = f"{len(one[stream])} and {len(other[stream])} messages"
                yield f"{stream}: {len(unlike)} differ on {first} and {name} ({counts}): {shown}"


def _goes_at(end: End, *copies: Kept | None) -> bool:
    """Return whether one of two servers lacks a message because that came or went at the end."""
    if None not in copies:
        return False
    (kept,) = (copy for copy in copies if copy is not None)
    at = datetime.fromisoformat(kept.at)
    is_marker = headers.MARKER_REASON in kept.headers and at >= end.since
    life = LIFE.fullmatch(kept.headers.get(headers.TTL, ""))
    if life is None:
        return is_marker
    seconds = int(life[1]) / (1000 if life[2] == "ms" else 1)
    return is_marker or end.since <= at + timedelta(seconds=seconds) <= end.until


def lost(
    replica: Replica,
    acknowledged: Mapping[str, Mapping[int, Written]],
    *,
    for_ever: Sequence[str],
    buckets: Sequence[str],
) -> Iterator[str]:
    """Yield what was acknowledged and is not there as it was, in words.

    Streams of `for_ever` must have all of it. In `buckets` the newest message of each key must be
    there, unless it expires, or a server has put a newer one. Elsewhere messages go when they are
    done with; what is there must be what was acknowledged.
    """
    for stream, written in acknowledged.items():
        kept = replica[stream]
        changed = [seq for seq, one in written.items() if seq in kept and not _is(kept[seq], one)]
        yield from told(stream, changed, "was acknowledged and is another message")
        if stream in for_ever:
            yield from told(stream, [seq for seq in written if seq not in kept], GONE)
        if stream in buckets:
            newest = {one.subject: seq for seq, one in sorted(written.items())}
            there = {one.subject: seq for seq, one in sorted(kept.items())}
            gone = [
                seq
                for subject, seq in newest.items()
                if there.get(subject, 0) < seq and not written[seq].expires
            ]
            yield from told(stream, gone, f"{GONE}, or an older one of its key")


def _is(kept: Kept, written: Written) -> bool:
    return (kept.subject, digest_of(kept.data)) == (written.subject, written.digest)


def told(stream: str, seqs: Sequence[int], what: str) -> Iterator[str]:
    """Yield what is wrong with messages, in words: a few of them one by one."""
    yield from (f"{stream} {seq} {what}" for seq in islice(seqs, SHOWN_MAX))
    if len(seqs) > SHOWN_MAX:
        yield f"{stream}: {len(seqs)} in all, each {what}"

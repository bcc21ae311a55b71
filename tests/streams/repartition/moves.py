"""What tests of moving a stack to other partitions share."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import nats as nats_py

from streams.jetstream import LinkSettings
from streams.jetstream.connection.headers import BATCH, BATCH_END, BATCH_PLACE, EXPECTED_SEQ
from streams.jetstream.ports.configs import PARTITIONS, bucket_stream, key_subject
from streams.keys import PUBLISHED, published_key
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.repartition.earlier import EarlierStack


class Cut(Exception):
    """The program ends here."""


def told(*_: object) -> None:
    pass


def cut_off_at(stage):
    """Return what ends the program at its second report of `stage`."""
    reports = []

    def tell(said, done, total):
        if said == stage:
            reports.append(done)
        if len(reports) == 2:
            raise Cut

    return tell


def settings(partitions=None):
    return LinkSettings(partitions=partitions, lease_ttl_s=5.0, patience_s=1.0)


async def note_followed(ports):
    """Write down that the reactors have followed every commit, as they do before a node stops."""
    for stream in AGGREGATE_STREAMS:
        for partition in ports.stack.partitions_of(stream):
            head = await ports.log.head(stream, partition=partition)
            key = published_key(ports.stack.part(stream, partition))
            await ports.gates.put(key, str(head).encode())


class Operator:
    """Whoever works on the server's own API."""

    def __init__(self, connection):
        self._connection = connection

    async def ask(self, operation, request=None):
        data = json.dumps(request).encode() if request else b""
        answer = json.loads((await self._connection.request(f"$JS.API.{operation}", data)).data)
        assert "error" not in answer, answer
        return answer

    async def config(self, name):
        return (await self.ask(f"STREAM.INFO.{name}"))["config"]

    async def change(self, name, **changed):
        await self.ask(f"STREAM.UPDATE.{name}", {**await self.config(name), **changed})

    async def messages(self, name):
        """Return sequence, subject, body and headers of each message, in order."""
        state, js = (await self.ask(f"STREAM.INFO.{name}"))["state"], self._connection.jetstream()
        found = [await js.get_msg(name, seq) for seq in range(1, state["last_seq"] + 1)]
        return [(each.seq, each.subject, each.data, each.headers) for each in found]

    async def make_earlier(self, stack):
        """Make of a stack what an earlier version would have made: the state is in the journal."""
        earlier, found = EarlierStack(stack.name, stack.partitions), []
        for each in stack.partitions_of(Stream.STATE):
            name = stack.stream(Stream.STATE, each)
            found += await self.messages(name)
            await self.ask(f"STREAM.DELETE.{name}")
        for each in stack.partitions_of(Stream.JOURNAL):
            subjects = earlier.stream_subjects(Stream.JOURNAL, each)
            await self.change(stack.stream(Stream.JOURNAL, each), subjects=subjects)
        for _, subject, data, said in found:
            kept = {name: value for name, value in said.items() if name not in _WHERE}
            await self._connection.jetstream().publish(subject, data, headers=kept)
        gates = stack.gates_bucket()  # It had no reactors.
        positions = key_subject(gates, f"{PUBLISHED}.>")
        await self.ask(f"STREAM.PURGE.{bucket_stream(gates)}", {"filter": positions})
        metadata = {PARTITIONS: str(stack.partitions)} if stack.partitions > 1 else {}
        await self.change(bucket_stream(stack.registry_bucket()), metadata=metadata)


_WHERE = frozenset({EXPECTED_SEQ, BATCH, BATCH_PLACE, BATCH_END})
"""Headers that are about where a message was stored."""


@asynccontextmanager
async def operator(url):
    connection = await nats_py.connect(url)
    yield Operator(connection)
    await connection.close()

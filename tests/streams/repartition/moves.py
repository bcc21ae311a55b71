"""What tests of moving a stack to other partitions share."""

from __future__ import annotations

from streams.jetstream import LinkSettings
from streams.jetstream.ports.configs import bucket_stream
from streams.keys import published_key
from streams.layout import AGGREGATE_STREAMS
from tests.streams.jetstream.test_setup import api


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
    return LinkSettings(partitions=partitions, lease_ttl_s=5, patience_s=1.0)


async def note_followed(ports):
    """Write down that the reactors have followed every commit, as they do before a node stops."""
    for stream in AGGREGATE_STREAMS:
        for partition in ports.stack.partitions_of(stream):
            head = await ports.log.head(stream, partition=partition)
            key = published_key(ports.stack.part(stream, partition))
            await ports.gates.put(key, str(head).encode())


async def write_layout(url, stack, metadata):
    """Have the registry say something else of the layout of a stack."""
    name = bucket_stream(stack.registry_bucket())
    async with api(url) as ask:
        config = (await ask(f"STREAM.INFO.{name}"))["config"]
        answer = await ask(f"STREAM.UPDATE.{name}", {**config, "metadata": metadata})
        assert "error" not in answer, answer

"""The layout of a stack: its streams and buckets, and the partition of an aggregate. Pure.

A stack may spread its journal, its state and its work over N streams each, its partitions. The
partition of an aggregate follows from its kind and key alone and never changes. What ends is in the
journal: episodes, outputs, instances. What stays for long is in the state: findings, definitions,
lanes, signals, orders of people, people. No order of two streams is defined.
"""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import blake2b
from typing import Final

import msgspec

from streams.errors import BadName

PARTITIONS_MAX: Final = 64
"""Most streams that a stack's journal can be spread over, and so can its state."""

_STACK = re.compile(r"[A-Za-z0-9_-]{1,32}")
_TOKEN = re.compile(r"[0-9]{1,2}of[0-9]{1,2}")


class Stream(StrEnum):
    """The six streams of a stack; of work, journal and state, each partition has one."""

    EVENTS = "events"
    WORK = "work"
    JOURNAL = "journal"
    STATE = "state"
    DEAD = "dead"
    REFUSALS = "refusals"


PARTITIONED: Final = frozenset({Stream.WORK, Stream.JOURNAL, Stream.STATE})
"""What is spread over a stack's partitions."""

AGGREGATE_STREAMS: Final = (Stream.JOURNAL, Stream.STATE)
"""The streams of all aggregates but dead letters."""

FOLLOWED: Final = (*AGGREGATE_STREAMS, Stream.DEAD)
"""The streams from whose commits something follows: public events, and commands."""

_ROOTS: Final = {
    Stream.EVENTS: ("event",),
    Stream.WORK: ("inbox", "timer", "due"),
    Stream.JOURNAL: ("episode", "output", "workflow"),
    Stream.STATE: ("definition", "finding", "lane", "order", "person", "signal"),
    Stream.DEAD: ("dead",),
    Stream.REFUSALS: ("refusal",),
}
"""The second tokens of a stream's subjects."""

_HOLDER_OF: Final = {root: stream for stream, roots in _ROOTS.items() for root in roots}


class Kind(StrEnum):
    """What an aggregate is: the second token of its subject."""

    EPISODE = "episode"
    FINDING = "finding"
    OUTPUT = "output"
    LANE = "lane"
    WORKFLOW = "workflow"
    DEFINITION = "definition"
    SIGNAL = "signal"
    ORDER = "order"
    PERSON = "person"
    DEAD = "dead"


class Layout(msgspec.Struct, frozen=True):
    """One logical cluster. Its name is the first token of every subject."""

    name: str = "vigil"
    partitions: int = 1
    """How many streams its journal, its state and its work are spread over: 1 to `PARTITIONS_MAX`.
    The ports that `connect` yields have a stack with the servers' number."""

    def __post_init__(self) -> None:
        if not _STACK.fullmatch(self.name):
            raise BadName(f"stack: {self.name!r}; use 1 to 32 of A-Z a-z 0-9 _ -")
        if not 1 <= self.partitions <= PARTITIONS_MAX:
            raise BadName(f"partitions: {self.partitions}; use 1 to {PARTITIONS_MAX}")

    def stream(self, stream: Stream, partition: int = 0) -> str:
        """Return the name of one of the six streams, or of one partition of it."""
        return f"{self.name}-{self.part(stream, partition)}"

    def part(self, stream: Stream, partition: int = 0) -> str:
        """Return a stream's name, or that of one partition of it, within the stack."""
        token = self._token(stream, partition)
        return f"{stream.value}-{token}" if token else stream.value

    def stream_subjects(self, stream: Stream, partition: int = 0) -> list[str]:
        """Return the subjects of `stream`, or of one partition of it."""
        token = self._token(stream, partition)
        within = f"{token}." if token else ""
        return [f"{self.name}.{root}.{within}>" for root in _ROOTS[stream]]

    def partitions_of(self, stream: Stream) -> range:
        """Return the numbers of the partitions of `stream`: 0 alone where it is not partitioned."""
        return range(self.partitions if stream in PARTITIONED else 1)

    def stream_of(self, subject: str) -> str:
        """Return the name of the stream that keeps `subject`; raise `BadName` if none does."""
        _, _, rest = subject.partition(".")
        root, _, rest = rest.partition(".")
        holder = _HOLDER_OF.get(root)
        if holder is None:
            raise BadName(f"no stream holds {subject!r}")
        if self.partitions == 1 or holder not in PARTITIONED:
            return f"{self.name}-{holder.value}"
        return f"{self.name}-{holder.value}-{rest.partition('.')[0]}"

    def retired(self, stream: str) -> str:
        """Return the subjects that a stream is given once another layout is in use.

        Nobody publishes there, so it keeps its messages as they are.
        """
        return f"{self.name}.retired.{stream}.>"

    def is_of(self, name: str, stream: Stream) -> bool:
        """Return whether `name` is that of `stream`, or of one partition of it, in any layout."""
        whole = f"{self.name}-{stream.value}"
        return name == whole or _TOKEN.fullmatch(name.removeprefix(f"{whole}-")) is not None

    def partition_of(self, kind: Kind, key: str) -> int:
        """Return the partition that an aggregate lives in, the same for ever."""
        return self._home(f"{kind.value}/{key}")

    def holder_of(self, kind: Kind) -> Stream:
        """Return the stream that has the aggregates of a kind."""
        return _HOLDER_OF[kind.value]

    def part_of(self, kind: Kind, key: str) -> str:
        """Return the name, within the stack, of the stream or partition that has an aggregate."""
        stream = self.holder_of(kind)
        return self.part(stream, self.partition_of(kind, key) if stream in PARTITIONED else 0)

    def timer_partition(self, actor: str, purpose: str, key: str) -> int:
        """Return the partition that a timer is armed in and fires into, the same for ever."""
        return self._home(f"timer/{actor}/{purpose}/{key}")

    def _home(self, name: str) -> int:
        try:
            octets = name.encode()
        except UnicodeEncodeError as error:
            raise BadName(f"not a key: {name!r} is not valid Unicode text") from error
        return int.from_bytes(blake2b(octets, digest_size=8).digest()) % self.partitions

    def _token(self, stream: Stream, partition: int) -> str:
        if partition not in self.partitions_of(stream):
            raise BadName(f"{stream.value} of stack {self.name} has no partition {partition}")
        is_one = self.partitions == 1 or stream not in PARTITIONED
        return "" if is_one else f"{partition}of{self.partitions}"

    def _work_within(self, partition: int) -> str:
        token = self._token(Stream.WORK, partition)
        return f"{token}." if token else ""

    def _within(self, kind: Kind, key: str) -> str:
        if self.partitions == 1:
            return ""
        return f"{self.partition_of(kind, key)}of{self.partitions}."

    def claims_bucket(self) -> str:
        """Return the name of the bucket with the leases."""
        return f"{self.name}-claims"

    def registry_bucket(self) -> str:
        """Return the name of the bucket with definitions and runtime control."""
        return f"{self.name}-registry"

    def object_store(self) -> str:
        """Return the name of the object store, with what no message can hold."""
        return f"{self.name}-blobs"

    def archive_store(self) -> str:
        """Return the name of the object store that may have the archive of the stack."""
        return f"{self.name}-archive"

    def gates_bucket(self) -> str:
        """Return the name of the bucket with cooldowns, circuit breakers and live nodes."""
        return f"{self.name}-gates"

    def keys_bucket(self) -> str:
        """Return the name of the bucket with the keys of subjects of data."""
        return f"{self.name}-keys"

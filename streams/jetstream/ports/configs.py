"""The configuration of every stream and bucket of a stack, as the server's own JSON.

Raw objects, because nats-py's `StreamConfig` drops fields that it does not know. Times are in
nanoseconds. A bucket is a stream with a known name (ADR-8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from streams.jetstream.connection.settings import DAY_S, LinkSettings
from streams.json import JsonObject
from streams.layout import AGGREGATE_STREAMS, Stream
from streams.model.losses import CLAIMS, GATES, OBJECTS, REGISTRY
from streams.ports.refusals import KEPT_MAX, KEPT_S
from streams.subjects import Stack

PARTITIONS: Final = "vigil.partitions"
"""The registry's metadata for the layout: the number of partitions, as in `4+state`. The creator of
that bucket decides it for all: of two who try at once, the server takes one."""

MOVING_TO: Final = "vigil.moving-to"
"""The layout that the stack is being moved to; meanwhile nobody else may use it."""

_ENDING: Final = "+state"
"""Ends both numbers. Unreleased versions wrote the number alone, or nothing for one partition."""

UNCOMPRESSING: Final = "vigil.uncompressing"
"""In the metadata of a stream that was compressed: ids of the servers that go on compressing it, as
they have not been restarted since."""

SEALED_KINDS: Final = "vigil.sealed"
"""In the registry's metadata: the kinds of subjects whose data are encrypted, joined by spaces."""

NS_PER_S: Final = 1_000_000_000

_BUCKET: Final = "KV_"
"""Begins the name of the stream behind a bucket."""

DUPLICATES_S: Final = 120
"""How long the server remembers message ids. The ports promise two minutes."""

MARKER_S: Final = 24 * 3600
"""How long a lapsed lease's marker waits for nodes that are away."""

GATES_MARKER_S: Final = 3600
"""How long one of the gates' waits, of which there are many more: one for each subject that an
expectation fired for. The server keeps every key in memory."""

CONSUMERS_MAX: Final = 100_000
"""Consumers of a stream: each actor needs three of the work and one of the events, and each watch
needs one of its bucket. Without a number, servers since 2.15 allow 1,000, which is 333 actors.
"""

EQUAL_FIELDS: Final = (
    "subjects",
    "retention",
    "storage",
    "discard",
    "max_msgs_per_subject",
    "allow_direct",
    "allow_msg_ttl",
    "allow_msg_schedules",
    "allow_rollup_hdrs",
    "deny_delete",
)
"""Must be as ours. Everything else (age, size, replicas…) is an operator's; a stream that takes no
atomic batches is only slower. Compression has rules of its own, in `setup/compression.py`."""

UNCOMPRESSED: Final = "none"  # guard: streams-uncompressed
"""How every stream is stored: a killed server since 2.15 may throw away a copy of a compressed one
(docs/adr/0053-no-compression.md)."""

AT_LEAST_FIELDS: Final = ("duplicate_window", "subject_delete_marker_ttl")
"""May be more than ours."""


@dataclass(frozen=True)
class Contradiction:
    """One field of a stream that exists and is not as it must be."""

    stream: str
    field: str
    theirs: object
    ours: object


@dataclass(frozen=True)
class StackLayout:
    """Over how many partitions a stack is spread, in the registry's metadata."""

    partitions: int
    moving_to: int | None = None
    """Over how many it is being spread."""

    def as_metadata(self) -> dict[str, str]:
        """Return the layout as metadata."""
        moving = {} if self.moving_to is None else {MOVING_TO: f"{self.moving_to}{_ENDING}"}
        return {PARTITIONS: f"{self.partitions}{_ENDING}", **moving}


def layout_in(config: JsonObject) -> StackLayout | None:
    """Return the layout in a registry's configuration; None if it is not written as it is now."""
    said = config.get("metadata") or {}
    partitions, moving_to = [_number_in(said.get(key, "")) for key in (PARTITIONS, MOVING_TO)]
    if partitions is None or (moving_to is None and MOVING_TO in said):
        return None
    return StackLayout(partitions, moving_to=moving_to)


def _number_in(written: str) -> int | None:
    number = written.removesuffix(_ENDING)
    is_ours = number != written and number.isdecimal()  # guard: unreleased-stack-refused
    return int(number) if is_ours else None


def shapes(stack: Stack, settings: LinkSettings) -> list[JsonObject]:
    """Return the configuration of each stream and bucket of `stack`."""
    return [
        _stream(
            stack,
            Stream.EVENTS,
            settings,
            discard="old",
            max_age=round(settings.events_max_age_s * NS_PER_S),
        ),
        *partitioned(stack, settings),
        _stream(stack, Stream.DEAD, settings),
        _stream(
            stack,
            Stream.REFUSALS,
            settings,
            discard="old",
            max_msgs_per_subject=KEPT_MAX,
            max_age=KEPT_S * NS_PER_S,
        ),
        _bucket(stack.claims_bucket(), settings),
        registry(stack, settings),
        _bucket(stack.gates_bucket(), settings, marker_s=GATES_MARKER_S),
        _objects(stack.object_store(), settings),
    ]


def sealed_kinds_in(config: JsonObject) -> tuple[str, ...]:
    """Return the kinds of subjects whose data a stack encrypts, by its registry's configuration."""
    return tuple(str((config.get("metadata") or {}).get(SEALED_KINDS, "")).split())


def kinds_of(stack: Stack, configs: Iterable[JsonObject]) -> tuple[str, ...]:
    """Return the kinds among the configurations of all streams of `stack`."""
    name = bucket_stream(stack.registry_bucket())
    return next((sealed_kinds_in(each) for each in configs if each["name"] == name), ())


def keys_bucket(stack: Stack, settings: LinkSettings) -> JsonObject:
    """Return the bucket of the keys of subjects of data.

    A deleted message is overwritten on the disk; one that a later one replaces, or a purge removes,
    stays there until its block is written anew (measured with 2.15). So deletes are allowed.
    """
    return {**_bucket(stack.keys_bucket(), settings), "deny_delete": False}


def partitioned(stack: Stack, settings: LinkSettings) -> list[JsonObject]:
    """Return the configuration of each stream that differs between layouts of `stack`."""
    return [
        *(_work(stack, each, settings) for each in stack.partitions_of(Stream.WORK)),
        *(
            _stream(stack, stream, settings, partition=each, deny_delete=True)
            for stream in AGGREGATE_STREAMS
            for each in stack.partitions_of(stream)
        ),
    ]


def registry(stack: Stack, settings: LinkSettings) -> JsonObject:
    """Return the configuration of the bucket whose metadata has the layout."""
    bucket = _bucket(stack.registry_bucket(), settings)
    return {**bucket, "metadata": StackLayout(stack.partitions).as_metadata()}


def names_of(stack: Stack) -> Mapping[str, str]:
    """Return the server's names of the streams and buckets of `stack`, by those within it.

    Without refusals, which may be lost, and end nothing.
    """
    streams = (*AGGREGATE_STREAMS, Stream.WORK, Stream.EVENTS, Stream.DEAD)
    return {
        **{
            stack.part(stream, each): stack.stream(stream, each)
            for stream in streams
            for each in stack.partitions_of(stream)
        },
        CLAIMS: bucket_stream(stack.claims_bucket()),
        REGISTRY: bucket_stream(stack.registry_bucket()),
        GATES: bucket_stream(stack.gates_bucket()),
        OBJECTS: object_stream(stack.object_store()),
    }


def stacks_among(streams: Iterable[str]) -> list[str]:
    """Return the names of the stacks that `streams`, all names of a server, are those of."""
    there, suffix = set(streams), f"-{REGISTRY}"
    registries = (name for name in there if name.startswith(_BUCKET) and name.endswith(suffix))
    stacks = (name.removeprefix(_BUCKET).removesuffix(suffix) for name in registries)
    return sorted(stack for stack in stacks if f"{stack}-{Stream.EVENTS}" in there)


def bucket_stream(bucket: str) -> str:
    """Return the name of the stream behind `bucket`."""
    return f"{_BUCKET}{bucket}"


def key_subject(bucket: str, key: str) -> str:
    """Return the subject of one key; `>` is all of them."""
    return f"$KV.{bucket}.{key}"


def object_stream(store: str) -> str:
    """Return the name of the stream behind an object store."""
    return f"OBJ_{store}"


def chunk_subject(store: str, upload: str) -> str:
    """Return the subject of the chunks of one upload; `>` is all of them."""
    return f"$O.{store}.C.{upload}"


def info_subject(store: str, name: str) -> str:
    """Return the subject of what is known of one object; `>` is all of them."""
    return f"$O.{store}.M.{name}"


def contradictions(theirs: JsonObject, ours: JsonObject) -> list[Contradiction]:
    """Return where an existing stream is not as it must be. A field not there is off."""
    name = str(ours["name"])
    equal = [
        Contradiction(name, field, theirs.get(field), ours.get(field))
        for field in EQUAL_FIELDS
        if _plain(theirs.get(field)) != _plain(ours.get(field))
    ]
    at_least = [
        Contradiction(name, field, theirs.get(field), ours.get(field))
        for field in AT_LEAST_FIELDS
        if theirs.get(field, 0) < ours.get(field, 0)
    ]
    return equal + at_least


def unlike(theirs: JsonObject, asked: JsonObject) -> list[Contradiction]:
    """Return what a server made of a stream otherwise than it was asked to."""
    more = asked.get("metadata", {})  # Servers add some of their own.
    metadata = {name: theirs.get("metadata", {}).get(name) for name in more}
    made = {**theirs, "metadata": metadata}
    return [
        Contradiction(str(asked["name"]), field, made.get(field), wanted)
        for field, wanted in asked.items()
        if _plain(made.get(field)) != _plain(wanted)
    ]


def needs_change(config: JsonObject) -> bool:
    """Return whether a stream is compressed, or was until moments ago; `setup/compression.py`."""
    is_compressed = (config.get("compression") or UNCOMPRESSED) != UNCOMPRESSED
    # guard: compressed-until-restart
    return is_compressed or UNCOMPRESSING in (config.get("metadata") or {})


def _work(stack: Stack, partition: int, settings: LinkSettings) -> JsonObject:
    return _stream(
        stack,
        Stream.WORK,
        settings,
        partition=partition,
        retention="workqueue",
        discard="old",  # Schedules allow no other; without limits nothing is discarded.
        allow_msg_schedules=True,
        allow_rollup_hdrs=True,
    )


def _stream(
    stack: Stack,
    stream: Stream,
    settings: LinkSettings,
    *,
    partition: int = 0,
    **differing: object,
) -> JsonObject:
    usual = {
        "name": stack.stream(stream, partition),
        "subjects": stack.stream_subjects(stream, partition),
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": -1,
        "max_consumers": CONSUMERS_MAX,  # guard: stream-allows-many-consumers
        "duplicate_window": DUPLICATES_S * NS_PER_S,
        "num_replicas": settings.replicas,
        "compression": UNCOMPRESSED,
        "allow_direct": True,
        "allow_atomic": True,
    }
    return {**usual, **differing}


def _bucket(bucket: str, settings: LinkSettings, *, marker_s: int = MARKER_S) -> JsonObject:
    """Return a bucket that keeps one message per key, its last.

    With more than one, the server would raise short times to live to the marker's (measured).
    """
    return {
        "name": bucket_stream(bucket),
        "subjects": [key_subject(bucket, ">")],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_consumers": CONSUMERS_MAX,
        "duplicate_window": DUPLICATES_S * NS_PER_S,
        "num_replicas": settings.replicas,
        "compression": UNCOMPRESSED,
        "allow_direct": True,
        "allow_atomic": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": marker_s * NS_PER_S,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


def archive(stack: Stack, settings: LinkSettings) -> JsonObject:
    """Return the object store for an archive: it keeps all."""
    store = stack.archive_store()
    return {
        "name": object_stream(store),
        "subjects": [chunk_subject(store, ">"), info_subject(store, ">")],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": -1,
        "duplicate_window": DUPLICATES_S * NS_PER_S,
        "num_replicas": settings.replicas,
        "compression": UNCOMPRESSED,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


def _objects(store: str, settings: LinkSettings) -> JsonObject:
    """Return an object store, which keeps each object for so long after it was put."""
    max_age_s = settings.results_days * DAY_S
    return {
        "name": object_stream(store),
        "subjects": [chunk_subject(store, ">"), info_subject(store, ">")],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": -1,
        "max_age": round(max_age_s * NS_PER_S),
        "duplicate_window": round(min(DUPLICATES_S, max_age_s) * NS_PER_S),
        "num_replicas": settings.replicas,
        "compression": UNCOMPRESSED,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
    }


def _plain(value: object) -> object:
    """Return `value` so that off equals absent, and order does not matter."""
    return sorted(map(str, value)) if isinstance(value, list) else value or None

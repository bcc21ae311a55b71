"""What every stream and bucket of a stack looks like, as the server's own JSON.

Kept as raw objects on purpose: nats-py's `StreamConfig` drops fields that it does not
know. Times are in nanoseconds. A bucket is a stream with a known name (ADR-8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams.jetstream.settings import LinkSettings
from streams.json import JsonObject
from streams.subjects import Stack, Stream

NS_PER_S: Final = 1_000_000_000

DUPLICATES_S: Final = 120
"""How long the server remembers message ids. The ports promise two minutes."""

MARKER_S: Final = 24 * 3600
"""How long a lapsed lease's marker, or a deleted entry's, waits for nodes that are away."""

EQUAL_FIELDS: Final = (
    "subjects",
    "retention",
    "storage",
    "discard",
    "max_msgs_per_subject",
    "allow_direct",
    "allow_atomic",
    "allow_msg_ttl",
    "allow_msg_schedules",
    "allow_rollup_hdrs",
    "deny_delete",
)
"""Must be as ours. Everything else (age, size, replicas, compression…) is an operator's."""

AT_LEAST_FIELDS: Final = ("duplicate_window", "subject_delete_marker_ttl")
"""May be more than ours."""


@dataclass(frozen=True)
class Contradiction:
    """One field of a stream that exists and is not as it must be."""

    stream: str
    field: str
    theirs: object
    ours: object


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
        _stream(
            stack,
            Stream.WORK,
            settings,
            retention="workqueue",
            discard="old",  # Schedules allow no other; without limits nothing is discarded.
            allow_msg_schedules=True,
            allow_rollup_hdrs=True,
            allow_atomic=True,
        ),
        _stream(stack, Stream.JOURNAL, settings, allow_atomic=True, deny_delete=True),
        _stream(stack, Stream.DEAD, settings),
        _bucket(stack.claims_bucket(), settings),
        _bucket(stack.registry_bucket(), settings),
    ]


def bucket_stream(bucket: str) -> str:
    """Return the name of the stream that is `bucket`."""
    return f"KV_{bucket}"


def key_subject(bucket: str, key: str) -> str:
    """Return the subject of one key; `>` is all of them."""
    return f"$KV.{bucket}.{key}"


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


def _stream(
    stack: Stack, stream: Stream, settings: LinkSettings, **differing: object
) -> JsonObject:
    usual = {
        "name": stack.stream(stream),
        "subjects": stack.stream_subjects(stream),
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_msgs_per_subject": -1,
        "duplicate_window": DUPLICATES_S * NS_PER_S,
        "num_replicas": settings.replicas,
        "compression": "s2",
        "allow_direct": True,
    }
    return {**usual, **differing}


def _bucket(bucket: str, settings: LinkSettings) -> JsonObject:
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
        "duplicate_window": DUPLICATES_S * NS_PER_S,
        "num_replicas": settings.replicas,
        "allow_direct": True,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": MARKER_S * NS_PER_S,
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    }


def _plain(value: object) -> object:
    """Return `value` so that off equals absent, and order does not matter."""
    return sorted(map(str, value)) if isinstance(value, list) else value or None

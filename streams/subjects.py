"""Every subject, stream, bucket, key and durable name. No other module spells one.

<stack>.event.<name…>                    stream <stack>-events    what happened in the world
<stack>.inbox.episode.<actor>.<id>       stream <stack>-work      what a node is asked to do
<stack>.episode.<id>                     stream <stack>-journal   an episode's life, in order
<stack>.finding.<key>                    stream <stack>-journal   a finding's life, in order
<stack>.dead.<origin>.<cause>            stream <stack>-dead      what could not be done, and why

bucket <stack>-claims      episode.<actor>.<id>, projector.<name>
bucket <stack>-registry    mode.<node>, actor.<id>, workflow.<id>

A token stands between two dots. Names that people choose for code (actors, events)
must be tokens as they are; keys that data chooses (findings) may hold anything and
are encoded: every byte outside `[A-Za-z0-9_-]` becomes `=` and two hex digits. That
alphabet is legal in subjects and in KV keys, and the encoding is reversible.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from streams.errors import BadName

TOKEN_BYTES_MAX: Final = 1024
"""Longest encoded token. A subject must fit in one protocol line (4,096 bytes by default)."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_STACK = re.compile(r"[A-Za-z0-9_-]{1,32}")
_EVENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,15}")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})*")


class Stream(StrEnum):
    """The four streams of a stack."""

    EVENTS = "events"
    WORK = "work"
    JOURNAL = "journal"
    DEAD = "dead"


class Kind(StrEnum):
    """What an aggregate is: the second token of its subject."""

    EPISODE = "episode"
    FINDING = "finding"
    DEAD = "dead"


_KINDS: Final = frozenset(Kind)


def encode_token(value: str) -> str:
    """Return `value` as one subject token; `decode_token` gives it back.

    Raises:
        BadName: `value` is empty, or over `TOKEN_BYTES_MAX` bytes when encoded.
    """
    try:
        octets = value.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"not a key: {value!r} is not valid Unicode text") from error
    token = "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in octets)
    if not 0 < len(token) <= TOKEN_BYTES_MAX:
        raise BadName(f"not a key: {value[:40]!r} needs 1 to {TOKEN_BYTES_MAX} encoded bytes")
    return token


def decode_token(token: str) -> str:
    """Return the value that `encode_token` made `token` from.

    Raises:
        BadName: no value encodes to `token`.
    """
    if not _ESCAPED.fullmatch(token):
        raise BadName(f"not an encoded token: {token!r}")
    if "=" not in token:
        return token
    octets = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), token.encode())
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise BadName(f"not an encoded token: {token!r}") from error


def name(value: str, *, of: str) -> str:
    """Return `value` if it may name an `of` (an actor, a node…), else raise `BadName`."""
    if _NAME.fullmatch(value):
        return value
    raise BadName(f"{of}: {value!r} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -")


def event_name(value: str) -> str:
    """Return `value` if it may name a domain event, else raise `BadName`."""
    if _EVENT_NAME.fullmatch(value):
        return value
    raise BadName(
        f"event name: {value!r} is not a dotted name; use words of A-Z a-z 0-9 _ - joined by dots"
    )


def stack_of(subject: str) -> Stack:
    """Return the stack that `subject` belongs to.

    Raises:
        BadName: it cannot belong to any.
    """
    return Stack(subject.partition(".")[0])


class Stack(msgspec.Struct, frozen=True):
    """One logical cluster. Its name is the first token of every subject."""

    name: str = "vigil"

    def __post_init__(self) -> None:
        """Refuse a name that cannot be a subject token and a stream name."""
        if not _STACK.fullmatch(self.name):
            raise BadName(f"stack: {self.name!r}; use 1 to 32 of A-Z a-z 0-9 _ -")

    # Streams and buckets.

    def stream(self, stream: Stream) -> str:
        """Return the name of one of the four streams."""
        return f"{self.name}-{stream.value}"

    def stream_subjects(self, stream: Stream) -> list[str]:
        """Return the subjects that `stream` holds."""
        kinds = {
            Stream.EVENTS: ["event"],
            Stream.WORK: ["inbox"],
            Stream.JOURNAL: ["episode", "finding", "output", "workflow"],
            Stream.DEAD: ["dead"],
        }
        return [f"{self.name}.{kind}.>" for kind in kinds[stream]]

    def stream_of(self, subject: str) -> str:
        """Return the name of the stream that holds the aggregate at `subject`."""
        dead = subject.startswith(f"{self.name}.{Kind.DEAD}.")
        return self.stream(Stream.DEAD if dead else Stream.JOURNAL)

    def claims_bucket(self) -> str:
        """Return the bucket that holds the leases."""
        return f"{self.name}-claims"

    def registry_bucket(self) -> str:
        """Return the bucket that holds definitions and runtime control."""
        return f"{self.name}-registry"

    # The world.

    def event(self, name: str) -> str:
        """Return the subject of the domain event `name`."""
        return f"{self.name}.event.{event_name(name)}"

    def event_name_of(self, subject: str) -> str:
        """Return the name of the domain event published on `subject`."""
        return subject.removeprefix(f"{self.name}.event.")

    def gate_durable(self, actor: str) -> str:
        """Return the durable consumer that all gates of `actor` share."""
        return f"gate-{name(actor, of='actor')}"

    # The work.

    def episode_inbox(self, actor: str, episode_id: str) -> str:
        """Return the subject of commands to one episode."""
        return f"{self.name}.inbox.episode.{name(actor, of='actor')}.{episode_id}"

    def actor_inbox(self, actor: str) -> str:
        """Return the filter that matches commands to every episode of `actor`."""
        return self.episode_inbox(actor, "*")

    def inbox_durable(self, actor: str) -> str:
        """Return the durable consumer that all runners of `actor` share."""
        return f"inbox-{name(actor, of='actor')}"

    # The journal: one exact subject per aggregate.

    def episode(self, episode_id: str) -> str:
        """Return the subject of one episode's life."""
        return f"{self.name}.episode.{episode_id}"

    def finding(self, key: str) -> str:
        """Return the subject of one finding's life."""
        return f"{self.name}.finding.{encode_token(key)}"

    def dead(self, origin: str, cause: str) -> str:
        """Return the subject of the dead letter for `cause` (a sequence, an id) at `origin`."""
        return f"{self.name}.dead.{encode_token(origin)}.{encode_token(cause)}"

    def dead_letter(self, key: str) -> str:
        """Return the subject of the dead letter with this `key`, as `aggregate_of` gives it.

        Raises:
            BadName: no dead letter has such a key.
        """
        origin, _, cause = key.partition(".")
        return self.dead(decode_token(origin), decode_token(cause))

    def aggregate_of(self, subject: str) -> tuple[Kind, str]:
        """Return what the aggregate at `subject` is, and its id or key.

        Raises:
            BadName: no aggregate lives at `subject`.
        """
        kind, _, token = subject.removeprefix(f"{self.name}.").partition(".")
        if kind == Kind.DEAD:
            return Kind.DEAD, token
        if kind not in _KINDS or not token:
            raise BadName(f"no aggregate lives at {subject!r}")
        return Kind(kind), decode_token(token)

    # Leases.

    def episode_claim(self, actor: str, episode_id: str) -> str:
        """Return the lease key of one episode."""
        return f"episode.{name(actor, of='actor')}.{episode_id}"

    def episode_of_claim(self, key: str) -> tuple[str, str] | None:
        """Return the actor and the episode that the lease `key` is for, if it is an episode's."""
        kind, _, rest = key.partition(".")
        actor, _, episode_id = rest.partition(".")
        return (actor, episode_id) if kind == Kind.EPISODE and episode_id else None

    def projector_claim(self, projection: str) -> str:
        """Return the lease key of one projector."""
        return f"projector.{name(projection, of='projection')}"

"""Domain events and commands as messages: encoding ours, and parsing those of others. Pure.

Anyone may publish a domain event, so no message is trusted: it is either an event, or an
`Unreadable` with the reason and the message as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from streams.errors import TooLarge
from streams.json import UNDECODABLE, JsonObject, exact, is_deeper
from streams.model.commands import Attending, Command, WorkflowCommand
from streams.model.triggers import CloudEvent
from streams.ports.delivery import Unreadable
from streams.ports.domain_events import EVENT_BYTES_MAX, DomainEvent
from streams.ports.log import Recorded
from streams.subjects import Stack
from streams.wire import codec

MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"
"""The server's key for dropping duplicates; also the event's id, whoever published it."""

CLOUD_EVENT_ID_HEADER: Final = "ce-id"
"""The event's id in CloudEvents' binary mode (CloudEvents NATS binding 1.0, section 3.1)."""

CLOUD_HEADERS: Final = {
    "type": "ce-type",
    "source": "ce-source",
    "subject": "ce-subject",
    "time": "ce-time",
}
"""A CloudEvent's other headers, by the fields of `CloudEvent`."""

CLOUD_CHARS_MAX: Final = 512
"""Most characters of each of these that an episode keeps; the rest is cut."""

EVENT_ID_HEADER: Final = "Vigil-Event-Id"
"""The event's id on a later copy of its message, which has a message id of its own."""

_SERVER_HEADERS: Final = "Nats-"
"""Prefix of headers that are for the server, and for one message only."""

HOPS_HEADER: Final = "Vigil-Hops"
FOLLOWS_HEADER: Final = "Vigil-Follows"
"""Of a public event: the stream within the stack, and the sequence, of the commit that it follows
from, such as `journal/17`."""

TRACE_HEADER: Final = "traceparent"
COMMIT_HEADER: Final = "Vigil-Commit"
"""The commit's id. Not `Nats-Msg-Id`: with that, a repeated append would be answered with
`duplicate` on three replicas and with a conflict on one; without it both conflict."""

ID_CHARS_MAX: Final = 512
"""Longest id of an event. It becomes part of episode ids, dead letters and rows."""

DEPTH_MAX: Final = 64
"""Deepest nesting of a payload. A commit holds the payload a few levels down, and encoding
recurses: CPython gives up at about 1,000 levels, the caller's own frames included."""

_HOPS = re.compile(r"[0-9]{1,6}")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Message(Protocol):
    """A message of a stream, as an adapter has it."""

    @property
    def subject(self) -> str:
        """Where it was published."""

    @property
    def seq(self) -> int:
        """Stream sequence, from 1."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""

    @property
    def data(self) -> bytes:
        """Its body."""


class TimedMessage(Message, Protocol):
    """A message that knows its time."""

    @property
    def at(self) -> datetime:
        """When it was stored."""


class StreamMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as plain values."""

    seq: int
    subject: str
    headers: Mapping[str, str]
    data: bytes
    at: datetime


class Parse(Protocol[T_co]):
    """Makes something of a message, or explains why it is unreadable."""

    def __call__(self, message: Message, *, stream: str) -> T_co | Unreadable:
        """Return the content of a message of `stream`."""


class _Refused(Exception):
    """The message is not an event: `args` are the reason and the detail."""


def event_body(name: str, payload: JsonObject) -> bytes:
    """Return the message body of a domain event; raises as `exact` does.

    Raises:
        TooLarge: over `EVENT_BYTES_MAX` bytes.
    """
    body = bytes(exact(payload))
    if len(body) > EVENT_BYTES_MAX:
        raise TooLarge(name, size_bytes=len(body), limit_bytes=EVENT_BYTES_MAX)
    return body


def event_headers(*, id: str, hops: int = 0, trace: str = "", follows: str = "") -> dict[str, str]:
    """Return the message headers of a domain event; empty ones are left out."""
    more = {HOPS_HEADER: str(hops) if hops else "", FOLLOWS_HEADER: follows}
    return message_headers(id=id, trace=trace) | {key: each for key, each in more.items() if each}


def copy_headers(
    headers: Mapping[str, str],
    *,
    id: str,
    stream: str,
    seq: int,
) -> dict[str, str]:
    """Return the headers of a copy of the message at `seq` of `stream`.

    It stays the same event, so it opens nothing that the first copy has opened.
    """
    event_id = _claimed_id(headers) or f"{stream}:{seq}"
    # guard: copy-follows-from-nothing
    dropped = {EVENT_ID_HEADER, FOLLOWS_HEADER} | {
        name for name in headers if name.startswith(_SERVER_HEADERS)
    }
    kept = {name: value for name, value in headers.items() if name not in dropped}
    # guard: same-event-published-again
    same = {EVENT_ID_HEADER: event_id} if len(event_id) <= ID_CHARS_MAX else {}
    return {**kept, **same, **message_headers(id=id)}


def message_headers(*, id: str, trace: str = "") -> dict[str, str]:
    """Return the headers of a message that the server keeps once per `id`."""
    headers = {MESSAGE_ID_HEADER: id}
    return {**headers, TRACE_HEADER: trace} if trace else headers


def parse_event(message: TimedMessage, *, stack: Stack, stream: str) -> DomainEvent | Unreadable:
    """Return the domain event of a message, or why it is none."""
    name = stack.event_name_of(message.subject)
    return _parse_event(message, _event_id, name=name, stream=stream)


def parse_foreign(
    message: TimedMessage, *, stream: str, remade: str = ""
) -> DomainEvent | Unreadable:
    """Return the event of a message of a stream that is not ours, or why it is none.

    Its subject is its name. Its id names its stream, too: the ids of others are theirs alone. When
    the stream was `remade` is part of the ids that are made of sequences, which begin again.
    """
    id_of = partial(_foreign_id, remade=remade)
    return _parse_event(message, id_of, name=message.subject, stream=stream, feed=stream)


def parse_command(message: Message, *, stream: str) -> Command | Unreadable:
    """Return the command of a message, or why it is none."""
    return _parse(codec.decode_command, message, stream=stream)


def parse_workflow_command(message: Message, *, stream: str) -> WorkflowCommand | Unreadable:
    """Return the command to an instance of a message, or why it is none."""
    return _parse(codec.decode_workflow_command, message, stream=stream)


def parse_commit(message: Message) -> Recorded:
    """Return the commit of a message; raises as `decode_commit` does."""
    return codec.decode_commit(
        message.data,
        subject=message.subject,
        seq=message.seq,
        commit_id=message.headers.get(COMMIT_HEADER, ""),
        trace=message.headers.get(TRACE_HEADER, ""),
    )


def unreadable(
    message: Message, *, stream: str, detail: str, reason: str = "unreadable"
) -> Unreadable:
    """Return a message of `stream` that does not parse, as it came."""
    return Unreadable(
        reason=reason,
        detail=detail,
        stream=stream,
        seq=message.seq,
        subject=message.subject,
        headers=dict(message.headers),
        data=message.data,
    )


def inbox_of(stack: Stack, command: Command | WorkflowCommand) -> str:
    """Return the subject that `command` is sent on."""
    if isinstance(command, WorkflowCommand):
        return stack.workflow_inbox(command.workflow, command.instance_id)
    is_said = isinstance(command, Attending)  # guard: command-passes-slot-queue
    commands = stack.attending_inbox if is_said else stack.episode_inbox
    return commands(command.actor_id, command.episode_id)


def _parse_event(
    message: TimedMessage,
    id_of: Callable[[Mapping[str, str], str, int], str],
    *,
    name: str,
    stream: str,
    feed: str = "",
) -> DomainEvent | Unreadable:
    headers = message.headers
    try:
        return DomainEvent(
            id=id_of(headers, stream, message.seq),
            name=name,
            payload=_payload(message.data),
            seq=message.seq,
            at=message.at,
            hops=_hops(headers),
            cloud=_cloud(headers),
            stream=feed,
            follows=headers.get(FOLLOWS_HEADER, msgspec.UNSET),
        )
    except _Refused as refused:
        reason, detail = refused.args
        return unreadable(message, stream=stream, reason=reason, detail=detail)


def _parse(decode: Callable[[bytes], T], message: Message, *, stream: str) -> T | Unreadable:
    try:
        return decode(message.data)
    except UNDECODABLE as error:
        return unreadable(message, stream=stream, detail=str(error))


def _event_id(headers: Mapping[str, str], stream: str, seq: int) -> str:
    return _checked_id(_claimed_id(headers) or f"{stream}:{seq}")


def _foreign_id(headers: Mapping[str, str], stream: str, seq: int, *, remade: str) -> str:
    given = _claimed_id(headers)
    at = f"{remade}:{seq}" if remade else seq
    # guard: foreign-ids-told-apart
    return _checked_id(f"{stream}/{given}" if given else f"{stream}:{at}")


def _checked_id(given: str) -> str:
    if len(given) > ID_CHARS_MAX:
        raise _Refused("unreadable", f"its id has {len(given)} characters, over {ID_CHARS_MAX}")
    return given


def _claimed_id(headers: Mapping[str, str]) -> str | None:
    names = (EVENT_ID_HEADER, MESSAGE_ID_HEADER, CLOUD_EVENT_ID_HEADER)
    return next((headers[name] for name in names if headers.get(name)), None)


def _hops(headers: Mapping[str, str]) -> int:
    hops = headers.get(HOPS_HEADER, "0")
    if not _HOPS.fullmatch(hops):
        raise _Refused("unreadable", f"{HOPS_HEADER}: {hops[:40]!r} is not a count")
    return int(hops)


def _cloud(headers: Mapping[str, str]) -> CloudEvent | None:
    given = {field: headers.get(name, "") for field, name in CLOUD_HEADERS.items()}
    if not any(given.values()):
        return None
    return CloudEvent(**{field: value[:CLOUD_CHARS_MAX] for field, value in given.items()})


def _payload(data: bytes) -> JsonObject:
    if len(data) > EVENT_BYTES_MAX:
        raise _Refused("too_large", f"{len(data):,} bytes, the limit is {EVENT_BYTES_MAX:,}")
    try:
        value: object = msgspec.json.decode(data)
    except UNDECODABLE as error:
        raise _Refused("unreadable", f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _Refused("not_an_object", f"a JSON {type(value).__name__}, not an object")
    if is_deeper(value, levels=DEPTH_MAX):
        raise _Refused("unreadable", f"nested deeper than {DEPTH_MAX} levels")
    return value

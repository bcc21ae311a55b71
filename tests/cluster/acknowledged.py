"""What servers have acknowledged, as it was seen on the wires of their clients.

A message counts once its acknowledgement went through to the client that sent it: by then the
client may act on it, and no server may lose it.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from streams.jetstream.connection import headers
from tests.streams.jetstream.wire import Tap

END: Final = b"\r\n"
PUBLISHED: Final = frozenset({b"PUB", b"HPUB"})
DELIVERED: Final = frozenset({b"MSG", b"HMSG"})


class Written(NamedTuple):
    """One message as a client sent it."""

    subject: str
    digest: str
    """Of its body."""
    expires: bool
    """Whether it has a time to live."""


class Acknowledged:
    """The messages that were acknowledged to anybody, by stream and sequence."""

    def __init__(self) -> None:
        self.written: dict[str, dict[int, Written]] = defaultdict(dict)

    def tap(self) -> Tap:
        """Listen in on another connection."""
        conversation = _Conversation(self)
        return Tap(conversation.on_request, conversation.on_answer)

    def __len__(self) -> int:
        return sum(map(len, self.written.values()))


class _Conversation:
    """One connection: which requests wait for which answers."""

    def __init__(self, acknowledged: Acknowledged) -> None:
        self._acknowledged = acknowledged
        self._requests, self._answers = _Frames(PUBLISHED), _Frames(DELIVERED)
        self._waiting: dict[str, list[Written]] = {}
        self._batches: dict[str, list[Written]] = defaultdict(list)

    def on_request(self, data: bytes) -> None:
        for frame in self._requests.feed(data):
            written = Written(frame.subject, digest_of(frame.data), frame.has(headers.TTL))
            batch = frame.value(headers.BATCH)
            parts = self._batches[batch] if batch else []
            parts.append(written)
            if frame.reply:
                self._waiting[frame.reply] = parts
                self._batches.pop(batch, None)

    def on_answer(self, data: bytes) -> None:
        for frame in self._answers.feed(data):
            parts = self._waiting.pop(frame.subject, None)
            if parts is None or not frame.data.startswith(b'{"stream":'):
                continue
            answer = json.loads(frame.data)
            if "error" in answer or answer.get("count", 1) != len(parts):
                continue
            first = answer["seq"] - len(parts) + 1
            for seq, written in enumerate(parts, start=first):
                self._acknowledged.written[answer["stream"]][seq] = written


def digest_of(data: bytes) -> str:
    """Return what tells one body from another."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


class _Frame(NamedTuple):
    """One message on the wire."""

    subject: str
    reply: str
    block: bytes
    data: bytes

    def value(self, header: str) -> str:
        """Return the value of a header, or nothing."""
        for line in self.block.split(END):
            name, _, value = line.partition(b":")
            if name.decode() == header:
                return value.strip().decode()
        return ""

    def has(self, header: str) -> bool:
        return bool(self.value(header))


class _Frames:
    """The messages in one direction, in whatever pieces they come."""

    def __init__(self, verbs: frozenset[bytes]) -> None:
        self._verbs = verbs
        self._unread = bytearray()

    def feed(self, data: bytes) -> Iterator[_Frame]:
        """Yield the messages that are whole by now."""
        self._unread += data
        while (end := self._unread.find(END)) >= 0:
            words = bytes(self._unread[:end]).split()
            begin = end + len(END)
            if not words or words[0].upper() not in self._verbs:
                del self._unread[:begin]
                continue
            size = int(words[-1])
            if len(self._unread) < begin + size + len(END):
                return
            body = bytes(self._unread[begin : begin + size])
            del self._unread[: begin + size + len(END)]
            yield _frame(words, body)


def _frame(words: list[bytes], body: bytes) -> _Frame:
    """Return a message by its first line, and all bytes that follow it.

    A delivery has a subscription behind the subject; then, both ways, there may be a reply subject.
    """
    has_block = words[0].upper().startswith(b"H")
    sizes = 2 if has_block else 1
    reply_at = 3 if words[0].upper() in DELIVERED else 2
    reply = words[reply_at].decode() if len(words) > reply_at + sizes else ""
    block = int(words[-2]) if has_block else 0
    return _Frame(words[1].decode(), reply, body[:block], body[block:])

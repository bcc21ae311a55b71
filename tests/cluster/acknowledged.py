"""What servers have acknowledged, as it was seen on the wires of their clients.

A message counts once its acknowledgement went through to the client that sent it: by then the
client may act on it, and no server may lose it.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import NamedTuple

from streams.jetstream.connection import headers
from tests.streams.jetstream.frames import DELIVERED, PUBLISHED, Frames
from tests.streams.jetstream.wire import Tap


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
        self._requests, self._answers = Frames(PUBLISHED), Frames(DELIVERED)
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

"""Counts what nodes publish about one episode, on its way to the server.

A message is about the episode if its subject or body names the order, or the id of an episode or a
workflow instance that was named together with it. So is the acknowledgement of a delivery that was.
Reads of streams are not counted.

A point is one of these messages: `episode.3` is the third commit of an episode, `claims.1` the
first word about a claim. Messages of several kinds overtake one another, so each kind has numbers
of its own: they mean the same thing each time, as far as anything does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tests.streams.jetstream.frames import DELIVERED, PUBLISHED, Frame, Frames
from tests.streams.jetstream.wire import Gate

READS: Final = "$JS.API."
ACKNOWLEDGED: Final = "$JS.ACK."
BUCKETS: Final = "$KV."

_LIFE: Final = re.compile(r"[^.]+\.(?:episode|workflow)\.([^.]+)")
"""The subject of a life that has an id."""

Strike: TypeAlias = Callable[[str], Callable[[], None] | None]
"""Called with a point before its message leaves; what it returns is called once it has."""


class MessageCounter:
    """What has been published about one episode, by whichever node."""

    def __init__(self) -> None:
        self.points: list[str] = []
        """Of the messages, in order."""
        self._kinds = Counter[str]()
        self._marks: set[bytes] = set()
        self._deliveries: set[str] = set()
        """What acknowledgements of deliveries about it are sent to."""

    def begin(self, order: str) -> None:
        """Count anew, what is about `order`."""
        self.points = []
        self._kinds.clear()
        self._marks = {order.encode()}
        self._deliveries.clear()

    def gate(self, strike: Strike) -> Gate:
        """Return what counts the requests of another connection."""
        frames = Frames(PUBLISHED)

        def cut(data: bytes) -> Iterator[bytes]:
            for piece in frames.pieces(data):
                if piece.frame is None or not self._is_about(piece.frame, piece.raw):
                    yield piece.raw
                    continue
                after = strike(self._next(piece.frame.subject))
                yield piece.raw
                if after is not None:
                    after()

        return cut

    def deliveries(self) -> Callable[[bytes], None]:
        """Return what listens for deliveries on another connection."""
        frames = Frames(DELIVERED)

        def on_answer(data: bytes) -> None:
            for piece in frames.pieces(data):
                frame = piece.frame
                is_pulled = frame is not None and frame.reply.startswith(ACKNOWLEDGED)
                if frame is not None and is_pulled and self._names(piece.raw):
                    self._deliveries.add(frame.reply)

        return on_answer

    def _next(self, subject: str) -> str:
        kind = _kind_of(subject)
        self._kinds[kind] += 1
        self.points.append(f"{kind}.{self._kinds[kind]}")
        return self.points[-1]

    def _is_about(self, frame: Frame, raw: bytes) -> bool:
        if frame.subject.startswith(READS):
            return False
        if frame.subject in self._deliveries:
            return True
        if not self._names(raw):
            return False
        if life := _LIFE.fullmatch(frame.subject):
            self._marks.add(life[1].encode())
        return True

    def _names(self, raw: bytes) -> bool:
        return any(mark in raw for mark in self._marks)


def _kind_of(subject: str) -> str:
    """Return what a message is: `ack`, the name of a bucket, or of the subjects of a stack."""
    _, kind, *_ = subject.split(".")
    if subject.startswith(ACKNOWLEDGED):
        return "ack"
    return kind.partition("-")[2] if subject.startswith(BUCKETS) else kind

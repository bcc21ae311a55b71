"""The messages that go through a connection to a NATS server, read from its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

END: Final = b"\r\n"
PUBLISHED: Final = frozenset({b"PUB", b"HPUB"})
DELIVERED: Final = frozenset({b"MSG", b"HMSG"})


class Frame(NamedTuple):
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


class Piece(NamedTuple):
    """A part of what goes through, as it is on the wire."""

    raw: bytes
    frame: Frame | None
    """The message, if it is one."""


class Frames:
    """The messages in one direction, in whatever pieces they come."""

    def __init__(self, verbs: frozenset[bytes]) -> None:
        self._verbs = verbs
        self._unread = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the messages that are whole by now."""
        return (piece.frame for piece in self.pieces(data) if piece.frame is not None)

    def pieces(self, data: bytes) -> Iterator[Piece]:
        """Yield everything that is whole by now, in order: messages, and lines that are none."""
        self._unread += data
        while (end := self._unread.find(END)) >= 0:
            words = bytes(self._unread[:end]).split()
            begin = whole = end + len(END)
            is_message = bool(words) and words[0].upper() in self._verbs
            if is_message:
                whole += int(words[-1]) + len(END)
            if len(self._unread) < whole:
                return
            raw = bytes(self._unread[:whole])
            del self._unread[:whole]
            body = raw[begin : -len(END)]
            yield Piece(raw, _frame(words, body) if is_message else None)


def _frame(words: list[bytes], body: bytes) -> Frame:
    """Return a message by its first line, and all bytes that follow it.

    A delivery has a subscription behind the subject; then, both ways, there may be a reply subject.
    """
    has_block = words[0].upper().startswith(b"H")
    sizes = 2 if has_block else 1
    reply_at = 3 if words[0].upper() in DELIVERED else 2
    reply = words[reply_at].decode() if len(words) > reply_at + sizes else ""
    block = int(words[-2]) if has_block else 0
    return Frame(words[1].decode(), reply, body[:block], body[block:])

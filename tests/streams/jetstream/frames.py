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


class Frames:
    """The messages in one direction, in whatever pieces they come."""

    def __init__(self, verbs: frozenset[bytes]) -> None:
        self._verbs = verbs
        self._unread = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
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

"""The hot half of NATS's protocol: encoding what we publish, decoding what is delivered.

A line says what follows and how long it is; then come the bytes, and a line end:

    PUB <subject> [reply] <bytes>                    HPUB … <header bytes> <bytes>
    MSG <subject> <subscription> [reply] <bytes>     HMSG … <header bytes> <bytes>

Source: https://docs.nats.io/reference/reference-protocols/nats-protocol. All other lines (`PING`,
`INFO`, `-ERR`, …) are rare and passed on unparsed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nats.errors import BadSubjectError, ProtocolError

from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers

LINE_BYTES_MAX: Final = 1024 * 1024
"""Longest line of a server. The longest we know, `INFO`, names all its neighbours."""

_END: Final = b"\r\n"
_STATUS_LINE: Final = headers.VERSION + b" "
_STATUS: Final = slice(len(headers.VERSION) + 1, len(headers.VERSION) + 4)


class Received:
    """One message as it came. Its headers are parsed when they are asked for."""

    __slots__ = ("_block", "data", "reply", "subject")

    def __init__(self, subject: str, reply: str, block: bytes, data: bytes) -> None:
        self.subject = subject
        self.reply = reply
        """Where the sender wants an answer, or empty."""
        self.data = data
        self._block = block

    @property
    def headers(self) -> Headers:
        """The headers, parsed anew each time."""
        return headers.parse(self._block) if self._block else {}

    @property
    def status(self) -> str:
        """What the server says instead of a message, such as `503`; mostly empty."""
        if self.data or not self._block.startswith(_STATUS_LINE):
            return ""
        return self._block[_STATUS].decode(errors="replace")


def publication(subject: str, data: bytes, *, reply: str = "", block: bytes = b"") -> bytes:
    """Return the bytes that publish `data` with the headers in `block`."""
    _check(subject)
    size = len(block) + len(data)
    sizes = f"{len(block)} {size}" if block else f"{size}"
    line = f"{'HPUB' if block else 'PUB'} {subject} {reply} {sizes}\r\n"
    return b"".join((line.encode(), block, data, _END))


def subscription(subject: str, number: int) -> bytes:
    """Return the bytes that subscribe to `subject`."""
    _check(subject)
    return b"SUB %b %d\r\n" % (subject.encode(), number)


def _check(subject: str) -> None:
    """Raise `BadSubjectError` unless `subject` is one token; no more, because each message pays."""
    if not subject or " " in subject or "\n" in subject or "\r" in subject or "\t" in subject:
        raise BadSubjectError


class Parser:
    """Cuts what arrives into messages, however the network cut it, for `deliver`."""

    def __init__(self, deliver: Callable[[int, Received], None]) -> None:
        self._deliver = deliver
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Deliver the messages that `data` completes, and return the other lines.

        Raises:
            ProtocolError: no NATS server sends this.
        """
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []  # A large message: look again when all of it is there.
        buffer = data if len(self._chunks) == 1 else b"".join(self._chunks)
        lines: list[bytes] = []
        try:
            rest = buffer[self._cut(buffer, lines) :]
        except ValueError as error:
            raise ProtocolError from error
        self._chunks = [rest] if rest else []
        self._held = len(rest)
        if self._held > LINE_BYTES_MAX > self._needed:
            raise ProtocolError
        return lines

    def _cut(self, buffer: bytes, lines: list[bytes]) -> int:
        """Deliver what is complete in `buffer` and return where the rest begins."""
        at = 0
        self._needed = 0
        while (end := buffer.find(_END, at)) >= 0:
            line = buffer[at:end]
            start = end + len(_END)
            if line.startswith((b"HMSG ", b"MSG ")):
                words = line.split()
                stop = start + int(words[-1])
                if len(buffer) < stop + len(_END):
                    self._needed = stop + len(_END) - at
                    return at
                self._deliver(int(words[2]), _message(words, buffer, start, stop))
                at = stop + len(_END)
            else:
                lines.append(line)
                at = start
        return at


def _message(words: list[bytes], buffer: bytes, start: int, stop: int) -> Received:
    has_headers = words[0] == b"HMSG"
    body = start + int(words[-2]) if has_headers else start
    reply = words[3] if len(words) == (6 if has_headers else 5) else b""
    return Received(
        words[1].decode(errors="replace"),
        reply.decode(errors="replace"),
        buffer[start:body],
        buffer[body:stop],
    )

"""One connection to the server, from its first byte to its last.

A session multiplexes every request over one inbox. It owns what nats-py leaves open:

| nats-py 2.16 | here |
| --- | --- |
| a request waits its full timeout though the connection is gone | fails at once, `UnknownOutcome` |
| four tasks take part in a request | one future per request, one sweeper for all |
| a publish made while disconnected is sent later, after its caller gave up | refused at once |
| a reconnected client keeps pulls that the server has forgotten | a session never reconnects |
| a denied subject looks like a timeout | `Incompatible`, which names the subject |
| a message over the limit by its headers ends the connection | `TooLarge`, before it is sent |
| a flush that is given up breaks the read loop when its answer comes | it does no harm |
| a listener that raises may leave a client that is connected and deaf | the session ends |
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from nats import errors as nats_errors

from streams.errors import BadName, Incompatible, TooLarge, Unavailable, Unreachable
from streams.jetstream.connection import headers
from streams.jetstream.connection.client import BriefClient, Listener
from streams.jetstream.connection.credentials import read_credentials
from streams.jetstream.connection.nats_inbox import ReplyInbox
from streams.jetstream.connection.protocol import Received, publication
from streams.jetstream.connection.requests import Requests
from streams.jetstream.connection.settings import LinkSettings

Headers: TypeAlias = headers.Headers

PING_S: Final = 5
"""Between two pings. A server that is silent for `PINGS_MAX` of them counts as lost."""

PINGS_MAX: Final = 2

FLUSH_S_MAX: Final = 1
"""Longest that an orderly close waits for the server to have read everything."""

SUBSCRIBE_S_MAX: Final = 2
"""Longest wait, in seconds, for the server to know that somebody listens."""

DENIED_MAX: Final = 100
"""Denied subjects that a session remembers. An operator's change of permissions ends it."""

_NO_RESPONDERS: Final = "503"
_DENIED: Final = re.compile(r'permissions violation for publish to "(.+?)"')


class NobodyServes(Unavailable):
    """The server knows nobody who would answer: no stream, no consumer, or no JetStream."""


class Session:
    """One connection. Once `ended` is set it does nothing more; open another."""

    def __init__(self, settings: LinkSettings) -> None:
        self._settings = settings
        self._client = BriefClient()
        self._requests = Requests(timeout_s=settings.request_timeout_s)
        self._commands = ""
        self._denial: Incompatible | None = None
        self._denied: set[str] = set()
        self._end_callbacks: list[Callable[[], None]] = []
        self.ended = asyncio.Event()
        self.last_error = ""

    @property
    def server_version(self) -> str:
        """The server's version."""
        version = self._client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def servers(self) -> list[str]:
        """Every server of the cluster that is known by now."""
        return [server.netloc for server in self._client.discovered_servers]

    async def connect(self, servers: list[str]) -> None:
        """Connect to one of `servers`. Raises what nats-py raises."""
        settings = self._settings
        await self._client.connect(
            servers,
            name=settings.name,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            pending_size=0,
            flusher_queue_size=0,
            ping_interval=PING_S,
            max_outstanding_pings=PINGS_MAX,
            user=settings.user,
            password=settings.password,
            user_credentials=read_credentials(settings.creds) if settings.creds else None,
            inbox_prefix=settings.inbox_prefix,
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        self._commands = self._client.new_inbox()
        self._client.listen(f"{self._commands}.*", self._requests.on_answer)

    async def request(
        self, subject: str, data: bytes = b"", *, more: Headers | None = None
    ) -> Received:
        """Return the answer to one message, whose headers are `more`.

        Raises:
            TooLarge: over the server's message limit. It was not sent.
            Incompatible: this user may not publish there, or not receive the answer.
            Unavailable: not connected, or nobody serves `subject`. Nothing happened.
            UnknownOutcome: no answer in time, or the connection ended first.
        """
        token, reply = self._next_reply()
        self._put(subject, self._encode(subject, data, reply=reply, more=more))
        (msg,) = await self._requests.wait(token, subject, is_last=_whatever)
        return _served(subject, msg)

    async def request_batch(self, messages: Sequence[tuple[str, bytes, Headers]]) -> Received:
        """Send `messages`, at least one, in one write; return the answer to the last.

        Only the last asks for an answer, so what the server makes of the others must show in that
        one, as it does for an atomic batch. Each is a subject, a body and headers.

        Raises as `request` does: before anything is sent where that can be known, else the server
        may have taken none, some or all.
        """
        *others, (subject, data, more) = messages
        token, reply = self._next_reply()
        wires = [self._encode(other, body, more=its) for other, body, its in others]
        wires.append(self._encode(subject, data, reply=reply, more=more))
        self._put(subject, b"".join(wires))
        (msg,) = await self._requests.wait(token, subject, is_last=_whatever)
        return _served(subject, msg)

    async def request_all(
        self, subject: str, data: bytes, *, is_last: Callable[[Received], bool]
    ) -> list[Received]:
        """Return the answers to one message, up to the first that `is_last` accepts.

        Raises like `request`, but for `NobodyServes`: that is an answer here.
        """
        token, reply = self._next_reply()
        self._put(subject, self._encode(subject, data, reply=reply))
        return await self._requests.wait(token, subject, is_last=is_last)

    def post(
        self, subject: str, data: bytes = b"", *, reply: str = "", more: Headers | None = None
    ) -> None:
        """Send one message without waiting for anything. See `request` for what it raises."""
        self._put(subject, self._encode(subject, data, reply=reply, more=more))

    def open_inbox(self, on_message: Listener) -> ReplyInbox:
        """Return a new inbox whose messages go to `on_message`; `Unavailable` if not connected."""
        subject = f"{self._client.new_inbox()}.{self._requests.next_token()}"
        try:
            number = self._client.listen(subject, on_message)
        except nats_errors.Error as error:
            raise Unavailable("subscribing", detail="not connected") from error
        return ReplyInbox(self._client, subject, number)

    async def subscribe(self, subject: str, on_message: Listener) -> ReplyInbox:
        """Have what is published on `subject` from now on given to `on_message`.

        Raises:
            Incompatible: this user may not listen there.
            Unavailable: not connected, or the server does not answer.
        """
        try:
            inbox = ReplyInbox(self._client, subject, self._client.listen(subject, on_message))
            await self._client.flush(timeout=SUBSCRIBE_S_MAX)
        except nats_errors.Error as error:
            raise Unavailable(subject, detail=f"not subscribed: {_in_words(error)}") from error
        if f'subscription to "{subject.lower()}"' in self.last_error:
            raise Incompatible(
                f"this user may not subscribe to {subject}",
                remedy="Allow it for this user in the server's permissions.",
            )
        return inbox

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the session ends."""
        self._end_callbacks.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Undo an `on_end`."""
        if callback in self._end_callbacks:
            self._end_callbacks.remove(callback)

    async def close(self) -> None:
        """End the session after the server has read what was sent, if it still reads."""
        if self._client.is_connected:
            try:
                await self._client.flush(timeout=FLUSH_S_MAX)
            except (nats_errors.Error, OSError):
                self.last_error = "closed before everything was sent"
        await self.abandon()

    async def abandon(self) -> None:
        """End the session now."""
        await self._client.close()
        self._end()

    def _next_reply(self) -> tuple[str, str]:
        token = self._requests.next_token()
        return token, f"{self._commands}.{token}"

    def _encode(
        self, subject: str, data: bytes, *, reply: str = "", more: Headers | None = None
    ) -> bytes:
        """Return a message as it is sent; raise what is known about it before that."""
        if self._denial is not None:
            raise self._denial
        if self._denied and subject.lower() in self._denied:
            raise _denied(subject)
        block = headers.block(more) if more else b""
        size, limit = len(data) + len(block), self._client.max_payload
        if size > limit:
            raise TooLarge(subject, size_bytes=size, limit_bytes=limit)
        try:
            return publication(subject, data, reply=reply, block=block)
        except nats_errors.BadSubjectError as error:
            raise BadName(f"not a subject: {subject!r}") from error

    def _put(self, subject: str, wire: bytes) -> None:
        """Send `wire`, which is about `subject`, or raise `Unavailable`."""
        if not self._client.is_connected:
            raise Unavailable(subject, detail="not connected")
        if self._client.is_congested:
            raise Unavailable(subject, detail="the server does not read what was sent before")
        self._client.post(wire)

    async def _on_closed(self) -> None:
        self._end()

    async def _on_error(self, error: Exception) -> None:
        """Note what nats-py reports, and fail the requests that a denial is about.

        The server names the denied subject in the error's text and nowhere else, and nats-py lowers
        its case.
        """
        self.last_error = _in_words(error)
        if f'subscription to "{self._commands.lower()}.' in self.last_error:
            self._denial = Incompatible(
                f"this user may not receive answers at {self._commands}",
                remedy="Set the inbox prefix to what the user may subscribe to.",
            )
            self._requests.fail(lambda _: self._denial)
        denied = _DENIED.search(self.last_error)
        if denied is not None:
            self._note_denied(denied[1])

    def _note_denied(self, subject: str) -> None:
        """Fail the requests to `subject` (in lower case), and whatever is sent there later."""
        if len(self._denied) < DENIED_MAX:
            self._denied.add(subject)
        self._requests.fail(lambda asked: _denied(asked) if asked.lower() == subject else None)

    def _end(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        self._requests.end()
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback()


async def open_session(servers: list[str], settings: LinkSettings) -> Session:
    """Return a connected session with one of `servers`.

    Raises:
        Unreachable: none could be reached in `connect_timeout_s`, or one refused us.
    """
    session = Session(settings)
    shown = ", ".join(server.rpartition("@")[2] for server in servers)
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await session.connect(servers)
    except (nats_errors.NoServersError, TimeoutError) as error:
        detail = session.last_error or "no answer"
        await session.abandon()
        raise Unreachable(f"connecting to {shown}", detail=detail) from error
    except (nats_errors.Error, OSError, BadName) as error:
        await session.abandon()
        raise Unreachable(f"connecting to {shown}", detail=str(error)) from error
    except asyncio.CancelledError:
        await session.abandon()
        raise
    return session


def _served(subject: str, msg: Received) -> Received:
    if msg.status == _NO_RESPONDERS:
        raise NobodyServes(subject, detail="nobody answers there")
    return msg


def _in_words(error: Exception) -> str:
    match error:
        case socket.gaierror():
            return "that name of a host cannot be looked up"
        case ConnectionRefusedError():
            return "nobody listens there"
        case _:
            return str(error) or type(error).__name__


def _whatever(_: Received) -> bool:
    return True


def _denied(subject: str) -> Incompatible:
    return Incompatible(
        f"this user may not publish to {subject}",
        remedy="Allow it for this user in the server's permissions.",
    )

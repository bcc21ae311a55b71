"""One connection to the server, from its first byte to its last.

A session multiplexes every request over one inbox. It owns what nats-py leaves open:

| nats-py 2.16 | here |
| --- | --- |
| a request waits its full timeout though the connection is gone | fails at once, `UnknownOutcome` |
| one task and one timer per request | one future per request, one sweeper for all |
| a publish made while disconnected is sent later, after its caller gave up | refused at once |
| a reconnected client keeps pulls that the server has forgotten | a session never reconnects |
| a denied subject looks like a timeout | `Incompatible`, which names the subject |
| a message over the limit by its headers ends the connection | `TooLarge`, before it is sent |
| cancelled flushes break the read loop | no flush, except as the last thing a session does |
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeAlias

from nats import errors as nats_errors
from nats.aio.msg import Msg

from streams.errors import BadName, Incompatible, StreamError, TooLarge, Unavailable, UnknownOutcome
from streams.jetstream import headers
from streams.jetstream.client import BriefClient
from streams.jetstream.nats_inbox import Inbox
from streams.jetstream.settings import LinkSettings

Headers: TypeAlias = dict[str, str]

PING_S: Final = 5
"""Between two pings. A server that is silent for `PINGS_MAX` of them counts as lost."""

PINGS_MAX: Final = 2

SWEEP_S: Final = 0.05
"""Between two looks for requests that have waited too long; how late a timeout may be."""

FLUSH_S_MAX: Final = 1
"""Longest that an orderly close waits for the server to have read everything."""

DENIED_MAX: Final = 100
"""Denied subjects that a session remembers. An operator's change of permissions ends it."""

_NO_RESPONDERS: Final = "503"
_DENIED: Final = re.compile(r'permissions violation for publish to "(.+?)"')


class NobodyServes(Unavailable):
    """The server knows nobody who would answer: no stream, no consumer, or no JetStream."""


@dataclass(slots=True, eq=False)
class _Request:
    subject: str
    is_last: Callable[[Msg], bool]
    answers: list[Msg]
    done: asyncio.Future[list[Msg]]
    deadline_s: float


class Session:
    """One connection. Once `ended` is set it does nothing more; open another."""

    def __init__(self, settings: LinkSettings) -> None:
        """Prepare a session; `open_session` connects it."""
        self._settings = settings
        self._client = BriefClient()
        self._loop = asyncio.get_running_loop()
        self._tokens = count(1)
        self._inbox = ""
        self._requests: dict[str, _Request] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._denial: Incompatible | None = None
        self._denied: set[str] = set()
        self._end_callbacks: list[Callable[[], None]] = []
        self.ended = asyncio.Event()
        self.last_error = ""

    @property
    def server_version(self) -> str:
        """The server's version, as it says."""
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
            user_credentials=settings.creds,
            inbox_prefix=settings.inbox_prefix,
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._on_answer)

    async def request(self, subject: str, data: bytes = b"", *, more: Headers | None = None) -> Msg:
        """Return the answer to one message, whose headers are `more`.

        Raises:
            TooLarge: over the server's message limit. It was not sent.
            Incompatible: this user may not publish there, or not receive the answer.
            Unavailable: not connected, or nobody serves `subject`. Nothing happened.
            UnknownOutcome: no answer in time, or the connection ended first.
        """
        (msg,) = await self.request_all(subject, data, more=more, is_last=_whatever)
        if is_no_responders(msg):
            raise NobodyServes(subject, detail="nobody answers there")
        return msg

    async def request_all(
        self,
        subject: str,
        data: bytes,
        *,
        is_last: Callable[[Msg], bool],
        more: Headers | None = None,
    ) -> list[Msg]:
        """Return the answers to one message, up to the first that `is_last` accepts.

        Raises like `request`, but for `NobodyServes`: that is an answer here.
        """
        token = str(next(self._tokens))
        done: asyncio.Future[list[Msg]] = self._loop.create_future()
        await self.send(subject, data, reply=f"{self._inbox}.{token}", more=more)
        deadline_s = self._loop.time() + self._settings.request_timeout_s
        self._requests[token] = _Request(subject, is_last, [], done, deadline_s)
        self._sweep_later()
        try:
            return await done
        finally:
            self._requests.pop(token, None)

    async def send(
        self, subject: str, data: bytes = b"", *, reply: str = "", more: Headers | None = None
    ) -> None:
        """Send one message without waiting for anything. See `request` for what it raises."""
        if self._denial is not None:
            raise self._denial
        if self._denied and subject.lower() in self._denied:
            raise _denied(subject)
        size = len(data) + headers.size_bytes(more)
        if size > self._client.max_payload:
            raise TooLarge(subject, size_bytes=size, limit_bytes=self._client.max_payload)
        try:
            await self._client.publish(subject, data, reply=reply, headers=more)
        except nats_errors.BadSubjectError as error:
            raise BadName(f"not a subject: {subject!r}") from error
        except nats_errors.Error as error:
            raise Unavailable(subject, detail="not connected") from error

    async def open_inbox(self, on_message: Callable[[Msg], Awaitable[None]]) -> Inbox:
        """Return a new inbox; each message to it goes to `on_message`.

        Raises:
            Unavailable: not connected.
        """
        subject = f"{self._client.new_inbox()}.{next(self._tokens)}"
        try:
            subscription = await self._client.subscribe(subject, cb=on_message)
        except nats_errors.Error as error:
            raise Unavailable("subscribing", detail="not connected") from error
        return Inbox(subject, subscription)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the session ends."""
        self._end_callbacks.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Take back an `on_end`."""
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

    async def _on_answer(self, msg: Msg) -> None:
        request = self._requests.get(msg.subject.rpartition(".")[2])
        if request is None or request.done.done():
            return
        request.answers.append(msg)
        if request.is_last(msg):
            request.done.set_result(request.answers)

    async def _on_closed(self) -> None:
        self._end()

    async def _on_error(self, error: Exception) -> None:
        """Note what nats-py reports, and tell the requests that a denial is about.

        The server names the denied subject in the error's text and nowhere else, and
        nats-py lowers its case.
        """
        self.last_error = str(error) or type(error).__name__
        if f'subscription to "{self._inbox.lower()}.' in self.last_error:
            self._denial = Incompatible(
                f"this user may not receive answers at {self._inbox}",
                remedy="Set the inbox prefix to what the user may subscribe to.",
            )
            self._fail_all(self._denial)
        denied = _DENIED.search(self.last_error)
        if denied is not None:
            self._note_denied(denied[1])

    def _note_denied(self, subject: str) -> None:
        """Fail the requests to `subject` (in lower case), and whatever is sent there later."""
        if len(self._denied) < DENIED_MAX:
            self._denied.add(subject)
        for request in self._requests.values():
            if request.subject.lower() == subject:
                _fail(request, _denied(request.subject))

    def _end(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._fail_all(None)
        callbacks, self._end_callbacks = self._end_callbacks, []
        for callback in callbacks:
            callback()

    def _fail_all(self, error: StreamError | None) -> None:
        for request in self._requests.values():
            lost = UnknownOutcome(request.subject, detail="the connection ended before the answer")
            _fail(request, error or lost)

    def _sweep_later(self) -> None:
        if self._sweeper is None and not self.ended.is_set():
            self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Fail the requests that are due. All wait equally long, so the oldest come first."""
        self._sweeper = None
        now_s = self._loop.time()
        for request in self._requests.values():
            if request.deadline_s > now_s:
                break
            waited_s = self._settings.request_timeout_s
            _fail(request, UnknownOutcome(request.subject, detail=f"no answer for {waited_s:g} s"))
        if self._requests:
            self._sweep_later()


async def open_session(servers: list[str], settings: LinkSettings) -> Session:
    """Return a connected session with one of `servers`.

    Raises:
        Unavailable: none could be reached in `connect_timeout_s`, or one refused us.
    """
    session = Session(settings)
    shown = ", ".join(server.rpartition("@")[2] for server in servers)
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            await session.connect(servers)
    except (nats_errors.NoServersError, TimeoutError) as error:
        detail = session.last_error or "no answer"
        await session.abandon()
        raise Unavailable(f"connecting to {shown}", detail=detail) from error
    except (nats_errors.Error, OSError) as error:
        await session.abandon()
        raise Unavailable(f"connecting to {shown}", detail=str(error)) from error
    except asyncio.CancelledError:
        await session.abandon()
        raise
    return session


def is_no_responders(msg: Msg) -> bool:
    """Return whether `msg` is the server saying that nobody listens."""
    return not msg.data and (msg.headers or {}).get(headers.STATUS) == _NO_RESPONDERS


def _whatever(_: Msg) -> bool:
    return True


def _fail(request: _Request, error: StreamError) -> None:
    if not request.done.done():
        request.done.set_exception(error)


def _denied(subject: str) -> Incompatible:
    return Incompatible(
        f"this user may not publish to {subject}",
        remedy="Grant it in the server's permissions; `vigil doctor` lists what a node needs.",
    )

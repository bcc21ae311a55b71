"""`Link`: the connection for the life of a process, one session after another.

When a session ends, for whatever reason, a supervisor opens the next one, for ever. A request in
between waits for it as long as it would for its answer, and is then `Unavailable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from nats.errors import Error as NatsError
from nats.errors import NoServersError
from nats.nuid import NUID

from streams.clock import Clock, SystemClock
from streams.errors import Unavailable
from streams.jetstream.connection.credentials import read_credentials
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.protocol import Received
from streams.jetstream.connection.servers import neighbours, parse_servers
from streams.jetstream.connection.session import Session, open_session
from streams.jetstream.connection.settings import LinkSettings

T = TypeVar("T")

RECONNECT_S: Final = 0.2
"""Between two attempts to connect."""

ASKS_MAX: Final = 3
"""How often a question is put before it is `Unavailable`. A restart of the server takes 0.1 to 2 s,
so the second one usually gets its answer."""


class Link:
    """A connection that comes back by itself. Enter to connect, leave to close."""

    def __init__(self, url: str, settings: LinkSettings, clock: Clock | None = None) -> None:
        """Describe a link to the servers in `url`, separated by commas; may raise `BadName`."""
        self.settings = settings
        self.clock = clock or SystemClock()
        self._servers = parse_servers(url)
        self._names = NUID()
        self._session: Session | None = None
        self._up = asyncio.Event()
        self._newest: dict[str, int] = {}
        self.misses_stream = asyncio.Event()
        """Set whenever a server has no stream, or another one, of a name that was asked for."""
        self._supervisor: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Connect for the first time.

        Raises:
            BadName: there are no credentials at the settings' path.
            Incompatible: there are, and nothing here can sign with them.
            Unavailable: nobody could be reached in `first_tries_s`, or we were refused.
        """
        if self.settings.creds:
            read_credentials(self.settings.creds)
        session = self._take(await self._open_first())
        self._supervisor = asyncio.create_task(self._supervise(session), name="jetstream-link")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
        if self._session is not None:
            await self._session.close()
        self._up.set()  # Nobody waits for a session that will never come.

    @property
    def session(self) -> Session:
        """The session that is open now. Raises `Unavailable` when none is."""
        if self._session is None or self._session.ended.is_set():
            raise Unavailable("NATS", detail="not connected")
        return self._session

    def unique(self) -> str:
        """Return a name that nobody used before."""
        return self._names.next().decode()

    def note_newest(self, stream: str, seq: int) -> None:
        """Note that a message of `stream` was acknowledged or delivered here."""
        if seq > self._newest.get(stream, 0):
            self._newest[stream] = seq

    def newest(self, stream: str) -> int:
        """Return the newest message of `stream` that was noted, or 0."""
        return self._newest.get(stream, 0)

    async def request(
        self, subject: str, data: bytes = b"", *, more: Headers | None = None
    ) -> Received:
        """Send one message once and return its answer; raises like `Session.request`."""
        session = await self._next_session()
        return await session.request(subject, data, more=more)

    async def request_batch(self, messages: Sequence[tuple[str, bytes, Headers]]) -> Received:
        """Send `messages` once, as `Session.request_batch` does, and raise like it."""
        session = await self._next_session()
        return await session.request_batch(messages)

    async def ask(self, subject: str, data: bytes = b"", *, asks_max: int = ASKS_MAX) -> Received:
        """Return the answer to a question, which may be put again as often as one likes.

        Raises:
            NobodyServes: there is nobody to answer, each time.
            Unavailable: no answer, `asks_max` times.
        """

        async def once(session: Session) -> Received:
            return await session.request(subject, data)

        return await self.ask_with(once, asks_max=asks_max)

    async def ask_with(
        self, once: Callable[[Session], Awaitable[T]], *, asks_max: int = ASKS_MAX
    ) -> T:
        """Return what `once` returns, on the session of the moment, as in `ask`."""
        for attempt in range(1, asks_max):
            try:
                return await once(await self._next_session())
            except Unavailable:
                await self.clock.sleep(RECONNECT_S * attempt)
        return await once(await self._next_session())

    def post(self, subject: str, data: bytes) -> None:
        """Send one message if a session is open; otherwise, or if it is lost, nothing happens."""
        try:
            self.session.post(subject, data)
        except Unavailable:
            return

    async def _next_session(self) -> Session:
        if not self._up.is_set():
            await wait_set(self._up, timeout_s=self.settings.request_timeout_s)
        return self.session

    async def _open_first(self) -> Session:
        """Return the first session; a server that is just starting gets time to listen."""
        deadline_s = self.clock.monotonic_s() + self.settings.first_tries_s
        while True:
            try:
                return await open_session(self._servers, self.settings)
            except Unavailable as error:
                if _is_refusal(error) or self.clock.monotonic_s() + RECONNECT_S > deadline_s:
                    raise
            await self.clock.sleep(RECONNECT_S)

    async def _supervise(self, session: Session) -> None:
        # A cancellation may be lost as one is connecting: `asyncio.wait_for` of Python 3.11 returns
        # or raises what it waited for instead, if that ends in the same turn of the loop.
        while not self._is_closed:
            await session.ended.wait()
            others = neighbours(self._servers[0], session.servers)  # guard: neighbours-know-us
            session = self._take(await self._open_next([*self._servers, *others]))

    async def _open_next(self, servers: list[str]) -> Session:
        while True:
            try:
                return await open_session(servers, self.settings)
            except Unavailable as error:
                if self._is_closed:  # guard: closed-link-opens-none
                    raise asyncio.CancelledError from error
                await self.clock.sleep(RECONNECT_S)

    def _take(self, session: Session) -> Session:
        self._session = session
        self._up.set()
        session.on_end(self._up.clear)
        return session


def _is_refusal(error: Unavailable) -> bool:
    """Return whether a server answered and sent us away, so that trying again is no use."""
    cause = error.__cause__
    return isinstance(cause, NatsError) and not isinstance(cause, NoServersError)


async def wait_set(event: asyncio.Event, *, timeout_s: float) -> None:
    """Wait until `event` is set, for at most `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return

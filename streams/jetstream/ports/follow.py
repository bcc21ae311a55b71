"""Reads one stream in order, without gaps or repeats.

The server side is a short-lived consumer without acknowledgements; the position is ours. After any
doubt (a gap in the consumer's numbering, a lost connection, a missing heartbeat, a consumer that is
gone) it is replaced by one that starts just past the last message, if the stream is still the same
and reaches that far: a sequence of one stream means nothing in another. Two pulls are outstanding,
so the server always has one to fill. Measured: 113,000 messages of 250 bytes per second.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, Generic, Self, TypeVar

import msgspec

from streams.errors import StreamError, Unavailable
from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.link import Link, wait_set
from streams.jetstream.connection.nats_inbox import ReplyInbox
from streams.jetstream.connection.protocol import Received
from streams.jetstream.messages import api, stored
from streams.jetstream.messages.arrival import Arrival, arrival
from streams.jetstream.ports.configs import NS_PER_S
from streams.json import JsonObject

T = TypeVar("T")

PULL_MESSAGES: Final = 500
PULLS_MAX: Final = 2
"""Two pulls of 500 outstanding keep one Python process busy (measured)."""

PULL_BYTES_MAX: Final = 16 * 1024 * 1024
"""Most that one pull may bring: bounds memory when messages are near the 1 MiB limit."""

PULL_S: Final = 30
"""Life of a pull that finds nothing."""

SILENT_BEATS_MAX: Final = 2.5
"""Without a message or a heartbeat for as long as so many beats, the pull counts as lost."""

IDLE_S_MAX: Final = 60
"""How long the server keeps a consumer that nobody pulls from."""

RETRY_S: Final = 0.2
"""Between two attempts to get a consumer."""

_HEARTBEAT: Final = "100"


class OrderedReader(Generic[T]):
    """A position in a stream, which only `receive` moves. Leaving its context stops reading."""

    def __init__(
        self,
        link: Link,
        stream: str,
        decode: Callable[[Arrival], T],
        *,
        after: int,
        filters: Sequence[str] = (),
    ) -> None:
        """Start just past sequence `after`; the server is first asked by `receive`.

        It sends what is on a subject that one of `filters` covers, of which no two overlap; without
        filters, everything.
        """
        self._link = link
        self._stream = stream
        self._decode = decode
        self._filters = filters
        self._arrived_seq = after
        self._created = ""
        self._waiting: deque[Arrival] = deque()
        self._changed = asyncio.Event()
        self._feed: _Feed | None = None
        self._silence_s_max = SILENT_BEATS_MAX * link.settings.heartbeat_s
        self.pending = 0
        """What the stream held beyond the last message returned, when it was sent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def receive(self, *, most: int, wait_s: float) -> Sequence[T]:
        """Return the next messages, decoded: up to `most`, none after `wait_s` of silence.

        An error of `decode` is raised once everything before that message was returned; the
        position stays before it. `Unavailable`: the stream was made anew, or ends before us.
        """
        await self._wait(wait_s)
        taken: list[T] = []
        while self._waiting and len(taken) < most:
            try:
                taken.append(self._decode(self._waiting[0]))
            except StreamError:
                if taken:
                    break
                raise
            self.pending = self._waiting.popleft().pending
        if self._feed is not None:
            await self._feed.top_up(waiting=len(self._waiting))
        return taken

    async def close(self) -> None:
        """Stop reading."""
        if self._feed is not None:
            await self._feed.close()

    async def _wait(self, wait_s: float) -> None:
        """Wait until a message is there, for `wait_s` plus at most one unanswered request."""
        clock = self._link.clock
        deadline_s = clock.monotonic_s() + wait_s
        while not self._waiting:
            self._changed.clear()
            is_fed = await self._feed_well()
            left_s = deadline_s - clock.monotonic_s()
            if self._waiting or left_s <= 0:
                return
            if is_fed:
                await wait_set(self._changed, timeout_s=min(left_s, self._silence_s_max))
            else:
                await clock.sleep(min(left_s, RETRY_S))

    async def _feed_well(self) -> bool:
        """Return whether a feed that is beyond doubt has pulls outstanding."""
        if self._feed is not None and not self._feed.is_doubtful():
            return await self._feed.top_up(waiting=len(self._waiting))
        await self.close()
        try:
            extent = await stored.extent(self._link, self._stream)
        except Unavailable:
            return False
        self._check(extent)
        try:
            self._feed = _Feed(self._link, self._stream, self._take, self._changed.set)
            await self._feed.open(after=self._arrived_seq, filters=self._filters)
        except (Unavailable, api.RequestRefused):
            return False
        return await self._feed.top_up(waiting=0)

    def _check(self, found: stored.Extent) -> None:
        """Raise `Unavailable` unless `found` is the stream that we read, and holds all we read."""
        self._created = self._created or found.created
        if found.created != self._created:
            raise Unavailable(self._stream, detail="it was made anew while it was followed")
        if found.newest_seq < self._arrived_seq:
            detail = f"it ends at {found.newest_seq}, and was followed up to {self._arrived_seq}"
            raise Unavailable(self._stream, detail=detail)

    def _take(self, arrived: Arrival) -> None:
        self._arrived_seq = arrived.seq
        self._waiting.append(arrived)


class _Feed:
    """One consumer on the server and the inbox it delivers to, until doubt ends it."""

    def __init__(
        self,
        link: Link,
        stream: str,
        on_arrival: Callable[[Arrival], None],
        on_change: Callable[[], None],
    ) -> None:
        self._link = link
        self._session = link.session
        self._stream = stream
        self._consumer = f"reader-{link.unique()}"
        self._on_arrival = on_arrival
        self._on_change = on_change
        self._commands: ReplyInbox | None = None
        self._silence_s_max = SILENT_BEATS_MAX * link.settings.heartbeat_s
        self._pull_request = _pull_request(link.settings.heartbeat_s)
        self._arrived = 0
        self._asked = 0
        self._heard_s = link.clock.monotonic_s()
        self._is_broken = False

    async def open(self, *, after: int, filters: Sequence[str]) -> None:
        self._commands = self._session.open_inbox(self._on_message)
        self._session.on_end(self._on_change)
        name = f"{self._stream}.{self._consumer}"
        await api.call(
            self._link, f"CONSUMER.CREATE.{name}", self._config(after, filters), asks_max=1
        )

    async def close(self) -> None:
        """Forget the consumer, here and on the server."""
        self._is_broken = True
        self._session.forget(self._on_change)
        if self._commands is not None:
            await self._commands.close()
        consumer = f"{self._stream}.{self._consumer}"
        self._link.post(self._link.settings.api(f"CONSUMER.DELETE.{consumer}"), b"")

    def is_doubtful(self) -> bool:
        silence_s = self._link.clock.monotonic_s() - self._heard_s
        is_silent = self._asked > 0 and silence_s > self._silence_s_max
        return self._is_broken or is_silent or self._session.ended.is_set()

    async def top_up(self, *, waiting: int) -> bool:
        """Keep the pulls outstanding that `waiting` leaves room for; return whether that worked."""
        while self._asked + waiting <= (PULLS_MAX - 1) * PULL_MESSAGES:
            if not await self._pull():
                return False
        return True

    async def _pull(self) -> bool:
        if self._commands is None or self.is_doubtful():
            return False
        next_one = f"CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        subject = self._link.settings.api(next_one)
        try:
            self._session.post(subject, self._pull_request, reply=self._commands.subject)
        except Unavailable:
            return False
        self._asked += PULL_MESSAGES
        self._heard_s = self._link.clock.monotonic_s()
        return True

    def _on_message(self, msg: Received) -> None:
        if self._is_broken:
            return
        self._heard_s = self._link.clock.monotonic_s()
        if msg.status:
            self._on_status(msg.status, msg.headers)
        else:
            self._on_delivery(arrival(msg))
        self._on_change()

    def _on_delivery(self, arrived: Arrival) -> None:
        self._asked -= 1
        self._arrived += 1
        if arrived.consumer_seq == self._arrived:
            self._on_arrival(arrived)
        else:
            self._is_broken = True

    def _on_status(self, status: str, given: Headers) -> None:
        """Take note of a heartbeat or of a pull's end; anything else is the consumer's end."""
        if status == _HEARTBEAT:
            self._is_broken = given.get(headers.LAST_CONSUMER) != str(self._arrived)
        elif headers.PULL_LEFT in given:
            self._asked -= int(given[headers.PULL_LEFT])
        else:
            self._is_broken = True

    def _config(self, after: int, filters: Sequence[str]) -> JsonObject:
        config = {
            "name": self._consumer,
            "filter_subjects": list(filters),
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": after + 1,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": IDLE_S_MAX * NS_PER_S,
        }
        return {"stream_name": self._stream, "config": config}


@cache
def _pull_request(heartbeat_s: int) -> bytes:
    request = {
        "batch": PULL_MESSAGES,
        "max_bytes": PULL_BYTES_MAX,
        "expires": PULL_S * NS_PER_S,
        "idle_heartbeat": heartbeat_s * NS_PER_S,
    }
    return msgspec.json.encode(request)

"""Pulls deliveries from a shared durable consumer, never more than there is room for.

A pull names how many deliveries may come, and the server sends each as soon as it has it. So one
pull serves many receives; what arrives while the caller works waits here, at most the room that the
last `receive` left. No pull outlives the wait of its `receive`, and a `receive` that filled its
room leaves none. A caller whose room is taken otherwise calls `pause`: it leaves the inbox of the
pull, which makes the server forget it, and what waits or still arrives is handed back. `close` does
the same for good.

| failure | what happens |
| --- | --- |
| the connection ends | the pull is sent again on the next session |
| the server forgets the pull | no heartbeat for `SILENT_BEATS_MAX` beats: it is sent again |
| the consumer is deleted | it is made again, from the oldest delivery not yet answered |
| its whole stream is | the same, once there is a stream of that name again: from its beginning |
| that was a stream of others | `receive` raises: whoever reads it opens it again |
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from streams.errors import NoSuchStream, StreamError, Unavailable
from streams.jetstream.connection import headers
from streams.jetstream.connection.headers import Headers
from streams.jetstream.connection.link import Link, wait_set
from streams.jetstream.connection.nats_inbox import ReplyInbox
from streams.jetstream.connection.protocol import Received
from streams.jetstream.connection.session import Session
from streams.jetstream.messages.arrival import Arrival, arrival
from streams.jetstream.ports.configs import NS_PER_S
from streams.jetstream.ports.consumer import UNANSWERED_MAX, DurableConsumer
from streams.jetstream.ports.follow import SILENT_BEATS_MAX
from streams.json import JsonObject
from streams.ports.delivery import Delivery, QueuePosition
from streams.wire.messages import TRACE_HEADER

T = TypeVar("T")

PULL_S_MAX: Final = 30.0
"""Longest life of one pull; a longer wait sends several."""

PULL_S_MIN: Final = 0.01
"""Shortest life of a pull: a wait of zero still asks once."""

GRACE_S: Final = 0.25
"""How much longer than the server we wait for a pull's end, which it sends in time."""

RETRY_S: Final = 0.2
"""Between two attempts to pull when something is wrong. A consumer that is made again while the
server still clears away one of that name cannot be changed any more (seen with 2.15)."""

UNWATCHED_S: Final = 0.1
"""From this time without a pull on, a stream of others is looked at before the next one: with a
pull, the server tells when it is deleted."""

_encoder = msgspec.json.Encoder()

_HEARTBEAT: Final = "100"
_EXPIRED: Final = "408"


class JetStreamDelivery(Generic[T]):
    """One message, and the subject where we answer for it."""

    def __init__(self, source: JetStreamSource[T], arrived: Arrival, content: T) -> None:
        self._source = source
        self._arrived = arrived
        self.content = content

    @property
    def seq(self) -> int:
        """See `Delivery.seq`."""
        return self._arrived.seq

    @property
    def deliveries(self) -> int:
        """See `Delivery.deliveries`."""
        return self._arrived.deliveries

    @property
    def nth(self) -> int:
        """See `Delivery.nth`."""
        return self._arrived.consumer_seq

    @property
    def at(self) -> datetime:
        """See `Delivery.at`."""
        return self._arrived.at

    @property
    def trace(self) -> str:
        """See `Delivery.trace`."""
        return self._arrived.headers.get(TRACE_HEADER, "")

    async def ack(self) -> None:
        """See `Delivery.ack`."""
        await self._source.answer(self._arrived, b"+ACK", is_final=True)

    async def nak(self, *, delay_s: float = 0.0) -> None:
        """See `Delivery.nak`."""
        await self._source.answer(self._arrived, nak(delay_s), is_final=False)

    async def term(self, reason: str) -> None:
        """See `Delivery.term`."""
        await self._source.answer(self._arrived, f"+TERM {reason}".encode(), is_final=True)


class JetStreamSource(Generic[T]):
    """`OrderedSource` on one durable consumer."""

    def __init__(
        self,
        link: Link,
        consumer: DurableConsumer,
        parse: Callable[[Arrival], T],
        *,
        after: int = 0,
    ) -> None:
        """Pull through `link`; `parse` makes each message's content and never raises.

        Up to sequence `after` everything is acknowledged: should the consumer be deleted before it
        has sent us anything, it is made again from there.
        """
        self._link = link
        self._consumer = consumer
        self._parse = parse
        self._session: Session | None = None
        self._commands: ReplyInbox | None = None
        self._waiting: deque[Arrival] = deque()
        self._changed = asyncio.Event()
        self._asked = 0
        self._pull_ends_s = 0.0
        self._heard_s = 0.0
        self._is_doubtful = False
        self._is_paused = False
        self._is_closed = False
        self._is_gone = False
        """Whether the stream was deleted. One of its name has other messages of these sequences."""
        self._unanswered: dict[int, str] = {}
        """Sequence → where to answer."""
        self._newest_seq = after  # guard: untouched-queue-resumes-in-place
        self.pending = 0
        """See `Source.pending`."""

    async def receive(
        self, *, room: int, wait_s: float, check: Callable[[], None] | None = None
    ) -> Sequence[Delivery[T]]:
        """See `OrderedSource.receive`."""
        clock = self._link.clock
        await self._resume()
        deadline_s = clock.monotonic_s() + wait_s
        left_s = max(wait_s, PULL_S_MIN)
        while not self._waiting and left_s > 0 and not self._is_closed:
            if check is not None:  # guard: receive-checks-before-asking
                check()
            is_pulling = await self._pull(room, left_s)
            if is_pulling:
                await self._wait_news(left_s + GRACE_S)
            if not self._waiting and (self._is_doubtful or not is_pulling):
                await clock.sleep(min(left_s, RETRY_S))
            left_s = deadline_s - clock.monotonic_s()
        return [self._hand_out() for _ in range(min(room, len(self._waiting)))]

    async def position(self) -> QueuePosition:
        """See `OrderedSource.position`."""
        return await self._consumer.position(self._link)

    async def pause(self) -> None:
        """See `Source.pause`. Cancelled, it goes on with the next `receive` or `pause`."""
        self._is_paused = True
        while self._waiting:  # guard: pause-hands-back-arrived
            self._link.post(self._waiting.popleft().reply, nak(0.0))
        if self._commands is not None and self._asked:  # guard: pause-takes-requests-back
            await self._commands.drain()
            self._commands, self._asked = None, 0

    async def hand_back(self, *, is_whole: bool = True) -> bool:
        """See `Source.hand_back`."""
        await self._resume()
        if self._commands is not None:
            # What still arrives waits: handed back now, it would come again before what is older.
            await self._commands.drain()  # guard: arriving-behind-older
            self._commands, self._asked = None, 0
        unanswered = self._unanswered | {each.seq: each.reply for each in self._waiting}
        self._waiting.clear()
        self._unanswered.clear()
        if not is_whole or not self._is_same_session():  # guard: lossy-rest-not-handed-back
            return False
        for _, reply in sorted(unanswered.items()):  # guard: hand-back-in-order
            self._link.post(reply, nak(0.0))
        return not unanswered or await self._has_told()

    async def close(self) -> None:
        """See `Source.close`. Cancelled, it may be called again, and goes on."""
        self._is_closed = True
        self._changed.set()
        if self._session is not None:
            self._session.forget(self._changed.set)
        await self.pause()
        if self._commands is not None:
            self._commands.close()
            self._commands = None

    async def answer(self, arrived: Arrival, verb: bytes, *, is_final: bool) -> None:
        """Answer a delivery; unless the answer is final, the message comes again."""
        if self._is_gone:  # guard: gone-stream-not-acknowledged
            return
        if is_final:
            self._unanswered.pop(arrived.seq, None)
        self._link.post(arrived.reply, verb)

    async def _resume(self) -> None:
        if self._is_paused:
            await self.pause()  # guard: cancelled-pause-finished-first
            self._is_paused = self._is_closed

    async def _has_told(self) -> bool:
        """Return whether the server has all that was said on the session of the last pull."""
        with suppress(StreamError):
            await self._consumer.backlog(self._link)
            return self._is_same_session()
        return False

    def _is_same_session(self) -> bool:
        """Return whether nothing can have been lost since the last pull."""
        with suppress(Unavailable):
            return self._session is None or self._link.session is self._session
        return False

    def _hand_out(self) -> JetStreamDelivery[T]:
        arrived = self._waiting.popleft()
        self._unanswered[arrived.seq] = arrived.reply
        if len(self._unanswered) > UNANSWERED_MAX:
            del self._unanswered[min(self._unanswered)]
        self._newest_seq = max(self._newest_seq, arrived.seq)
        self.pending = arrived.pending
        return JetStreamDelivery(self, arrived, self._parse(arrived))

    async def _pull(self, room: int, left_s: float) -> bool:
        """Return whether a pull is outstanding, after asking for what `room` still leaves.

        Not for every single delivery: only once at least half of the room is not asked for.
        """
        try:
            session, commands = await self._ready()
            if 2 * self._asked <= room and not self._is_closed:
                self._send_pull(session, commands, room - self._asked, min(left_s, PULL_S_MAX))
        except NoSuchStream:
            self._is_gone = True
            self._waiting.clear()
            self._unanswered.clear()
            raise
        except Unavailable:
            return False
        return True

    async def _ready(self) -> tuple[Session, ReplyInbox]:
        """Return the session and our inbox on it, with the consumer beyond doubt."""
        if self._is_doubtful or self._is_unwatched():  # guard: idle-reader-of-remade-told
            resume_seq = min(self._unanswered, default=self._newest_seq + 1)
            await self._consumer.ensure(self._link, resume_seq=resume_seq)
            self._is_doubtful = False
        session = self._link.session
        if session is not self._session:
            self._commands, self._asked = None, 0
            self._session = session
            session.on_end(self._changed.set)
        if self._commands is None:
            self._commands = session.open_inbox(self._on_message)
        return session, self._commands

    def _is_unwatched(self) -> bool:
        """Return whether the stream may have been made anew without the server telling us."""
        unheard_s = self._link.clock.monotonic_s() - self._heard_s
        has_pull = self._asked > 0 and self._is_same_session()
        return self._consumer.is_of_others and not has_pull and unheard_s > UNWATCHED_S

    def _send_pull(
        self, session: Session, commands: ReplyInbox, most: int, expires_s: float
    ) -> None:
        next_one = f"CONSUMER.MSG.NEXT.{self._consumer.stream}.{self._consumer.name}"
        subject = self._link.settings.api(next_one)
        beat_s = self._link.settings.heartbeat_s
        session.post(subject, _pull_request(most, expires_s, beat_s), reply=commands.subject)
        self._asked += most
        self._heard_s = self._link.clock.monotonic_s()
        self._pull_ends_s = self._heard_s + expires_s + GRACE_S

    async def _wait_news(self, timeout_s: float) -> None:
        """Wait until a delivery is there or no pull is, for at most `timeout_s`."""
        clock = self._link.clock
        now_s = clock.monotonic_s()
        until_s = now_s + timeout_s
        while self._is_awaited() and now_s < until_s:
            self._changed.clear()
            look_s = max(self._lost_s() - now_s, PULL_S_MIN)
            await wait_set(self._changed, timeout_s=min(until_s - now_s, look_s))
            now_s = clock.monotonic_s()
            if self._session is None or self._session.ended.is_set() or now_s > self._lost_s():
                self._asked = 0

    def _is_awaited(self) -> bool:
        return self._asked > 0 and not self._waiting and not self._is_closed

    def _lost_s(self) -> float:
        return min(
            self._pull_ends_s, self._heard_s + SILENT_BEATS_MAX * self._link.settings.heartbeat_s
        )

    def _on_message(self, msg: Received) -> None:
        self._heard_s = self._link.clock.monotonic_s()
        if self._is_paused:  # guard: pause-hands-back-in-flight
            if not msg.status:
                self._link.post(msg.reply, nak(0.0))
        elif msg.status:
            self._on_status(msg.status, msg.headers)
        else:
            self._asked = max(0, self._asked - 1)
            self._waiting.append(arrival(msg))
            self._changed.set()

    def _on_status(self, status: str, given: Headers) -> None:
        """Take note of a heartbeat or a pull's end; anything else casts doubt."""
        if status == _HEARTBEAT:
            return
        left = given.get(headers.PULL_LEFT) if status == _EXPIRED else None
        self._asked = max(0, self._asked - int(left)) if left else 0
        if left is None:
            self._is_doubtful = True
        elif not self._waiting:
            self.pending = 0
        if not self._asked:
            self._changed.set()


def nak(delay_s: float) -> bytes:
    """Return the answer that hands a message back, to come again after `delay_s`."""
    return b'-NAK {"delay": %d}' % round(delay_s * NS_PER_S) if delay_s else b"-NAK"


def _pull_request(most: int, expires_s: float, beat_s: int) -> bytes:
    request: JsonObject = {"batch": most, "expires": round(expires_s * NS_PER_S)}
    if expires_s >= 2 * beat_s:  # The server wants two beats in a pull's life.
        request["idle_heartbeat"] = beat_s * NS_PER_S
    return _encoder.encode(request)

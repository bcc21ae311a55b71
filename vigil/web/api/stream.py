"""`GET /events/stream`: domain events as server-sent events, for programs.

    id: 42                                     the sequence; `Last-Event-ID` goes on after it
    event: event
    data: {"id": …, "name": …, "payload": …, "seq": 42, "at": …}

A comment comes every `HEARTBEAT_S` seconds in which there is nothing else. What ends a stream is
told in a last event `end`, whose data is a problem (`vigil/web/api/problems.py`): events that were
removed before they were read, or a server that is away.

Events wait for a reader in a queue of `QUEUE_MAX`, and those behind them in the log, so that a slow
one harms nobody and misses nothing. One that takes nothing at all for `STALLED_S` seconds is cut
off, as nothing more can be told to it: `Last-Event-ID` has it go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from vigil.client.types import DomainEvent
from vigil.errors import VigilError
from vigil.web.api.answer import carry_out, client_of, identity_of, or_problem, require
from vigil.web.api.asking import asked_of
from vigil.web.api.operation import AnyOperation
from vigil.web.api.operations.events import FollowEvents, StreamedEvent
from vigil.web.api.problems import (
    HEADERS,
    INTERNAL,
    MISTAKE,
    TOO_MANY_STREAMS,
    UNEXPECTED,
    ProblemRaised,
    refusal_of,
)

MEDIA_TYPE: Final = "text/event-stream"

STREAMS_MAX: Final = 32
"""Most streams that a process has open: each looks at the log five times a second."""

QUEUE_MAX: Final = 256
"""Most events that wait for a reader."""

HEARTBEAT_S: Final = 10.0
"""Longest silence, in seconds: proxies and readers take a longer one for a broken connection."""

STALLED_S: Final = 30.0
"""How long a reader may take nothing, in seconds."""

RETRY_S: Final = 5
"""When to come again if there are too many streams, in seconds."""

LAST_EVENT_ID: Final = "last-event-id"

SEQ_DIGITS_MAX: Final = 18

HEARTBEAT: Final = b": heartbeat\n\n"


@dataclass
class Streams:
    """The streams that a process has open."""

    heartbeat_s: float = HEARTBEAT_S
    stalled_s: float = STALLED_S
    streams_max: int = STREAMS_MAX
    open: int = 0

    async def answer(
        self, operation: AnyOperation, request: Request, path: Mapping[str, str]
    ) -> Response:
        """Return the stream that a request asks for."""
        return await or_problem(self._opened(operation, request, path))

    async def _opened(
        self, operation: AnyOperation, request: Request, path: Mapping[str, str]
    ) -> Response:
        identity = identity_of(request)
        require(operation, identity)
        asked = await asked_of(operation, request, path)
        assert isinstance(asked, FollowEvents)
        asked = going_on(asked, request.headers.get(LAST_EVENT_ID))
        events = await carry_out(operation, client_of(request), asked, identity)
        assert isinstance(events, AsyncGenerator)
        if self.open >= self.streams_max:  # guard: streams-are-counted
            raise ProblemRaised(
                TOO_MANY_STREAMS,
                f"{self.open} streams are open, the limit of a process",
                headers={"retry-after": str(RETRY_S)},
            )
        self.open += 1
        return EventStream(self, events)


def going_on(asked: FollowEvents, last_id: str | None) -> FollowEvents:
    """Return what is asked by a reader that has read up to `last_id`, a sequence."""
    if last_id is None:
        return asked
    if not (last_id.isascii() and last_id.isdigit() and len(last_id) <= SEQ_DIGITS_MAX):
        says = f"{LAST_EVENT_ID}: {last_id[:40]!r} is no sequence"
        raise ProblemRaised(MISTAKE, says, field=LAST_EVENT_ID)
    # guard: stream-goes-on-where-ended
    return msgspec.structs.replace(asked, after=int(last_id), since=None)


class EventStream(Response):
    """An answer that goes on until its reader leaves, or it is cut off."""

    def __init__(self, streams: Streams, events: AsyncGenerator[DomainEvent]) -> None:
        super().__init__(headers={**HEADERS, "x-accel-buffering": "no"}, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._streams, self._events = streams, events
        self._queue = asyncio.Queue[bytes](QUEUE_MAX)
        self._woken = asyncio.Event()
        self._last: bytes | None = None
        self._is_left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the reader leaves or takes nothing more."""
        self._is_left = scope["method"] == "HEAD"
        beside = [
            asyncio.create_task(self._fill(), name="fill an event stream"),
            asyncio.create_task(self._leave(receive), name="watch an event stream"),
        ]
        try:
            await self._send(send)
        except TimeoutError:
            return  # Nothing can be told to who takes nothing: the connection is cut off.
        finally:
            for each in beside:
                each.cancel()
            await asyncio.wait(beside)
            self._streams.open -= 1
        if not (filling := beside[0]).cancelled():
            filling.result()

    async def _fill(self) -> None:
        """Put events into the queue, and at the end say why it is the end."""
        problem = ProblemRaised(INTERNAL, UNEXPECTED).problem
        try:
            async with aclosing(self._events) as events:
                async for event in events:
                    await self._queue.put(as_text(event))
                    self._woken.set()
        except VigilError as error:
            problem = refusal_of(error).problem
        finally:
            self._last = text_of("end", problem)
            self._woken.set()

    async def _leave(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_left = True
        self._woken.set()

    async def _send(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._sent(send, head)
        while not self._is_left:
            self._woken.clear()
            while not self._queue.empty():
                await self._sent(send, _part(self._queue.get_nowait()))
            if self._last is not None:
                await self._sent(send, _part(self._last, is_last=True))
                return
            try:
                await asyncio.wait_for(self._woken.wait(), self._streams.heartbeat_s)
            except TimeoutError:
                await self._sent(send, _part(HEARTBEAT))

    async def _sent(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._streams.stalled_s):  # guard: stalled-reader-cut-off
            await send(message)


def _part(text: bytes, *, is_last: bool = False) -> Message:
    return {"type": "http.response.body", "body": text, "more_body": not is_last}


def as_text(event: DomainEvent) -> bytes:
    """Return an event as it is sent."""
    said = StreamedEvent(
        id=event.id, name=event.name, payload=event.payload, seq=event.seq, at=event.at
    )
    return b"id: %d\n%b" % (event.seq, text_of("event", said))


def text_of(kind: str, data: msgspec.Struct) -> bytes:
    """Return a server-sent event; JSON has no line breaks of its own."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))

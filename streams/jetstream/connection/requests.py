"""Requests that wait for their answers: one future each, and one timer for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from streams.errors import StreamError, UnknownOutcome
from streams.jetstream.connection.protocol import Received

SWEEP_S: Final = 0.05
"""Least between two looks for requests that have waited too long; how late a timeout may be."""


@dataclass(slots=True, eq=False)
class _Request:
    subject: str
    is_last: Callable[[Received], bool]
    answers: list[Received]
    done: asyncio.Future[list[Received]]
    deadline_s: float


class Requests:
    """A session's unanswered requests, each with `timeout_s` seconds."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._tokens = count(1)
        self._waiting: dict[str, _Request] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def next_token(self) -> str:
        """Return the last token of the next request's reply subject."""
        return str(next(self._tokens))

    async def wait(
        self, token: str, subject: str, *, is_last: Callable[[Received], bool]
    ) -> list[Received]:
        """Return the answers to what was just sent to `subject`, up to one that `is_last` accepts.

        Raises:
            UnknownOutcome: there was none in time, or there will be none.
        """
        done: asyncio.Future[list[Received]] = self._loop.create_future()
        deadline_s = self._loop.time() + self._timeout_s
        self._waiting[token] = _Request(subject, is_last, [], done, deadline_s)
        if self._sweeper is None:
            self._sweep_later()
        try:
            return await done
        finally:
            self._waiting.pop(token, None)

    def on_answer(self, msg: Received) -> None:
        """Give `msg` to the request that it answers, if that still waits."""
        request = self._waiting.get(msg.subject.rpartition(".")[2])
        if request is None or request.done.done():
            return
        request.answers.append(msg)
        if request.is_last(msg):
            request.done.set_result(request.answers)

    def fail(self, error_of: Callable[[str], StreamError | None]) -> None:
        """Fail the requests to whose subject `error_of` has an error."""
        for request in self._waiting.values():
            error = error_of(request.subject)
            if error is not None:
                _fail(request, error)

    def end(self) -> None:
        """Fail all: there will be no answers any more."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.fail(_lost)

    def _sweep_later(self) -> None:
        oldest = next(iter(self._waiting.values()), None)
        if oldest is not None:
            soonest_s = self._loop.time() + SWEEP_S
            self._sweeper = self._loop.call_at(max(oldest.deadline_s, soonest_s), self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        now_s = self._loop.time()
        for request in self._waiting.values():
            if request.deadline_s > now_s:
                break
            detail = f"no answer for {self._timeout_s:g} s"
            _fail(request, UnknownOutcome(request.subject, detail=detail))
        self._sweep_later()


def _fail(request: _Request, error: StreamError) -> None:
    if not request.done.done():
        request.done.set_exception(error)


def _lost(subject: str) -> StreamError:
    return UnknownOutcome(subject, detail="the connection ended before the answer")

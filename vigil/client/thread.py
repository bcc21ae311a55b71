"""`LoopThread`: runs the calls of a client on an event loop of its own, in a thread.

Its thread lives as long as the client. A call that is interrupted is canceled, and has ended before
the interruption goes on; so have all calls of other threads before the client is closed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future, wait
from threading import Thread
from typing import Any, Final, TypeVar

from vigil.errors import Mistake, Trouble

T = TypeVar("T")

END_S_MAX: Final = 10.0
"""Longest wait for what was canceled, and for the thread, to end, in seconds."""

CLOSED: Final = "this client is closed; make another one"


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        """Start the thread."""
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="vigil-client", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether nothing can be run any more."""
        return self._loop.is_closed()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what `call` returns.

        Raises:
            Mistake: the client is closed, or this is another process, or the thread of its own.
            Trouble: the client was closed meanwhile.
        """
        if problem := self._problem():
            call.close()
            raise Mistake(problem)
        done = Future[T]()
        task: asyncio.Task[T] | None = None

        def begin() -> None:
            nonlocal task
            task = self._loop.create_task(call)
            task.add_done_callback(lambda ended: _pass_on(ended, done))

        def end() -> None:
            if task is not None:
                task.cancel()
            else:  # It has not even begun.
                call.close()
                done.cancel()

        try:
            self._loop.call_soon_threadsafe(begin)
            return done.result()
        finally:
            if not done.done():  # An interruption, such as Ctrl-C.
                self._loop.call_soon_threadsafe(end)  # guard: interrupted-call-ends
                wait([done], END_S_MAX)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield what `items` yields."""
        try:
            while not isinstance(item := self.run(_next(items)), _End):
                yield item
        finally:
            # What is left of it where the client is closed ended with that. The garbage collector
            # may run this in any thread.
            if isinstance(items, AsyncGenerator) and not self._problem():
                self.run(_close(items))

    def close(self) -> None:
        """Cancel what still runs, and end the loop and its thread."""
        ended = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        wait([ended], END_S_MAX)  # guard: closed-client-ends-calls
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_S_MAX)
        self._loop.close()

    def _problem(self) -> str:
        if os.getpid() != self._pid:  # guard: client-not-forked
            return "this client is of the process that this one was forked from; make another one"
        if threading.get_ident() == self._thread.ident:  # guard: own-thread-not-awaited
            return "this client is called from its own thread, which would wait for itself"
        return CLOSED if self.has_ended else ""


def _pass_on(ended: asyncio.Task[T], done: Future[T]) -> None:
    if ended.cancelled():
        done.set_exception(Trouble("this client was closed before the call ended"))
    elif (error := ended.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(ended.result())


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _End:
    """There is nothing more."""


async def _next(items: AsyncIterator[T]) -> T | _End:
    return await anext(items, _End())


async def _close(items: AsyncGenerator[Any, Any]) -> None:
    await items.aclose()

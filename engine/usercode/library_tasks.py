"""Has the tasks of a library end as others do, whatever user code in them raises.

A task that raises a `SystemExit` ends its event loop, and so the node.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from engine.usercode.leavable import close

R = TypeVar("R")

_IN_LIBRARY: Final[ContextVar[bool]] = ContextVar("in_library", default=False)


class UserExit(Exception):
    """What user code has raised to end the process: its cause."""


@contextmanager
def library_tasks() -> Iterator[None]:
    """Have tasks that are made within raise a `UserExit` where they would end the event loop."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _Factory):
        loop.set_task_factory(_Factory(factory))
    token = _IN_LIBRARY.set(True)
    try:
        yield
    finally:
        _IN_LIBRARY.reset(token)


class _Factory:
    """Makes the tasks of an event loop, as they were made before."""

    def __init__(self, before: Any) -> None:  # noqa: ANN401 - typeshed's own is no type to name
        self._before = before

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Any,  # noqa: ANN401 - as that of a task
        **options: Any,  # noqa: ANN401 - as those of a task
    ) -> asyncio.Future[Any]:
        if not (_IN_LIBRARY.get() and inspect.iscoroutine(work)):
            return self._made(loop, work, options)
        task = self._made(loop, _ending(work), options)
        task.add_done_callback(lambda _: close(work))  # It may have ended before it began.
        return task

    def _made(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Any,  # noqa: ANN401 - as that of a task
        options: Mapping[str, Any],
    ) -> asyncio.Future[Any]:
        if self._before is None:
            return asyncio.Task(work, loop=loop, **options)
        made: asyncio.Future[Any] = self._before(loop, work, **options)
        return made


async def _ending(work: Coroutine[Any, Any, R]) -> R:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:  # guard: library-task-exit-spares-loop
        raise UserExit(f"{type(error).__name__}: {error}") from error

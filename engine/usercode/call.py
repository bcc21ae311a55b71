"""Calls user code: the one place that expects any exception, and makes errors of it."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, overload

import structlog

from engine.app import outputs, tools
from engine.app.outputs import DeliveryFailed
from engine.app.tools import ToolFailed
from engine.errors import CRASH, EpisodeFailed, Interrupted, StrategyError
from engine.usercode.client_errors import class_of_client_error
from engine.usercode.leavable import CLEANUP_S, LEFT, as_coroutine, close, leavable, place_in
from engine.usercode.meant import meant
from streams.errors import LeaseLost

P = ParamSpec("P")
R = TypeVar("R")

TRACE_CHARS_MAX: Final = 4_000
"""Most of a traceback that the journal keeps: its end, where the cause is."""

RAISED_CHARS_MAX: Final = 2 * TRACE_CHARS_MAX
"""Most of a traceback that an error has: longer than what is kept, so that secrets can be hidden
before it is cut. A part of one would not be found."""

CAUSES_MAX: Final = 8
"""Most exceptions of one chain of causes whose frames are kept."""

BAD_ADAPTER: Final = "bad_adapter"
"""Error class of a delivery by an adapter that breaks its contract."""

_OURS: Final = str(Path(__file__).parents[1])
"""The folder of our own frames."""

log = structlog.get_logger("vigil.usercode")


@overload
async def call(callback: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
async def call(callback: Callable[P, R | Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R: ...
async def call(callback: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Return what a plain or async `callback` returns; what it raises becomes an `EpisodeFailed`.

    A `StrategyError` keeps its class and message; anything else is a `crash` with its traceback.
    """
    caller = asyncio.current_task()
    try:
        returned = callback(*args, **kwargs)
        return await returned if inspect.isawaitable(returned) else returned
    except (EpisodeFailed, LeaseLost, Interrupted):  # guard: lost-lease-no-crash
        raise
    except StrategyError as error:
        raise EpisodeFailed(error.error_class, str(error)) from error
    except BaseException as error:  # guard: user-exit-ends-episode-only
        if is_from_outside(error, caller):
            raise
        raise EpisodeFailed(CRASH, _trace(error)) from error


def call_now(callback: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return what a function of the user returns that does not wait.

    `EpisodeFailed`: it raised something, which the detail has in one line.
    """
    try:
        return callback(*args, **kwargs)
    except Exception as error:
        raise EpisodeFailed(CRASH, f"{type(error).__name__}: {error}") from error


async def attempt(work: Awaitable[R], *, begin: Callable[[], None] | None = None) -> R:
    """Await a tool's or a synthesizer's `work`; what it raises becomes a `ToolFailed`.

    `begin` is called just before the first line of `work`, which does not run if that raises.
    """
    # A task of its own: a deadline frees us even if it does not stop.
    return await _attempt(work, ToolFailed, _as_tool_failure, begin=begin)


async def delivery(method: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
    """Await an adapter's `method` as `attempt` does; what it raises becomes a `DeliveryFailed`."""
    # The exception may quote credentials: the error has its kind and its frames, and only the log
    # of the node has its message.
    work = _awaited(method, *args, **kwargs)
    return await _attempt(work, DeliveryFailed, _as_delivery_failure)


async def _awaited(method: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
    returned: object = method(*args, **kwargs)
    if not inspect.isawaitable(returned):  # guard: sync-adapter-harmless
        name = getattr(method, "__qualname__", repr(method))
        raise DeliveryFailed(BAD_ADAPTER, f"{name} must be `async def`", permanent=True)
    awaited: R = await returned
    return awaited


@dataclass(frozen=True)
class _Raised:
    """What user code raised, as a value: a task that raises a `SystemExit` ends its event loop."""

    error: BaseException


async def _attempt(
    work: Awaitable[R],
    known: type[Exception],
    in_our_words: Callable[[BaseException], Exception],
    *,
    begin: Callable[[], None] | None = None,
) -> R:
    given_up = _GivenUp()
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    within = _result(work, begin, ended)

    def end(_: object) -> None:
        _wake(ended)
        close(within)  # It may have been cut off before it began, as may `work`.
        if inspect.iscoroutine(work):
            close(work)

    task = asyncio.create_task(as_coroutine(leavable(within, given_up)))
    task.add_done_callback(end)
    try:
        await ended  # Unlike the task, it can be cancelled by itself.
    except asyncio.CancelledError:
        given_up.end(task, work)
        raise
    result = task.result()
    if not isinstance(result, _Raised):
        return result
    if isinstance(result.error, known):
        raise result.error
    raise in_our_words(result.error) from result.error


async def _result(
    work: Awaitable[R], begin: Callable[[], None] | None, ended: asyncio.Future[None]
) -> R | _Raised:
    caller = asyncio.current_task()
    if begin is not None:
        begin()  # guard: refused-call-does-not-begin
    try:
        return await work
    except BaseException as error:
        if is_from_outside(error, caller):
            raise
        return _Raised(error)  # guard: task-exit-spares-loop
    finally:
        _wake(ended)  # Now, and not by a callback of the task: that takes a turn of the loop.


class _GivenUp:
    """Work that nobody waits for any more: it may clean up for a while, and goes nowhere then."""

    is_left = False

    def end(self, task: asyncio.Task[Any], work: Awaitable[Any]) -> None:
        task.add_done_callback(_retrieve)
        task.cancel()
        timer = asyncio.get_running_loop().call_later(CLEANUP_S, self._leave, task, work)
        task.add_done_callback(lambda _: timer.cancel())

    def _leave(self, task: asyncio.Task[Any], work: Awaitable[Any]) -> None:
        log.warning(LEFT, at=place_in(work), after_s=CLEANUP_S)
        self.is_left = True  # guard: endless-tool-left
        task.cancel()


def is_from_outside(error: BaseException, caller: asyncio.Task[Any] | None) -> bool:
    """Return whether `error` ends the code of users that `caller` runs, which has not raised it.

    The task is canceled by a deadline, a lost lease or the end of the node, or the coroutine is
    closed from another task. Whatever else there is, code of users has raised it: also a
    `CancelledError`, where it has awaited a task that was canceled.
    """
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError):
        # guard: callback-cancel-not-episode-cancel
        return task is not None and task.cancelling() > 0
    # guard: closed-callback-no-crash
    return isinstance(error, GeneratorExit) and task is not caller


def _wake(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def in_text(value: object) -> str:
    """Return the end of `value` as Unicode text: what users raise may have undecodable bytes."""
    return str(value)[-TRACE_CHARS_MAX:].encode(errors="replace").decode()


def _as_tool_failure(error: BaseException) -> ToolFailed:
    if error_class := class_of_client_error(error):  # guard: client-errors-no-crash
        return ToolFailed(error_class, f"{type(error).__name__}: {error}")
    return ToolFailed(*_in_our_words(error, tools.ERROR_CLASSES, "call"))


def _as_delivery_failure(error: BaseException) -> DeliveryFailed:
    error_class, told = _in_our_words(error, outputs.ERROR_CLASSES, "delivery")
    if isinstance(error, asyncio.CancelledError):
        return DeliveryFailed(error_class, told)
    log.warning("an adapter raised", error=type(error).__name__, message=in_text(error))
    return DeliveryFailed(error_class, _frames(error))  # guard: adapter-exception-stays-local


def _in_our_words(
    error: BaseException, classes: Iterable[tuple[type[Exception], str]], what: str
) -> tuple[str, str]:
    if isinstance(error, asyncio.CancelledError):
        return CRASH, f"the {what} cancelled itself"
    for kind, error_class in classes:
        if isinstance(error, kind):
            return error_class, f"{type(error).__name__}: {error}"
    return CRASH, _trace(error)


def _trace(error: BaseException) -> str:
    """Return the traceback of `error` without our own frames, as far as there are others."""
    told = traceback.TracebackException.from_exception(error)
    cause: traceback.TracebackException | None = told
    for _ in range(CAUSES_MAX):
        if cause is None:
            break
        users = [frame for frame in cause.stack if not frame.filename.startswith(_OURS)]
        cause.stack = traceback.StackSummary.from_list(users or cause.stack)
        cause = cause.__cause__ or cause.__context__
    raised = "".join(told.format())
    if hint := hint_at(error):  # guard: meant-name-told
        raised = f"{raised.rstrip()}; {hint}\n"
    return raised[-RAISED_CHARS_MAX:]


def hint_at(error: BaseException) -> str:
    """Return what the user has meant, as `meant` does; empty: it is not known."""
    try:
        return meant(error)
    # guard: hint-asks-objects-of-users
    except Exception:  # noqa: BLE001 - texts and names of users' objects may raise anything
        return ""


def _frames(error: BaseException) -> str:
    """Return where `error` and its causes were raised, and their kinds, but no messages."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < CAUSES_MAX:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    told = ("".join(traceback.format_tb(one.__traceback__)) + type(one).__name__ for one in chain)
    return "\n".join(reversed(list(told)))[-TRACE_CHARS_MAX:]


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Retrieve the result of an abandoned task, so that asyncio does not warn."""
    if not task.cancelled():
        task.exception()

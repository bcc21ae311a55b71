"""Coroutines of users that can be left where they are: `leavable` and `leave`.

Code of users may catch whatever is to end it. Who runs it must go on all the same.
"""

from __future__ import annotations

import sysconfig
import types
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from engine.errors import Interrupted

T = TypeVar("T")

_LEAVE: Final = object()
"""What a coroutine gives the one that runs it, to be left."""

_OURS: Final = Path(__file__).parents[2]

_PACKAGES: Final = tuple(
    f"{_OURS}/{package}/" for package in ("engine", "streams", "projections", "vigil")
)

_INSTALLED: Final = tuple(f"{sysconfig.get_path(each)}/" for each in ("purelib", "platlib"))

NOT_THE_USERS: Final = (*_PACKAGES, sysconfig.get_path("stdlib"), *_INSTALLED, "<frozen ")
"""How the files begin that are not the user's: ours, Python's, and what is installed."""

CLEANUP_S: Final = 5.0
"""Longest that code of users may clean up after it was canceled, in seconds; then it is left."""

LEFT: Final = "code that was canceled does not end: it is left where it is"

AWAITS_MAX: Final = 1_000
"""Most coroutines that wait for each other, of which the innermost is looked for."""


class Left(Protocol):
    """Tells whether coroutines are left."""

    @property
    def is_left(self) -> bool:
        """Whether they go on no more."""


@types.coroutine
def leave() -> Generator[Any, Any, None]:
    """Never return: the `leavable` coroutine that awaits this is left here."""
    while True:
        yield _LEAVE


@types.coroutine
def leavable(work: Coroutine[Any, Any, T], scope: Left) -> Generator[Any, Any, T]:
    """Return what `work` returns; `Interrupted`: it awaits `leave`, or `scope` is left."""
    value, error = None, None
    while True:
        try:
            asks = work.send(value) if error is None else work.throw(error)
        except StopIteration as ended:
            returned: T = ended.value
            return returned
        if asks is _LEAVE:
            close(work)
            raise Interrupted
        try:
            value, error = (yield asks), None
        except GeneratorExit:
            work.close()
            raise
        except BaseException as raised:  # noqa: BLE001 - passed on to the code that awaits
            error = raised
        if scope.is_left:
            close(work)
            raise Interrupted


async def as_coroutine(work: Awaitable[T]) -> T:
    """Return what `work` returns: a task takes a coroutine, and not all that can be awaited."""
    return await work


def close(work: Coroutine[Any, Any, Any]) -> None:
    """End `work`, which may clean up, or even refuse to end."""
    if getattr(work, "cr_frame", work) is None:
        return  # It has ended: that is so after nearly every call.
    with suppress(BaseException):
        work.close()


def place_in(work: object, *, but_installed: bool = False) -> str:
    """Return the user's line that a coroutine waits at: `checks.py:12, in disk`; or nothing.

    `but_installed`: an app that is installed is not looked for.
    """
    frames = (frame for each in awaited_by(work) if (frame := _frame_of(each)) is not None)
    lines = ((frame.f_code, frame.f_lineno) for frame in frames)
    return innermost_of_user(lines, but_installed=but_installed)


def innermost_of_user(
    lines: Iterable[tuple[types.CodeType, int]], *, but_installed: bool = False
) -> str:
    """Return the last of `lines`, outermost first, that is the user's; or nothing.

    Where none is, it is the last of what is installed, which an app may be.
    """
    own = installed = ""
    for code, number in lines:
        place = f"{Path(code.co_filename).name}:{number}, in {code.co_name}"
        if not code.co_filename.startswith(NOT_THE_USERS):
            own = place
        elif code.co_filename.startswith(_INSTALLED) and not code.co_filename.startswith(_PACKAGES):
            installed = place
    return own or ("" if but_installed else installed)  # guard: line-of-installed-app


def awaited_by(work: object) -> Iterator[object]:
    """Yield `work`, what it awaits, what that awaits, and so on."""
    for _ in range(AWAITS_MAX):
        if work is None:
            return
        yield work
        frame = _frame_of(work)
        if frame is not None and frame.f_code is leavable.__code__:
            work = frame.f_locals["work"]  # It is driven by hand.
        else:
            work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)


def _frame_of(work: object) -> types.FrameType | None:
    return getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)

"""Coroutines of users that can be left where they are: `leavable` and `leave`.

Code of users may catch whatever is to end it. Who runs it must go on all the same.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

_LEAVE: Final = object()
"""What a coroutine gives the one that runs it, to be left."""


@types.coroutine
def leave() -> Generator[Any, Any, None]:
    """Never return: the `leavable` coroutine that awaits this is left here."""
    while True:
        yield _LEAVE


@types.coroutine
def leavable(work: Coroutine[Any, Any, T], left: BaseException) -> Generator[Any, Any, T]:
    """Return what `work` returns; raise `left` once it awaits `leave`."""
    step = partial(work.send, None)
    while True:
        try:
            asks = step()
        except StopIteration as ended:
            returned: T = ended.value
            return returned
        if asks is _LEAVE:
            # It cleans up, or even refuses to end.
            with suppress(BaseException):
                work.close()
            raise left
        try:
            step = partial(work.send, (yield asks))
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:  # noqa: BLE001 - passed on to the code that awaits
            step = partial(work.throw, error)

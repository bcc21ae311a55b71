"""`PendingCall`: a call of a function's `ctx` that is made once it is awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Literal, NoReturn, TypeVar

from engine.errors import InvalidAction

T = TypeVar("T")


class PendingCall(Coroutine[Any, Any, T]):
    """What `ctx.call(…)` and its like return: `await` it, or give it to `ctx.gather`."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        place: str,
        on_awaited: Callable[[PendingCall[Any]], None],
        is_child: bool = False,
    ) -> None:
        """Make the call `work` once awaited; `place` is the user's line that asked for it.

        `is_child`: it starts an episode and waits for its end, and does nothing else.
        """
        self._name, self._work, self.place = name, work, place
        self.is_child = is_child
        self._on_awaited = on_awaited
        self._begun: Coroutine[Any, Any, T] | None = None

    @property
    def problem(self) -> str:
        """What to tell of it if nobody awaits it."""
        return str(self._refused())

    def _refused(self) -> InvalidAction:
        problem = f"{self._name}(…) is not awaited; write await {self._name}(…)"
        return InvalidAction(problem, place=self.place)

    def __bool__(self) -> Literal[True]:
        """Raise `InvalidAction`: only the result of a call can be true or false."""
        raise self._refused()  # guard: unawaited-has-no-truth

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - there is none
        """Raise `AttributeError`: only the result of a call has anything."""
        raise AttributeError(self.problem, name=name)

    def _refuse(self, *_: object) -> NoReturn:
        raise self._refused()  # guard: unawaited-has-no-value

    __getitem__ = __iter__ = __len__ = __contains__ = __float__ = __int__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __await__(self) -> Generator[Any, Any, T]:
        """Make the call."""
        return self._begin().__await__()

    def send(self, value: Any, /) -> Any:  # noqa: ANN401 - as the event loop has it
        """Go on, for an event loop."""
        return self._begin().send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as the event loop has it
        """Raise in the call, for an event loop."""
        return self._begin().throw(*error)

    def close(self) -> None:
        """Give the call up."""
        self._on_awaited(self)
        if self._begun is not None:
            self._begun.close()

    def _begin(self) -> Coroutine[Any, Any, T]:
        if self._begun is None:
            self._on_awaited(self)
            self._begun = self._work()
        return self._begun

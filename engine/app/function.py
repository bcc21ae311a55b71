"""`Function`: an async function as the strategy of an expectation. Pure.

The function runs from the top whenever a node has its episode, and is fed what the journal holds.
So what it does between two calls of its `ctx` must be the same each time; `vigil check` names what
in its source is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from streams.model.triggers import Trigger

StrategyFunction: TypeAlias = Callable[[Any, Trigger], Awaitable[object]]
"""What users write: `async def name(ctx, trigger)`."""

IN_FUNCTION: Final[ContextVar[bool]] = ContextVar("in_function", default=False)
"""Whether the code that runs is that of a function itself, and not of a tool that it calls."""


@dataclass(frozen=True)
class Function:
    """A function, in the place of a strategy."""

    run: StrategyFunction

    @property
    def name(self) -> str:
        """What the function is called."""
        return self.run.__name__


def problem_of_function(candidate: object) -> str | None:
    """Return why `candidate` cannot be the function of an expectation, or None."""
    if not inspect.iscoroutinefunction(candidate):
        return f"{candidate!r} is not `async def name(ctx, trigger)`"
    try:
        inspect.signature(candidate).bind(None, None)
    except TypeError:
        return f"{candidate.__qualname__}{inspect.signature(candidate)} takes not (ctx, trigger)"
    return None

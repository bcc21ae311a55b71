"""A branch of a function: it counts the calls in it, which gives each of them its path."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from engine.errors import InvalidAction
from engine.functions.activity import Activity
from engine.functions.place import place_of_call
from streams.model.events import AGAIN

T = TypeVar("T")

BRANCHES_MAX: Final = 16
"""Most branches of one `gather`, beside those that only wait for a child."""

DEPTH_MAX: Final = 4
"""Most branches within each other."""

_DRAW_BYTES: Final = 16


class Run(Protocol):
    """What its branches know of the run of a function."""

    has_left_generators: bool
    """Whether it has left an async generator before its end."""


@dataclass
class Branch:
    """The function itself, or what it runs beside other things with `gather`."""

    run: Run
    """The run of the function; its calls are those of this run's `ctx`."""
    activity: Activity
    """What it is counted in: that of the function, or of the agent that it is part of."""
    prefix: str = ""
    """Begins the paths of its calls, such as `4.2.`; empty: the function itself."""
    calls: int = 0
    """How many it has made."""
    origin: str = ""
    """Where the user's code began it."""
    place: str = ""
    """Where its newest call was asked for; empty: it has made none."""
    group: str = ""
    """The path of its `gather`, if it only waits for a child; empty: it may do anything."""
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)
    _draws: int = 0

    @property
    def path(self) -> str:
        """The path of its newest call."""
        return f"{self.prefix}{self.calls}"

    @property
    def is_root(self) -> bool:
        """Whether it is the function itself."""
        return not self.prefix

    def next_path(self) -> str:
        """Count a call, and return its path."""
        self.calls += 1
        self._draws = 0
        return self.path

    def child(self, number: int, *, origin: str, only_waits: bool = False) -> Branch:
        """Return the branch `number`, from 1, of the newest call, which is a `gather`."""
        if self.prefix.count(".") >= 2 * DEPTH_MAX:
            raise InvalidAction(f"gather: more than {DEPTH_MAX} within each other")
        group = self.path if only_waits else ""
        prefix = f"{self.path}.{number}."
        return Branch(self.run, self.activity, prefix, origin=origin, group=group)

    def again(self) -> Branch:
        """Return the branch of what repeats the newest call: pauses and attempts by turns."""
        return Branch(self.run, self.activity, f"{self.path}{AGAIN}", origin=self.origin)

    def draw(self, seed: str) -> bytes:
        """Return 16 bytes that look like chance, the same in a replay."""
        self._draws += 1
        text = f"{seed}/{self.path}/{self._draws}"
        return hashlib.blake2b(text.encode(), digest_size=_DRAW_BYTES).digest()


REFUSALS_MAX: Final = 100
"""Most calls that a function may make after its end is decided; then it is left where it is."""

_CURRENT: Final[ContextVar[Branch]] = ContextVar("branch")


def enter(branch: Branch) -> None:
    """Make `branch` that of the current task."""
    branch.task = asyncio.current_task()
    _CURRENT.set(branch)


@contextmanager
def entered(branch: Branch) -> Iterator[None]:
    """Make `branch` that of the current task for a while."""
    branch.task = asyncio.current_task()
    token = _CURRENT.set(branch)
    try:
        yield
    finally:
        with suppress(ValueError):  # Python may close it in another context.
            _CURRENT.reset(token)


OF_ANOTHER_RUN: Final = (
    "this ctx is of another run, of an episode that has ended or that another call runs; use the"
    " ctx that the function is called with, and keep it in no object that outlives the call"
)


def check_run(run: Run) -> None:
    """Raise `InvalidAction` if the caller is in a function, but not in its run `run`."""
    branch = _CURRENT.get(None)
    if branch is not None and branch.run is not run:  # guard: foreign-ctx-refused
        raise InvalidAction(OF_ANOTHER_RUN, place=place_of_call())


def current() -> Branch | None:
    """Return the branch that the caller is in; None: it is in a task or a thread of its own."""
    branch = _CURRENT.get(None)
    # guard: call-in-own-task-refused
    return branch if branch is not None and branch.task is _task() else None


def is_in_task() -> bool:
    """Return whether the caller is in a task, and not in a thread."""
    return _task() is not None


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # A thread has no event loop.
        return None


def watch_generators() -> None:
    """Note it in a run if its function leaves an async generator before its end.

    The event loop ends it in a task of its own, where its `finally` can make no calls.
    """
    hooks = sys.get_asyncgen_hooks()
    if isinstance(hooks.finalizer, _Finalizer) or hooks.finalizer is None:
        return
    sys.set_asyncgen_hooks(finalizer=_Finalizer(hooks.finalizer))


def parted_at(branches: Mapping[str, Branch], path: str) -> str:
    """Return the user's line after which the call at `path` was made, as far as it is known.

    `branches` are those of the run by their prefixes, those that have ended included.
    """
    prefix, _, _ = path.rpartition(".")
    own = branches.get(f"{prefix}." if prefix else "")
    gather = path if own is not None else prefix.rpartition(".")[0]
    beside = next((each for at, each in branches.items() if at.startswith(f"{gather}.")), None)
    if beside is not None:  # A `gather` was made there, with other branches or none before.
        return beside.origin
    last = own or branches[""]
    return last.place or last.origin


class _Finalizer:
    def __init__(self, before: Callable[[AsyncGenerator[Any, Any]], object]) -> None:
        self._before = before

    def __call__(self, generator: AsyncGenerator[Any, Any]) -> None:
        branch = current()
        if branch is not None:
            branch.run.has_left_generators = True
        self._before(generator)

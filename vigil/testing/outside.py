"""What code of strategies reaches beside its calls: the outside, which is refused, and the time.

A strategy runs again from the top after a crash. What it does itself happens again then, and what
it reads itself may be different. So in a test, while a function, `next_step` or `handle_result`
runs, files, sockets, processes and databases cannot be opened, and the clocks of `time` show the
virtual time. Tools, and all other code, have the real ones.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import importlib
import linecache
import os
import pdb
import sys
import sysconfig
import time
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any, Final

from engine.app.app import App
from engine.app.strategy import IN_STRATEGY
from engine.functions.source import functions_of
from engine.usercode.leavable import NOT_THE_USERS
from streams.clock import Clock

OPENED: Final[Mapping[str, tuple[str, int]]] = {
    "open": ("file", 0),
    **{
        f"os.{name}": ("file", 0)
        for name in (
            "chmod", "chown", "link", "listdir", "mkdir", "remove", "rename", "rmdir", "scandir",
            "symlink", "truncate", "utime",
        )
    },
    "socket.connect": ("socket", 1),
    "socket.bind": ("socket", 1),
    "socket.sendto": ("socket", 1),
    "socket.getaddrinfo": ("socket", 0),
    "subprocess.Popen": ("process", 0),
    "os.system": ("process", 0),
    "os.exec": ("process", 0),
    "os.posix_spawn": ("process", 0),
    "os.fork": ("process", 0),
    "sqlite3.connect": ("database", 0),
}  # fmt: skip
"""Audit event of Python → what it opens, and the number of the argument that names it."""

FRAMES_MAX: Final = 1_000
"""Most frames that are looked at for the user's line."""

_INSTALLED: Final = (
    *{sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")},
    *zoneinfo.TZPATH,
)
"""The folders of Python and of packages: their own files are the same each time."""

_IMPORTS: Final = ("<frozen importlib", str(Path(importlib.__file__).parent))
_LOOKS_AT_CODE: Final = (*_IMPORTS, linecache.__file__, pdb.__file__)
"""How the files begin that read sources: imports, tracebacks, the debugger."""

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class OutsideCall(AssertionError):
    """The code of a strategy itself reached the outside, where it should have called a tool."""


@dataclass
class Outside:
    """What the strategies of one run may reach, and what they tried to."""

    clock: Clock
    """The virtual time."""
    allow: Sequence[str] = ()
    """Patterns of what may be opened, such as `file /etc/*`."""
    later_s: float = 0.0
    """How much later it is for them, in seconds."""
    refused: list[str] = field(default_factory=list)
    """What was refused, with line and remedy, until it is told."""

    def context(self, context: Context | None = None) -> Context:
        """Return a copy of a context, by default the current one, for tasks of this run."""
        made = copy_context() if context is None else context.copy()
        made.run(_current.set, self)
        return made

    def later(self, seconds: float) -> Outside:
        """Return the same for replays that happen so much later."""
        return replace(self, later_s=seconds)

    def tell(self) -> None:
        """Raise `OutsideCall` once for all that was refused since the last time."""
        if self.refused:
            problems = dict.fromkeys(self.refused)
            self.refused.clear()
            raise OutsideCall("\n".join(problems))

    def refuse(self, what: str, place: str) -> OutsideCall:
        """Note that a strategy tried to open `what`, and return what to raise."""
        problem = (
            f"{place or 'a thread of a strategy'}: opens the {what} itself, as it would again after"
            f" a crash; put it in a tool, await ctx.call(…), or allow it: run(app,"
            f" allow_io=[{what!r}])"
        )
        self.refused.append(problem)
        return OutsideCall(problem)

    def allows(self, what: str) -> bool:
        """Return whether `what` may be opened."""
        return any(fnmatchcase(what, pattern) for pattern in self.allow)


_current: Final[ContextVar[Outside | None]] = ContextVar("outside", default=None)
"""That of the run whose code runs."""


def _audit(event: str, args: tuple[Any, ...]) -> None:
    """Refuse what the code of a strategy opens; Python calls this for every audit event."""
    if event not in OPENED or not IN_STRATEGY.get():  # guard: kit-strategy-opens-nothing
        return
    outside = _current.get()
    if outside is None:
        return
    kind, number = OPENED[event]
    named = args[number] if number < len(args) else ""
    if event == "open" and (isinstance(named, int) or _is_installed(named, args)):
        return
    if kind == "database" and named == ":memory:":
        return
    frames = list(_frames())
    # guard: kit-imports-may-open
    if any(each.f_code.co_filename.startswith(_LOOKS_AT_CODE) for each in frames):
        return
    what = f"{kind} {_text(named)}".strip()
    if not outside.allows(what):  # guard: kit-opening-may-be-allowed
        raise outside.refuse(what, _place(frames))


def _is_installed(path: object, args: tuple[Any, ...]) -> bool:
    """Return whether a file of Python or of a package is opened to be read."""
    mode, flags = args[1], args[2]
    writes = bool(set(mode) & set("wax+")) if isinstance(mode, str) else bool(flags & _WRITES)
    return not writes and _text(path).startswith(_INSTALLED)


def _text(named: object) -> str:
    return os.fsdecode(named) if isinstance(named, bytes | os.PathLike) else str(named)


def _frames() -> Iterator[FrameType]:
    """Yield the frames that led to the audit event, innermost first, up to the event loop."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - `inspect.currentframe` is its first
    for _ in range(FRAMES_MAX):
        if frame is None or frame.f_code.co_filename == asyncio.events.__file__:
            return
        yield frame
        frame = frame.f_back


def _place(frames: Iterable[FrameType]) -> str:
    """Return the user's line, as of errors: `checks.py:12, in disk`; or nothing."""
    for frame in frames:
        code = frame.f_code
        if not code.co_filename.startswith(NOT_THE_USERS):
            return f"{Path(code.co_filename).name}:{frame.f_lineno}, in {code.co_name}"
    return ""


@cache
def _install_audit() -> None:
    """Have Python call `_audit` from now on: what is added cannot be removed."""
    sys.addaudithook(_audit)


CLOCKS: Final[Mapping[str, Callable[[Clock], float]]] = {
    "time": lambda clock: clock.now().timestamp(),
    "monotonic": lambda clock: clock.monotonic_s(),
    "perf_counter": lambda clock: clock.monotonic_s(),
}
"""Clocks of the module `time` that are virtual; so are those that end in `_ns`."""

NS_PER_S: Final = 1_000_000_000


@contextmanager
def watching(app: App) -> Iterator[None]:
    """Watch what the strategies of `app` reach, and have the clocks of `time` be virtual for them.

    A module that has imported a clock by its name (`from time import time`) has the virtual one,
    too, if it has strategies.
    """
    _install_audit()
    clocks = dict(_virtual_clocks())
    modules = [vars(time), *_modules_of(app)]  # guard: kit-imported-clock-virtual
    changed = [
        (names, name, value)
        for names in modules
        for name, value in list(names.items())
        if callable(value) and id(value) in clocks
    ]
    for names, name, value in changed:
        names[name] = clocks[id(value)]
    try:
        yield
    finally:
        for names, name, value in changed:  # guard: kit-clocks-restored
            names[name] = value


def _modules_of(app: App) -> list[dict[str, Any]]:
    strategies = [
        *(each.strategy for actor in app.actors.values() for each in actor.expectations.values()),
        *app.strategies.values(),
    ]
    found = [function.__globals__ for each in strategies for function in functions_of(each)]
    return list({id(each): each for each in found}.values())


def _virtual_clocks() -> Iterator[tuple[int, Callable[[], float]]]:
    """Yield the identity of each clock of `time` as it is now, and what stands in for it."""
    for name, read in CLOCKS.items():
        for suffix, per_s in (("", None), ("_ns", NS_PER_S)):
            real = getattr(time, f"{name}{suffix}")
            yield id(real), _virtual(real, read, per_s)


def _virtual(
    real: Callable[[], float], read: Callable[[Clock], float], per_s: int | None
) -> Callable[[], float]:
    @wraps(real)  # `vigil check` knows it by its name.
    def clock() -> float:
        outside = _current.get()
        # guard: kit-tools-real-clock
        if outside is None or not IN_STRATEGY.get() or not _has_loop():
            return real()
        seconds = read(outside.clock) + outside.later_s  # guard: kit-replay-is-later
        return seconds if per_s is None else round(seconds * per_s)

    return clock


def _has_loop() -> bool:
    """Return whether the caller is in an event loop, and not in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

"""What an episode enters on its way through the engine, and how often it changes from file to file.

**On the way** is what descends from handling something that somebody must answer for: a delivery
that a queue hands to the node, or what a person says. It begins in the task that receives the
delivery, goes on in every task that this one starts, and ends where the task asks for the next. So
nothing that a node does beside an episode is on the way: it starts from a clock or from a watch,
and nobody waits for its answer (renewing leases, who else is there, modes, definitions, lapses).
Neither is a file that imports OpenTelemetry: it measures the way. What appends to a journal must be
on the way, or the trace has lost it, which is an error.

**Entered** is a function when it is called, not when it goes on after an `await`; what else has a
frame of its own (a lambda, a comprehension) enters its file, and is no function. Code outside the
engine (ports, strategies, adapters) is passed through. **A change** is a call into another file
than the last one entered in the same task, or before it in the task that started it. A return is
none, and neither is the first file.

The reactor's work on the commits of an episode is on the way, from where it has read them. What it
does beside (asking who leads, writing its position down) is not.
"""

from __future__ import annotations

import dis
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import engine
from engine.reactor.reactor import Reactor
from streams.memory.durable import MemorySource
from streams.memory.log import MemoryLog

ENGINE: Final = Path(inspect.getfile(engine)).parent

APPEND: Final = MemoryLog.append.__code__

RECEIVE: Final = MemorySource.receive.__code__
"""Where a queue hands out deliveries: called to ask for some, and returns some, or none."""

FOLLOW_UP: Final = Reactor._follow_up.__code__
"""Where the reactor has new commits, until what follows from them is done."""

AFTER: Final = 0b11
"""The bits of the argument of `RESUME` that say after what."""

OFF_THE_WAY: Final = None
BEGINNING: Final = ""

_last: ContextVar[str | None] = ContextVar("last", default=OFF_THE_WAY)
"""The file that a task on the way has entered last. A task starts with that of its parent."""


@dataclass
class Walk:
    """What was entered, in order of the first entry."""

    files: dict[str, dict[str, None]] = field(default_factory=dict)
    """Functions by file."""
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each function of a file was entered."""
    changes: int = 0
    lost: int = 0
    """Commits that were appended by nobody on the way."""

    @property
    def functions(self) -> int:
        """How many different ones were entered."""
        return sum(map(len, self.files.values()))

    def __add__(self, other: Walk) -> Walk:
        """Return this walk and then `other`."""
        files = {name: {**functions} for name, functions in self.files.items()}
        for name, functions in other.files.items():
            files.setdefault(name, {}).update(functions)
        return Walk(files, self.calls + other.calls, self.changes + other.changes)

    def enter(self, file: str, code: CodeType) -> None:
        """Note a call, and that the task is in `file` now."""
        functions = self.files.setdefault(file, {})
        if not code.co_name.startswith("<"):
            functions[code.co_qualname] = None
            self.calls[file, code.co_qualname] += 1
        self.changes += _last.get() not in {BEGINNING, file}
        _last.set(file)


@contextmanager
def walking() -> Iterator[Walk]:
    """Trace what is on the way, in every thread, while the context lasts.

    Raises:
        AssertionError: some of the episode was not on the way.
    """
    walk, files = Walk(), _engine_files()

    def look(frame: FrameType, what: str, value: object) -> None:
        code = frame.f_code
        if code is RECEIVE:
            has_some = what == "return" and isinstance(value, Sequence) and bool(value)
            _last.set(BEGINNING if has_some else OFF_THE_WAY)
        elif code is FOLLOW_UP and what == "return" and _is_end(code, frame.f_lasti):
            _last.set(OFF_THE_WAY)
        elif what == "call" and code is not FOLLOW_UP and _last.get() is OFF_THE_WAY:
            walk.lost += code is APPEND
        elif what == "call":
            file = files.get(code.co_filename)
            if file and _is_call(code, frame.f_lasti):
                if code is FOLLOW_UP:
                    _last.set(BEGINNING)
                walk.enter(file, code)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert not walk.lost, f"{walk.lost} commits came from tasks that descend from no delivery"


@contextmanager
def said() -> Iterator[None]:
    """Put on the way what a person has the engine do while the context lasts."""
    before = _last.set(BEGINNING)
    try:
        yield
    finally:
        _last.reset(before)


def _engine_files() -> dict[str, str]:
    """Return the files that count, by the names that frames have for them."""
    paths = {path: path.relative_to(ENGINE).as_posix() for path in ENGINE.rglob("*.py")}
    return {str(p): name for p, name in paths.items() if "opentelemetry" not in p.read_text()}


def _is_call(code: CodeType, at: int) -> bool:
    """Return whether a frame is a function's, and begins instead of going on.

    Every frame begins with the instruction that a generator or coroutine goes on with, too; its
    argument says after what: 0 is the start. What is thrown into one, it meets elsewhere. The body
    of a class or a module is not optimized.
    """
    opcode, argument = code.co_code[at : at + 2]
    begins = opcode == dis.opmap["RESUME"] and argument & AFTER == 0
    return begins and bool(code.co_flags & inspect.CO_OPTIMIZED)


def _is_end(code: CodeType, at: int) -> bool:
    """Return whether a frame that is left has ended, and does not await something."""
    return code.co_code[at] == dis.opmap["RETURN_VALUE"]

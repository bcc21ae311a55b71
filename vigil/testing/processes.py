"""Replays in other Python processes: each has its own hash seed, its own pid, and no environment.

    strategies and journals, pickled ──stdin──▶ another Python imports the strategies and replays
                          ◀──stdout── how replays differ, as JSON

A strategy gets there as pickle does it: a function or a class by its module and name, an instance
with its attributes. What is defined within a function, such as a test, has no name to find it by.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from engine.app.actor import Actor
from engine.app.app import App
from engine.app.context import StateSchema
from engine.app.strategy import Function, Strategy
from engine.app.triggers import manual
from vigil.testing.outside import Outside, watching
from vigil.testing.replays import Played, Replays
from vigil.testing.virtual_time import VirtualClock, virtual_time

PROCESSES: Final = 1
"""How many other processes replay, by default. Each takes 0.9 s of a processor, to import the
engine. A set of two values has the same order in one other process half of the times, one of four
values once in 24."""

PROCESS_S_MAX: Final = 120.0
"""Longest real time of one such process, in seconds."""

HASH_SEED: Final = "PYTHONHASHSEED"

MAIN: Final = "__main__"
MAIN_HERE: Final = "__vigil_main__"
"""What the program that was started is called in other processes, which are other programs."""

ANOTHER: Final = "another process"
CANNOT_IMPORT: Final = "another process cannot import the strategy"
WHAT_TO_DO: Final = "define it at the top of a module, or say processes=0"

ELSEWHERE: Final = "in another process, with another hash seed and pid and no environment: "


@dataclass(frozen=True)
class _Declared:
    """A strategy in another process, for what it is replayed as."""

    actor: str
    expectation: str
    strategy: Strategy[Any] | Function
    version: int
    """Of its state."""


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What another process gets; it has nothing of the user's but bytes."""

    path: Sequence[str]
    """Where Python finds modules."""
    files: Mapping[str, str]
    """Module → its file, for modules that are on no path."""
    declared: Sequence[bytes]
    """Each a pickled `_Declared`."""
    episodes: Sequence[Played]
    start: datetime
    """The virtual time."""
    allow_io: Sequence[str]


async def problems_elsewhere(
    app: App, episodes: Sequence[Played], outside: Outside, *, processes: int = PROCESSES
) -> dict[str, str]:
    """Return the episodes whose replays in other processes differ from their journals → how.

    A strategy that other processes cannot import is such a problem, too.
    """
    declared, problems = _pickled(app, episodes)
    if problems or not episodes:
        return problems
    work = pickle.dumps(
        _Work(
            path=sys.path,
            files=dict(_files(app)),
            declared=declared,
            episodes=episodes,
            start=outside.clock.now(),
            allow_io=outside.allow,
        )
    )
    # In threads: the virtual time of the loop stands still until they are done.
    told = await asyncio.gather(
        *(asyncio.to_thread(_replayed, work, seed) for seed in range(1, processes + 1))
    )
    return {title: problem for each in reversed(told) for title, problem in each.items()}


def _pickled(app: App, episodes: Iterable[Played]) -> tuple[list[bytes], dict[str, str]]:
    """Return the strategies of `episodes` for other processes, and why some cannot get there."""
    pickled, problems = list[bytes](), dict[str, str]()
    for actor, name in dict.fromkeys((each.actor, each.expectation) for each in episodes):
        expectation = app.actors[actor].expectations[name]
        version = expectation.state_schema.version
        try:
            pickled.append(pickle.dumps(_Declared(actor, name, expectation.strategy, version)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            problems[f"{actor}.{name}"] = f"{CANNOT_IMPORT} ({error}); {WHAT_TO_DO}"
    return pickled, problems


def _files(app: App) -> Iterable[tuple[str, str]]:
    """Yield the modules of the strategies of `app`, with their files."""
    for actor in app.actors.values():
        for expectation in actor.expectations.values():
            strategy = expectation.strategy
            of = strategy.run if isinstance(strategy, Function) else type(strategy)
            file = getattr(sys.modules.get(of.__module__), "__file__", None)
            if file:
                yield of.__module__, file


def _replayed(work: bytes, seed: int) -> dict[str, str]:
    """Return what a process with the hash seed `seed` says."""
    folder = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, HASH_SEED: str(seed), "PYTHONPATH": paths}
    try:
        ran = subprocess.run(  # noqa: S603 - Python itself, and our module
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            input=work,
            capture_output=True,
            env=environment,
            timeout=PROCESS_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {ANOTHER: f"it has not replayed them within {PROCESS_S_MAX:g} s"}
    if ran.returncode:  # The last line of a traceback says what it was.
        why = ran.stderr.decode(errors="replace").strip().rpartition("\n")[-1]
        return {ANOTHER: f"it could not replay them ({why}); {WHAT_TO_DO}"}
    return msgspec.json.decode(ran.stdout, type=dict[str, str])


# What runs in the other process.


class _Unpickler(pickle.Unpickler):
    """Finds modules by their files, too, and the program that was started by another name."""

    def __init__(self, data: bytes, files: Mapping[str, str]) -> None:
        super().__init__(io.BytesIO(data))
        self._files = files

    def find_class(self, module_name: str, name: str, /) -> Any:  # noqa: ANN401 - as pickle has it
        """See `pickle.Unpickler`."""
        found: Any = self._module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def _module(self, name: str) -> ModuleType:
        if name == MAIN:
            return sys.modules.get(MAIN_HERE) or _from_file(MAIN_HERE, self._files[name])
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            is_itself = error.name is not None and f"{name}.".startswith(f"{error.name}.")
            if not is_itself or name not in self._files:  # guard: kit-module-by-file
                raise
            return _from_file(name, self._files[name])


def _from_file(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a file of Python"
    assert spec.loader is not None, "a file of Python"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Replay what stdin has, and write to stdout how the replays differ."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # What modules print is no part of it.
    problems = asyncio.run(_replay(pickle.loads(sys.stdin.buffer.read())))  # noqa: S301 - see above
    with os.fdopen(answer, "wb") as file:
        file.write(msgspec.json.encode(problems))


async def _replay(work: _Work) -> dict[str, str]:
    sys.path[:] = work.path
    app = _app_of(_Unpickler(each, work.files).load() for each in work.declared)
    with watching(app), virtual_time() as selector:
        clock = VirtualClock(work.start, since_s=selector.now_s)
        replays = Replays(app, Outside(clock, work.allow_io), selector)
        # What nodes have in their environment is not the same everywhere.
        os.environ.clear()  # guard: kit-process-without-environment
        problems = await replays.problems(work.episodes)
    return {title: f"{ELSEWHERE}{problem}" for title, problem in problems.items()}


def _app_of(declared: Iterable[_Declared]) -> App:
    actors: dict[str, Actor] = {}
    for each in declared:
        actor = actors.setdefault(each.actor, Actor(each.actor))
        made = actor.expect(each.expectation, _strategy(each), on=manual())
        # Journals of a test have no older states.
        schema = StateSchema(version=each.version)
        actor.expectations[each.expectation] = replace(made, state_schema=schema)
    return App(actors=list(actors.values()))


def _strategy(declared: _Declared) -> Any:  # noqa: ANN401 - as users declare it
    strategy = declared.strategy
    return strategy.run if isinstance(strategy, Function) else strategy

"""Tries mutants: switches off each guard of `tests/mutants.py` and sees that a test turns red.

    python -m tests.mutation                 all of them
    python -m tests.mutation lane deadline   those whose guard, marker, file or tests have a word
    python -m tests.mutation --new           those that were not killed since their files changed
    python -m tests.mutation --green         without first seeing that the tests pass as they are

Each of `--jobs` workers has a copy of the tree, so nothing here can leave a guard off. A worker has
imported what others have written, and forks for each mutant: a trial costs little more than its
tests. What was killed is remembered in `.mutants`, with a digest of the code of the changed file
and of its tests: words, names of markers, comments and docstrings may change.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import pytest

from tests.markers import ROOT, BadRow
from tests.mutants import TABLE, Mutant
from tests.mutators import switched_off

KILLED: Final = ROOT / ".mutants"

TRIAL_S_MAX: Final = 1_200.0
"""Longest that the tests of one mutant may take. Nothing is known of one that takes longer: each
test has a timeout of its own, by which a mutant that hangs is killed."""

POLL_S: Final = 0.02

LEFT_OUT: Final = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "results")

OPTIONS: Final = (
    *("-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
"""Plugins that were imported before the fork are not rewritten."""

WHOLE: Final = {"VIGIL_TEST_SIZE": "moments past=3 worlds=250"}
"""A mutant may show at one moment of a story only, or in few worlds and lives."""

OF_OTHERS: Final = (
    "asyncpg",
    "httpx",
    "hypothesis",
    "msgspec",
    "nats",
    "opentelemetry.sdk.metrics.export",
    "opentelemetry.sdk.trace.export",
    "pydantic",
    "pytest",
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "rich.console",
    "structlog",
    "typer",
    "uvloop",
    "yaml",
)
"""What a worker imports before it forks. Nothing of ours: that is what mutants change."""


def digest(mutant: Mutant) -> str:
    """Return a digest of what a trial of `mutant` depends on most."""
    path, text = switched_off(mutant.marker, mutant.change)
    made = hashlib.sha256(f"{path.relative_to(ROOT)} {mutant.tests}".encode())
    made.update(code_of(text, path.suffix))
    tests = ROOT / mutant.tests
    for each in sorted(tests.rglob("*.py")) if tests.is_dir() else [tests]:
        made.update(code_of(each.read_text(), each.suffix))
    return made.hexdigest()[:16]


class WithoutTexts(ast.NodeTransformer):
    """Leaves out docstrings, also those of constants and fields."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


@cache
def code_of(text: str, suffix: str) -> bytes:
    """Return the code of a Python file, without comments and docstrings; another one whole."""
    if suffix != ".py":
        return text.encode()
    return ast.dump(WithoutTexts().visit(ast.parse(text))).encode()


def remembered() -> set[str]:
    """Return the digests of the mutants that were killed."""
    return set(KILLED.read_text().split()) if KILLED.exists() else set()


def remember(mutant: Mutant) -> None:
    """Add a mutant to those that were killed."""
    with KILLED.open("a") as file:
        file.write(f"{digest(mutant)}\n")


@dataclass(frozen=True)
class Trial:
    """How the tests went in a tree."""

    code: int | None
    """With which pytest exited; None: it took too long."""
    seconds: float
    said: str
    """The end of what pytest printed."""

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return self.code == 0

    @property
    def failed(self) -> bool:
        """Whether a test failed, could not be imported, or ended the process."""
        codes = pytest.ExitCode
        return self.code not in {None, codes.OK, codes.USAGE_ERROR, codes.NO_TESTS_COLLECTED}


class Tree:
    """A copy of the tree that one worker has for itself."""

    def __init__(self, path: Path) -> None:
        shutil.copytree(ROOT, path, ignore=LEFT_OUT)
        self.path = path
        self._times = count(int(time.time()) + 1)
        """A time of its own for each text of a file, since compiled files are told apart by it."""

    def tried(self, mutant: Mutant, worker: Worker) -> Trial:
        """Return how the tests go with the guard switched off."""
        marked, text = switched_off(mutant.marker, mutant.change)
        path = self.path / marked.relative_to(ROOT)
        original = path.read_text()
        self._write(path, text)
        try:
            return worker.run(self, mutant.tests, WHOLE)
        finally:
            self._write(path, original)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        at = next(self._times)
        os.utime(path, (at, at))


class Worker:
    """A process that has imported what tests need, and forks for each trial."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.mutation import serve; serve()"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tree: Tree, tests: str, settings: Mapping[str, str]) -> Trial:
        """Run `tests` in `tree`, with `settings` in the environment."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(tree.path), tests, settings]) + "\n")
        process.stdin.flush()
        return Trial(*json.loads(process.stdout.readline()))

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve() -> None:
    """Run the trials that a line of stdin asks for, one after the other, until there is no more."""
    import_of_others()
    for line in sys.stdin:
        print(json.dumps(forked(*json.loads(line))), flush=True)


def import_of_others() -> None:
    """Import what others have written, and forget what we have."""
    for name in OF_OTHERS:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]


def forked(tree: str, tests: str, settings: Mapping[str, str]) -> tuple[int | None, float, str]:
    """Run `tests` in a process of their own."""
    began_s = time.monotonic()
    with tempfile.TemporaryFile("w+") as printed:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            os.chdir(tree)
            os.environ.update(settings, PYTHONPATH=tree)
            sys.path[:] = [tree, *(path for path in sys.path if path not in {"", str(ROOT)})]
            exit_code = pytest.main([*OPTIONS, tests])
            sys.stdout.flush()
            os._exit(exit_code)
        code = waited(child, until_s=began_s + TRIAL_S_MAX)
        printed.seek(0)
        return code, time.monotonic() - began_s, printed.read()[-600:]


def waited(child: int, *, until_s: float) -> int | None:
    """Return how `child` exited; None: it took too long. What it started is killed."""
    code = None
    while code is None and time.monotonic() < until_s:
        time.sleep(POLL_S)
        pid, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid else None
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


def wanted(words: Sequence[str]) -> list[Mutant]:
    """Return the mutants that have one of the words, or all."""
    return [mutant for mutant in TABLE if not words or has_one(mutant, words)]


def has_one(mutant: Mutant, words: Sequence[str]) -> bool:
    """Return whether one of the words is in what is said of the mutant."""
    path, _ = switched_off(mutant.marker, mutant.change)
    said = (mutant.guard, mutant.marker, path.relative_to(ROOT).as_posix(), mutant.tests)
    return any(word in part for word in words for part in said)


def faults() -> list[str]:
    """Return what is wrong with rows of the table, each with its marker."""
    found = []
    for mutant in TABLE:
        try:
            switched_off(mutant.marker, mutant.change)
        except BadRow as error:
            found.append(f"{mutant.guard}: {error}")
    return found


class Trials:
    """Tries mutants, several at a time."""

    def __init__(self, scratch: Path, jobs: int) -> None:
        self._free: SimpleQueue[tuple[Worker, Tree]] = SimpleQueue()
        self._pool = ThreadPoolExecutor(jobs)
        for number in range(jobs):
            self._free.put((Worker(), Tree(scratch / f"tree-{number}")))

    def red(self, tests: Sequence[str]) -> Mapping[str, Trial]:
        """Return those of `tests` that fail with every guard on."""
        trials = dict(zip(tests, self._pool.map(self._with_all, tests), strict=True))
        return {tests: trial for tests, trial in trials.items() if not trial.passed}

    def of(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, Trial]]:
        """Yield how each mutant fared, as soon as it is known."""
        trials = {self._pool.submit(self._without, mutant): mutant for mutant in mutants}
        for trial in as_completed(trials):
            yield trials[trial], trial.result()

    def _with_all(self, tests: str) -> Trial:
        worker, tree = self._free.get()
        try:
            return worker.run(tree, tests, {})
        finally:
            self._free.put((worker, tree))

    def _without(self, mutant: Mutant) -> Trial:
        worker, tree = self._free.get()
        try:
            return tree.tried(mutant, worker)
        finally:
            self._free.put((worker, tree))

    def stop(self) -> None:
        """End the workers."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        while not self._free.empty():
            self._free.get()[0].stop()


def tell(mutant: Mutant, trial: Trial, *, at: str) -> None:
    """Print how a mutant fared, and remember it if it was killed."""
    how = "killed" if trial.failed else "SURVIVED" if trial.passed else "UNKNOWN"
    print(f"{at:>9}  {how:8}  {trial.seconds:5.1f} s  {mutant.guard}", flush=True)
    if trial.failed:
        remember(mutant)
    elif not trial.passed:
        print(trial.said, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Try the mutants; return 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--green", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    if wrong := faults():
        parser.error("\n".join(["the table of mutants is at fault:", *wrong]))
    killed = remembered() if asked.new else set()
    mutants = [mutant for mutant in wanted(asked.words) if digest(mutant) not in killed]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="vigil-mutants-") as scratch:
        trials = Trials(Path(scratch), asked.jobs)
        try:
            tests = sorted({mutant.tests for mutant in mutants})
            red = {} if asked.green else trials.red(tests)
            for path, trial in red.items():
                print(f"RED with every guard on: {path}\n{trial.said}", flush=True)
            mutants = [mutant for mutant in mutants if mutant.tests not in red]
            for number, (mutant, trial) in enumerate(trials.of(mutants), 1):
                survivors += not trial.failed
                tell(mutant, trial, at=f"{number}/{len(mutants)}")
        finally:
            trials.stop()
    print(f"{len(mutants) - survivors} of {len(mutants)} killed")
    return int(survivors > 0 or bool(red))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

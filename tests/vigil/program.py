"""Runs the `vigil` command as users do, and waits for what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.vigil.warm import WarmProgram, run_warm

ROOT: Final = Path(__file__).parents[2]
RUN_S_MAX: Final = 90.0
STOP_S_MAX: Final = 90.0
"""A node's grace, and some: a busy machine is slow, and only what hangs is ended by these."""

LOOK_S: Final = 0.1
APART: Final = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
"""Our code. Nothing is kept of what is compiled: a test may write its app twice in a second, and
Python would take the newer for the older if both are of one length."""

NOWHERE: Final = {
    "VIGIL_NATS_URL": "nats://127.0.0.1:1",
    "VIGIL_POSTGRES_DSN": "postgresql://127.0.0.1:1/nothing",
}
"""Nobody listens on port 1."""


class Vigil:
    """The command in `folder`, with `settings` in its environment.

    It has its imports when it begins (see `warm.py`), unless it is as cold as one that is typed.
    """

    def __init__(self, folder: Path, *, is_cold: bool = False, **settings: str) -> None:
        self.folder = folder
        self._is_cold = is_cold
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("VIGIL_", "OTEL_"))}
        self.environ = {**inherited, **APART, "PYTHONPATH": str(ROOT), **settings}
        self.command = [sys.executable, "-m", "vigil"]

    def run(
        self, *arguments: str, stdin: bytes = b"", **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        run = self._run_cold if self._is_cold else run_warm
        done = run(
            arguments,
            folder=self.folder,
            environ={**self.environ, **settings},
            stdin=stdin,
            most_s=RUN_S_MAX,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def ask(self, *arguments: str) -> Any:
        """Return what a command that must go well says as JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def wait_for(self, *arguments: str, until: Callable[[Any], bool]) -> Any:
        """Ask until the answer is as wanted, and return it."""
        deadline_s = time.monotonic() + RUN_S_MAX
        while True:
            done = self.run(*arguments, "--json")
            if done.returncode == 0 and until(answer := json.loads(done.stdout)):
                return answer
            assert time.monotonic() < deadline_s, (done.stdout, done.stderr)
            threading.Event().wait(LOOK_S)

    @contextmanager
    def running(self, *arguments: str, **settings: str) -> Iterator[Running]:
        """Run a command that goes on until it is told to stop; killed at the end if it is left."""
        environ = {**self.environ, **settings}
        # Nodes that a node starts are found by what was typed, and so is the one that starts them.
        is_cold = self._is_cold or "--processes" in arguments
        start = partial(_cold, self.command) if is_cold else _warm
        program = Running(start(arguments, self.folder, environ))
        try:
            yield program
        finally:
            program.end()

    def _run_cold(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environ: Mapping[str, str],
        stdin: bytes,
        most_s: float,
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.command, *arguments],
            cwd=folder,
            env=environ,
            input=stdin,
            capture_output=True,
            timeout=most_s,
            check=False,
        )


def _warm(arguments: Sequence[str], folder: Path, environ: Mapping[str, str]) -> WarmProgram:
    return WarmProgram(arguments, folder=folder, environ=environ)


def _cold(
    command: Sequence[str], arguments: Sequence[str], folder: Path, environ: Mapping[str, str]
) -> subprocess.Popen[str]:
    return talking([*command, *arguments], folder, environ)


def talking(
    command: Sequence[str], folder: Path, environ: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start a program of any kind, for `Running` to listen to."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


class Running:
    """A program that runs, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str] | WarmProgram) -> None:
        """Listen to `process`, whose errors come with its output."""
        self.process = process
        self._lines: list[str] = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def said(self) -> str:
        """All its output, errors included."""
        with self._heard:
            return "".join(self._lines)

    def wait_said(self, words: str, *, times: int = 1) -> str:
        """Wait until its output holds `words`, so many times, and return the output."""

        def is_said() -> bool:
            return "".join(self._lines).count(words) >= times

        with self._heard:
            found = self._heard.wait_for(
                lambda: is_said() or self.process.poll() is not None, RUN_S_MAX
            )
            assert found, f"it never said {words!r}: {self.said}"
            assert is_said(), f"it ended without saying {words!r}: {self.said}"
        return self.said

    def stop(self, number: int) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(STOP_S_MAX)
        self._reader.join(STOP_S_MAX)
        return code

    def end(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_S_MAX)
        self._reader.join(STOP_S_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._heard:
                self._lines.append(line)
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

"""The command in a process of its own that has imported everything before it begins.

Imports are most of what a short command takes: 0.5 of 0.6 s. So commands are forked from one
process that has made them all (`preloaded.py`), and differ in nothing else from one that is typed:
each has a folder, an environment and files of its own, and ends with an exit code.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from streams.child import die_with
from vigil.__main__ import main

FILES: Final = {
    "stdin": os.O_RDONLY,
    "stdout": os.O_WRONLY | os.O_CREAT,
    "stderr": os.O_WRONLY | os.O_CREAT,
}
"""What is to be file 0, 1 and 2 of the process, and how it is opened."""


def run_file() -> None:
    """Be the program in a file of Python."""
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


PROGRAMS: Final = {"vigil": main, "pytest": pytest.console_main, "python": run_file}
"""What a process may become, by its name: `vigil`, `python -m pytest` or `python FILE`."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.vigil.preloaded"])


def run_warm(
    arguments: Sequence[str],
    *,
    folder: Path,
    environ: Mapping[str, str],
    stdin: bytes,
    most_s: float,
    program: str = "vigil",
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, as `subprocess.run` does, for at most `most_s` seconds."""
    with TemporaryDirectory() as name:
        files = Path(name)
        (files / "stdin").write_bytes(stdin)
        process = _context.Process(
            target=_become_with_files, args=(program, arguments, folder, dict(environ), files)
        )
        process.start()
        try:
            process.join(most_s)
            if process.exitcode is None:
                raise subprocess.TimeoutExpired(arguments, most_s)
            said, complained = ((files / name).read_bytes() for name in ("stdout", "stderr"))
            return subprocess.CompletedProcess(arguments, process.exitcode, said, complained)
        finally:
            process.kill()
            process.join()
            process.close()


class WarmProgram:
    """A command that goes on, as `subprocess.Popen` as far as tests use one."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environ: Mapping[str, str],
        log: Path | None = None,
    ) -> None:
        """Start it. Its errors go to `log`, or come out of `stdout` as its output does."""
        ours, theirs = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_become_with_pipe, args=(arguments, folder, dict(environ), theirs, log)
        )
        self._process.start()
        theirs.close()
        self.stdout = os.fdopen(os.dup(ours.fileno()))
        ours.close()
        if log is not None:
            self.stdout.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("vigil", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def _become_with_pipe(
    arguments: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    pipe: Connection,
    log: Path | None,
) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing if log else pipe.fileno(), 1)
    os.dup2(os.open(log, FILES["stderr"]) if log else pipe.fileno(), 2)
    pipe.close()
    if ask := die_with(os.getppid()):
        ask()
    _become("vigil", arguments, folder, environ)


def _become_with_files(
    program: str, arguments: Sequence[str], folder: Path, environ: Mapping[str, str], files: Path
) -> None:
    for number, (name, flags) in enumerate(FILES.items()):
        os.dup2(os.open(files / name, flags), number)
    _become(program, arguments, folder, environ)


def _become(
    program: str, arguments: Sequence[str], folder: Path, environ: Mapping[str, str]
) -> None:
    """Be the command, in a process that is nothing else yet, whose files are those it has."""
    sys.stdin = io.TextIOWrapper(io.FileIO(0))
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), errors="backslashreplace", line_buffering=True)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in environ
    sys.path.insert(0, str(folder))
    sys.argv = [program, *arguments]
    sys.exit(PROGRAMS[program]())

"""Programs that run beside this one, which they do not outlive."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from streams.child import die_with
from vigil.serving.processes import environment, program
from vigil.settings import Config

STOP_S_MAX: Final = 5.0
"""Longest wait for a program beside this one to end in order, in seconds; then it is killed."""

CONSOLE_NEEDS: Final = ("htpy", "starlette", "uvicorn", "argon2")
"""What the extra `web` brings, as it is imported."""

CONSOLE_LOG: Final = "console.log"
"""What the console writes its log to, in the folder of the servers."""


@contextmanager
def running(
    command: Sequence[str],
    *,
    log: Path,
    environ: Mapping[str, str] | None = None,
    is_heard: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program beside this one, which it does not outlive, and write what it says to `log`.

    Of one that `is_heard`, only the errors go there: its output is for the caller to read.
    """
    with log.open("ab") as file:
        process = subprocess.Popen(  # noqa: S603 - our own program, our own arguments
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if is_heard else file,
            stderr=file,
            start_new_session=True,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def console(config: Config, folder: Path, *, is_wanted: bool = True) -> Iterator[threading.Event]:
    """Serve the console meanwhile, if what it needs is installed; what is yielded says it is told.

    Where it is, is printed as soon as that is known.
    """
    is_told = threading.Event()
    missing = [each for each in CONSOLE_NEEDS if find_spec(each) is None]
    if missing and is_wanted:
        print(f"no console: {missing[0]} is missing; pip install 'vigil-engine[web]'", flush=True)
    if missing or not is_wanted:
        is_told.set()
        yield is_told
        return
    command = [*program(config), "console", "--create-stack"]
    environ = environment(config)
    with running(command, log=folder / CONSOLE_LOG, environ=environ, is_heard=True) as process:
        telling = threading.Thread(target=_tell, args=(process, is_told), name="console")
        telling.start()
        try:
            yield is_told
        finally:
            process.terminate()
            telling.join()


def _tell(process: subprocess.Popen[bytes], is_told: threading.Event) -> None:
    """Print what a program says, as it says it."""
    assert process.stdout is not None, "its output is a pipe"
    with process.stdout:
        for line in process.stdout:
            print(line.decode(errors="replace"), end="", flush=True)
            is_told.set()
    is_told.set()

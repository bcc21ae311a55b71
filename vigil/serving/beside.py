"""Programs that run beside this one, which they do not outlive."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from streams.child import die_with

STOP_S_MAX: Final = 5.0
"""Longest wait for a program beside this one to end in order, in seconds; then it is killed."""


@contextmanager
def running(
    command: Sequence[str], *, log: Path, environ: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program beside this one, which it does not outlive, and write what it says to `log`."""
    with log.open("ab") as file:
        process = subprocess.Popen(  # noqa: S603 - our own program, our own arguments
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=file,
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

"""A server as a child process: start it, wait until it answers, end it.

Its session is its own, so Ctrl-C in the terminal does not reach it; its output goes to a file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self, TypeVar

POLL_S: Final = 0.01
"""Between two looks whether it answers, in seconds."""

LOG_LINES_SHOWN_MAX: Final = 5
"""Last lines of its log in the error that says it did not start."""

_PR_SET_PDEATHSIG: Final = 1
"""From <linux/prctl.h>: the signal a process gets when its parent dies."""

T = TypeVar("T")


class NotReady(Exception):
    """The process does not answer, and is gone. The message has the end of its log."""


class Child:
    """A child process, which runs until `stop` or `kill`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self._log = process, log

    @classmethod
    def start(
        cls,
        command: Sequence[str | Path],
        *,
        log: Path,
        dies_by: signal.Signals = signal.SIGKILL,
        user: str | None = None,
        cwd: Path | None = None,
    ) -> Self:
        """Start `command`, which writes to the end of `log`; it gets `dies_by` if its parent dies.

        Start it from a thread that lives as long as it should: on Linux the kernel counts the end
        of that thread as the parent's. With `user` it runs as that user, in that group only.
        """
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - our own program, our own arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                preexec_fn=die_with(os.getpid(), dies_by),  # noqa: PLW1509 - one system call
            )
        return cls(process, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> str | None:
        """How it ended, such as `signal 9` or `exit status 1`; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    def wait_ready(self, found: Callable[[], T | None], *, within_s: float, stop_s: float) -> T:
        """Return what `found` returns, as soon as that is not None.

        Raises:
            NotReady: it has ended by itself, or was ended because it took longer than `within_s`.
        """
        for _ in range(round(within_s / POLL_S)):
            try:
                self._process.wait(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                if (answer := found()) is not None:
                    return answer
            else:
                raise NotReady(f"ended at once: {self._log_end()}")
        self.kill(within_s=stop_s)
        raise NotReady(f"not ready after {within_s:.0f} s: {self._log_end()}")

    def send(self, sign: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        self._process.send_signal(sign)

    def stop(self, sign: signal.Signals, *, within_s: float) -> None:
        """End it in order by a signal; by force if that takes longer than `within_s`."""
        self.send(sign)
        try:
            self._process.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.kill(within_s=within_s)

    def kill(self, *, within_s: float) -> None:
        """End it at once, as a crash would, and wait for that, at most `within_s`."""
        self._process.kill()
        self._process.wait(timeout=within_s)

    def _log_end(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return " | ".join(lines[-LOG_LINES_SHOWN_MAX:])


def die_with(parent_pid: int, sign: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """Return what a child does before it becomes the program: ask for `sign` when we die."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, sign)
        if os.getppid() != parent_pid:
            os._exit(1)

    return ask

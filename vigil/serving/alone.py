"""Episodes that the next crash would end, each in a process of its own: `vigil node --alone`.

The parent starts it with its own settings and app, reads one line from it once the episode is
fenced, and says how it ended. The kernel tells it to stop when the parent dies (Linux).
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Final

import structlog

from streams.child import die_with
from vigil.settings import NODE_NAME_CHARS_MAX, Config

ALONE_MAX: Final = 2
"""Most such processes of one node: each takes as long to start, and as much memory, as a node."""

FENCED: Final = "fenced"
"""What the process says once it is durable that it has the episode."""

EXIT_NOT_OURS: Final = 75
"""The exit code of a process that did not get its episode: EX_TEMPFAIL of <sysexits.h>."""

SUFFIX: Final = "alone"

log = structlog.get_logger("vigil.node")


def place_of(episode: str) -> tuple[str, str]:
    """Return actor and id in what `--alone` is given, such as `disks/2fa109b0-…`."""
    actor_id, _, episode_id = episode.partition("/")
    return actor_id, episode_id


class ProcessAlone:
    """A process that runs one episode; see `RunAlone`."""

    def __init__(self, process: Process, node: str) -> None:
        self.node, self.crash = node, ""
        self.is_fenced, self.ended = asyncio.Event(), asyncio.Event()
        self._process, self._is_killed = process, False
        self._following = asyncio.create_task(self._follow())

    def stop(self) -> None:
        """Have it hand the episode over at the next barrier, and end."""
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._is_killed = True
        with suppress(ProcessLookupError):
            self._process.kill()

    async def _follow(self) -> None:
        try:
            assert self._process.stdout is not None, "its output is a pipe"
            async for line in self._process.stdout:
                if line.decode(errors="replace").strip() == FENCED:
                    self.is_fenced.set()
            code = await self._process.wait()
            self.crash = "" if self._is_killed else _crash(code)
        finally:
            self.ended.set()


class ProcessIsolation:
    """Starts a process for each episode; see `Isolation`."""

    def __init__(self, config: Config, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Make processes of `command`, which lacks the name of its node and the episode."""
        self._config, self._command, self._environ = config, command, environ
        self._numbers = count(1)
        self._running: set[ProcessAlone] = set()

    async def start(self, actor_id: str, episode_id: str) -> ProcessAlone | None:
        """Start a process for an episode; None: as many run as may, or it cannot be started."""
        self._running = {each for each in self._running if not each.ended.is_set()}
        if len(self._running) >= ALONE_MAX:
            return None
        suffix = f"-{SUFFIX}-{next(self._numbers)}"
        name = self._config.node[: NODE_NAME_CHARS_MAX - len(suffix)] + suffix
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *("--node-name", name, "--alone", f"{actor_id}/{episode_id}"),
                env=self._environ,
                stdin=DEVNULL,
                stdout=PIPE,
                start_new_session=True,  # Ctrl-C is for the parent, who passes it on.
                preexec_fn=die_with(os.getpid(), signal.SIGTERM),
            )
        except OSError as error:  # The machine is short of something.
            log.warning("could not be started", process=name, error=str(error))
            return None
        alone = ProcessAlone(process, name)
        self._running.add(alone)
        return alone


def _crash(code: int) -> str:
    """Return how a process with this exit code crashed; empty: it ended in order."""
    if code in {0, EXIT_NOT_OURS}:
        return ""
    if code > 0:
        return f"exit status {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"

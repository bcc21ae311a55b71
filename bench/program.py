"""A program of its own that answers requests: one JSON line in, one JSON line out.

Whoever makes the load, and every peer, is such a program, so that each has an interpreter, an
environment and an event loop for itself. A request is a case and how long to go on with it; the
answer is when it began, when it ended, and how long each of its parts took. Times are of
`time.monotonic`, which on one machine is one clock for all processes.

Of the standard library only, since programs in the peers' environments import it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from bench.measure import MS_PER_S, Run

ROOT: Final = Path(__file__).parents[1]

ANSWER_S_MAX: Final = 120.0
"""Longest wait for an answer, in seconds, beyond the time that was asked for."""

STOP_S_MAX: Final = 15.0
"""Longest wait for a program to end by itself when there is nothing more to ask."""

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest answer: it says how long each of some 10,000 episodes took."""


@dataclass(frozen=True)
class Request:
    """What a program is asked to run."""

    case: str
    in_flight: int
    seconds: float
    """How long to begin new ones; those that are under way then are waited for."""
    tag: str
    """Unlike that of any other request: ids are made from it."""
    per_s: float = 0.0
    """If not 0: begin so many a second, evenly, however many are still going."""
    count: int = 0
    """If not 0: begin no more than so many."""

    def moments_s(self) -> Sequence[float]:
        """Return when each of `per_s` shall begin, from now on."""
        now_s = time.monotonic()
        return [now_s + number / self.per_s for number in range(round(self.seconds * self.per_s))]


@dataclass(frozen=True)
class Answer:
    """What came of it."""

    began_s: float
    ended_s: float
    took_s: Sequence[float]
    cpu_s: float
    """Processor time that the program itself used meanwhile."""

    def run(self, *, until_s: float | None = None) -> Run:
        """Return this as a run that was over at `until_s`, or when the last one ended."""
        seconds = (until_s or self.ended_s) - self.began_s
        return Run(
            count=len(self.took_s),
            seconds=seconds,
            took_ms=[each * MS_PER_S for each in self.took_s],
            load_cores=self.cpu_s / (self.ended_s - self.began_s),
        )


Timed = Callable[[Request], Sequence[float]]
"""Runs a request and returns how long each part took, in seconds."""


def answer_requests(run: Timed) -> None:
    """Answer each request that comes in, until there are no more."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = Request(**json.loads(line))
        began_s, before_s = time.monotonic(), time.process_time()
        took_s = run(request)
        answer = Answer(began_s, time.monotonic(), took_s, time.process_time() - before_s)
        print(json.dumps(asdict(answer)), flush=True)


def merged(answers: Sequence[Answer]) -> Answer:
    """Return what several programs say that were asked at the same time."""
    return Answer(
        began_s=min(each.began_s for each in answers),
        ended_s=max(each.ended_s for each in answers),
        took_s=[took_s for each in answers for took_s in each.took_s],
        cpu_s=sum(each.cpu_s for each in answers),
    )


class ProgramFailed(Exception):
    """A program ended, or did not answer; its own words are on stderr."""


class Program:
    """A program that runs beside us. Entering starts it and waits until it is ready."""

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str] | None = None) -> None:
        """Describe a program that calls `answer_requests`.

        Args:
            command: what to run, in the root of the repository.
            environ: variables on top of our own.
        """
        self._command = command
        self._environ = {**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start the program.

        Raises:
            ProgramFailed: it does not get ready.
        """
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=self._environ,
            limit=LINE_BYTES_MAX,
        )
        try:
            await self._read(ANSWER_S_MAX)
        except ProgramFailed:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the program: it ends by itself when there is nothing more to read."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_S_MAX)
        except TimeoutError:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()

    @property
    def pid(self) -> int:
        """The running program's process id."""
        assert self._process is not None
        return self._process.pid

    async def ask(self, request: Request) -> Answer:
        """Return the answer to `request`.

        Raises:
            ProgramFailed: the program ended, or took `ANSWER_S_MAX` longer than asked.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
        return Answer(**json.loads(await self._read(request.seconds + ANSWER_S_MAX)))

    async def _read(self, wait_s: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), wait_s)
        except TimeoutError as error:
            raise ProgramFailed(f"{self._command}: no answer in {wait_s:g} s") from error
        if not line:
            raise ProgramFailed(f"{self._command}: ended")
        return line

"""`vigil node --processes N --stacks A,B`: N nodes of an app for each stack, and their parent.

Each is a program of its own, as if it had been typed; the parent only starts, restarts and stops
them. Only the first of a stack projects. The kernel ends them when the parent dies (Linux).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import structlog
from msgspec import structs

from streams.child import die_with
from streams.clock import SystemClock
from vigil import flags
from vigil.asking.connect import connected, pooled, run
from vigil.errors import EXIT_LOST, EXIT_SIGNAL, Mistake
from vigil.serving import telemetry
from vigil.serving.exit import EXIT_S
from vigil.serving.signals import stopping, wait_stop
from vigil.serving.stack_work import StackWork
from vigil.settings import NODE_NAME_CHARS_MAX, PREFIX, SECRET, Config, host_name

PROCESSES_MAX: Final = 64
"""Most nodes of one parent: more cores than most machines have."""

RESTART_S: Final = 0.5
"""First pause before a node that ended by itself is started again; doubles each time."""

RESTART_S_MAX: Final = 30.0

STEADY_S: Final = 60.0
"""A node that ran for so long is started again after the first pause."""

STOP_MARGIN_S: Final = EXIT_S + 5.0
"""How much longer than its grace a stopping node may take, which ends itself by force before; then
it is killed."""

EXIT_NOT_STARTED: Final = 126
"""The exit code of a program that a shell could not start."""

log = structlog.get_logger("vigil.processes")

_CLOCK: Final = SystemClock()


@dataclass(frozen=True)
class NodeProcess:
    """One node to keep going."""

    name: str
    command: Sequence[str]


def counted(text: str) -> int:
    """Return the number of processes that `text` asks for; `Mistake`: it is no such number."""
    count = int(text) if text.isdecimal() else 0
    if not 1 <= count <= PROCESSES_MAX:
        raise Mistake(f"--processes {text!r}: use a whole number from 1 to {PROCESSES_MAX}")
    return count


def plans(config: Config, *, app: str, count: int, work: StackWork) -> list[NodeProcess]:
    """Return the nodes of one stack that take the place of one; only the first may project.

    Raises `Mistake` if the node's name leaves no room for theirs.
    """
    several = [f"{config.node}-{number}" for number in range(1, count + 1)]
    names = [config.node] if count == 1 else several
    if len(names[-1]) > NODE_NAME_CHARS_MAX:
        raise Mistake(
            f"node {config.node!r}: too long for {count} processes, the last of which is "
            f"{names[-1]!r}; a name has at most {NODE_NAME_CHARS_MAX} characters"
        )
    others = replace(work, projects=False)
    return [
        NodeProcess(
            name,
            [*command(config, app=app, work=work if nth == 0 else others), "--node-name", name],
        )
        for nth, name in enumerate(names)
    ]


def supervise(
    configs: Sequence[Config],
    *,
    app: str,
    count: int,
    work: StackWork,
    abandon: Callable[[], None] | None = None,
) -> int:
    """Keep `count` nodes of `app` in each stack going until a signal; return the worst exit code.

    The servers are tried first, so that what is wrong with them is reported once. A second signal
    kills the nodes, calls `abandon`, and ends the program at once.

    Args:
        configs: they differ in the stack and the node's name alone.
        work: what the nodes take part in; of projecting only the first one of each stack.

    Raises `Mistake` if a node's name is too long, or there are too many nodes.
    """
    settings = configs[0].settings
    form, level = settings.log, settings.log_level
    telemetry.log_to(sys.stderr, form=form, level=level, node=_parent(configs))
    if (total := count * len(configs)) > PROCESSES_MAX:
        raise Mistake(f"{total} processes for {len(configs)} stacks; {PROCESSES_MAX} are the most")
    planned = [plans(each, app=app, count=count, work=work) for each in configs]

    async def try_servers() -> None:
        for config in configs:
            async with connected(config, is_for_node=True, is_staying=True):
                pass
        if work.projects:
            async with pooled(configs[0]):
                pass

    run(try_servers())
    for config, nodes in zip(configs, planned, strict=True):
        print(_greeting(config, nodes), flush=True)
    family = _NodeProcesses(environment(configs[0]), grace_s=settings.grace_s)
    return run(family.keep_all([*chain(*planned)], abandon=abandon))


def _parent(configs: Sequence[Config]) -> str:
    if len(configs) == 1:
        return configs[0].node
    return configs[0].settings.node or host_name(room_for="")


def _greeting(config: Config, nodes: Sequence[NodeProcess]) -> str:
    first, last = nodes[0].name, nodes[-1].name
    who = f"node {first}" if len(nodes) == 1 else f"{len(nodes)} nodes, {first} to {last}"
    return f"{who} · stack {config.stack.name}"


def command(config: Config, *, app: str, work: StackWork) -> list[str]:
    """Return what a node is started with: every setting but its name and the secrets."""
    return [*program(config), "node", "--app", app, *work.flags()]


def program(config: Config) -> list[str]:
    """Return what any command is started with: every setting but the name and the secrets."""
    said = {**structs.asdict(config.settings), "node": None}
    settings = (
        word
        for flag, setting in flags.SETTINGS.items()
        if said[setting] is not None and setting not in SECRET
        for word in (flag, str(said[setting]))
    )
    return [sys.executable, "-m", "vigil", *settings]


def environment(config: Config) -> dict[str, str]:
    """Return the environment of a node's process, with the secrets of the settings."""
    secrets = {PREFIX + each.upper(): getattr(config.settings, each) for each in sorted(SECRET)}
    return {**os.environ, **secrets}


@dataclass
class _NodeProcesses:
    environ: Mapping[str, str]
    grace_s: float
    _alive: dict[str, Process] = field(default_factory=dict)
    _is_stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def keep_all(
        self, planned: Sequence[NodeProcess], *, abandon: Callable[[], None] | None
    ) -> int:
        """Keep all nodes going until a signal; return the worst of their exit codes."""

        def at_once() -> None:
            self._kill()
            if abandon is not None:
                abandon()

        with stopping(self._stop, abandon=at_once):
            return max(await asyncio.gather(*(self._keep(plan) for plan in planned)))

    async def _keep(self, plan: NodeProcess) -> int:
        """Start a node, again whenever it ends by itself; return its last exit code.

        One whose stack has lost its past would be refused until a person has acted.
        """
        pause_s = RESTART_S
        while True:
            began_s = _CLOCK.monotonic_s()
            code = await self._run(plan)
            if self._is_stopping.is_set() or code == EXIT_LOST:  # guard: loss-nodes-not-restarted
                return code
            if _CLOCK.monotonic_s() - began_s >= STEADY_S:
                pause_s = RESTART_S
            # guard: ended-node-restarted
            log.warning("started again: it ended", ended=plan.name, code=code, pause_s=pause_s)
            await wait_stop(self._is_stopping, timeout_s=pause_s)
            if self._is_stopping.is_set():
                return code
            pause_s = min(2 * pause_s, RESTART_S_MAX)

    async def _run(self, plan: NodeProcess) -> int:
        """Run a node to its end, and return its exit code as a shell has it."""
        try:
            process = await self._start(plan)
        # guard: failed-start-ends-no-other
        except OSError as error:  # The machine is short of something, and the others run on.
            log.warning("could not be started", process=plan.name, error=str(error))
            return EXIT_NOT_STARTED
        self._alive[plan.name] = process
        try:
            if self._is_stopping.is_set():  # The signal came while it was being started.
                _send(process, signal.SIGTERM)
            return _as_exit_code(await self._end_of(process), stopped=self._is_stopping.is_set())
        finally:
            del self._alive[plan.name]
            _kill(process)

    async def _start(self, plan: NodeProcess) -> Process:
        return await asyncio.create_subprocess_exec(
            *plan.command,
            env=self.environ,
            stdin=DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, who passes it on.
            preexec_fn=die_with(os.getpid()),
        )

    async def _end_of(self, process: Process) -> int:
        """Wait for the end of a process, which is killed if it does not stop in time."""
        ended = asyncio.ensure_future(process.wait())
        told = asyncio.ensure_future(self._is_stopping.wait())
        try:
            await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({ended}, timeout=self.grace_s + STOP_MARGIN_S)
            if not ended.done():
                _kill(process)
            return await ended
        finally:
            told.cancel()
            ended.cancel()

    def _stop(self) -> None:
        self._is_stopping.set()
        for process in self._alive.values():
            _send(process, signal.SIGTERM)

    def _kill(self) -> None:
        for process in self._alive.values():
            _kill(process)


def _kill(process: Process) -> None:
    _send(process, signal.SIGKILL)


def _send(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # guard: ended-node-stops-no-kill
        process.send_signal(number)


def _as_exit_code(code: int, *, stopped: bool) -> int:
    if stopped and code == -signal.SIGTERM:
        return 0  # It was told to stop before it had begun.
    return code if code >= 0 else EXIT_SIGNAL - code

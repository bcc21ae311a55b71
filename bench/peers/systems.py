"""Starts the peers with their servers, on free ports of the loopback interface."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.error import URLError

from bench.measure import CLIENT, Run
from bench.program import ROOT, Program, Request, merged
from projections.embedded import EmbeddedPostgres
from streams.child import die_with

PLACE: Final = ROOT / ".bench-peers"
"""Where `make bench-peers` puts their environments."""

DBOS_PYTHON: Final = PLACE / "dbos/bin/python"
RESTATE_PYTHON: Final = PLACE / "restate/bin/python"
RESTATE_SERVER: Final = "node_modules/@restatedev/restate-server-*/bin/restate-server"
"""The binary of this platform. The command `restate-server` is a script that starts it, and would
leave it running if we were killed."""

PROCESSES: Final = 2
"""Of DBOS, and of the handlers of Restate, where a case spreads over several. More than the machine
has cores do not help."""

SPREAD: Final = "steps_processes"
"""The case that does."""

SYNC_DBOS: Final = "Postgres: fsync on, synchronous_commit on (defaults)"
SYNC_RESTATE: Final = "log server: rocksdb-disable-wal-fsync = false (default)"

INVOCATIONS_MAX: Final = 65_536
"""Handlers that Restate calls at once: more than are ever in flight. By default 1,000."""

START_S_MAX: Final = 60.0
"""Longest wait for a server to answer, in seconds. Measured: 0.4 s."""

STOP_S_MAX: Final = 15.0
"""Longest wait for an orderly stop, in seconds; then it is killed."""

POLL_S: Final = 0.05
REQUEST_S_MAX: Final = 5.0


@dataclass(frozen=True)
class Peer:
    """A peer that runs."""

    name: str
    sync: str
    loads: Sequence[Program]
    """Programs that share the work of the case that spreads; the first does all other work."""
    parts: Mapping[str, Sequence[int]]

    async def run(self, request: Request) -> Run:
        """Run a case once: each part is durable when it ends, and there is nothing to wait for."""
        loads = self.loads if request.case == SPREAD else self.loads[:1]
        shares = _shared(request, len(loads))
        asked = (load.ask(share) for load, share in zip(loads, shares, strict=False))
        return merged(await asyncio.gather(*asked)).run()


def _shared(request: Request, count: int) -> Sequence[Request]:
    """Return the shares of at most `count` programs that do `request` together."""
    count = min(count, request.in_flight)
    sizes = [request.in_flight // count + (n < request.in_flight % count) for n in range(count)]
    return [replace(request, in_flight=n, per_s=request.per_s / count) for n in sizes]


@asynccontextmanager
async def dbos(place: Path) -> AsyncIterator[Peer]:
    """Start DBOS and the Postgres that it keeps its workflows in, below `place`."""
    with EmbeddedPostgres(place / "postgres") as postgres:
        database = postgres.dsn.removesuffix("/postgres") + "/dbos"
        command = [str(DBOS_PYTHON), "-m", "bench.peers.dbos_load", database]
        async with AsyncExitStack() as running:
            loads = [await running.enter_async_context(Program(command)) for _ in range(PROCESSES)]
            pids = [load.pid for load in loads]
            yield Peer("dbos", SYNC_DBOS, loads, {"dbos": pids, "postgres": [postgres.pid]})


@asynccontextmanager
async def restate(place: Path) -> AsyncIterator[Peer]:
    """Start a Restate server below `place`, processes of handlers, and a client."""
    node, admin, ingress, *ports = _free_ports(3 + PROCESSES)
    services = {f"bench{number}": port for number, port in enumerate(ports, start=1)}
    with ExitStack() as running:
        server, python = str(next(PLACE.glob(RESTATE_SERVER))), str(RESTATE_PYTHON)
        environ = _server_environ(place, node, admin, ingress)
        parts = {"server": [running.enter_context(_process([server], environ))], "handlers": []}
        _wait_answered(f"http://127.0.0.1:{admin}/health")
        _wait_answered(f"http://127.0.0.1:{ingress}/restate/health")
        for service, port in services.items():
            serving = [python, "-m", "bench.peers.restate_handlers", str(port), service]
            parts["handlers"].append(running.enter_context(_process(serving, {})))
            _wait_listening(port)
            _register(admin, port)
        asking = [python, "-m", "bench.peers.restate_load", f"http://127.0.0.1:{ingress}"]
        async with Program([*asking, *services]) as load:
            yield Peer("restate", SYNC_RESTATE, [load], {**parts, CLIENT: [load.pid]})


def _server_environ(place: Path, node: int, admin: int, ingress: int) -> Mapping[str, str]:
    """Return where the server listens and stores, and how many it calls at once.

    Everything else is as it is by default.
    """
    return {
        "RESTATE_BASE_DIR": str(place / "restate"),
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error,octocrab=off",  # It asks whether there is a newer one.
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT": str(INVOCATIONS_MAX),
    }


@contextmanager
def _process(command: list[str], environ: Mapping[str, str]) -> Iterator[int]:
    """Run a process until the end of the context; yield its process id."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.DEVNULL,
        preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_listening(port: int) -> None:
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), REQUEST_S_MAX).close()
        except OSError:
            assert time.monotonic() < deadline_s, f"nobody listens on {port}"
            time.sleep(POLL_S)
        else:
            return


def _wait_answered(url: str) -> None:
    """Return once `url` answers, and well."""
    deadline_s = time.monotonic() + START_S_MAX
    while True:
        try:
            urllib.request.urlopen(url, timeout=REQUEST_S_MAX).close()  # noqa: S310 - loopback
        except (URLError, OSError):
            assert time.monotonic() < deadline_s, f"{url} does not answer"
            time.sleep(POLL_S)
        else:
            return


def _register(admin: int, handlers: int) -> None:
    """Tell the server where the handlers are."""
    body = json.dumps({"uri": f"http://127.0.0.1:{handlers}"}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{admin}/deployments", body, {"content-type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=START_S_MAX).close()  # noqa: S310 - loopback


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, all held until the last one was found."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]

"""Starts the peers with their servers, on free ports of the loopback interface."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import URLError

from bench.measure import Run
from bench.program import ROOT, Program, Request
from projections.embedded import EmbeddedPostgres
from streams.child import die_with

PLACE: Final = ROOT / ".bench-peers"
"""Where `make bench-peers` puts their environments."""

DBOS_PYTHON: Final = PLACE / "dbos/bin/python"
RESTATE_PYTHON: Final = PLACE / "restate/bin/python"
RESTATE_SERVER: Final = "node_modules/@restatedev/restate-server-*/bin/restate-server"
"""The binary of this platform. The command `restate-server` is a script that starts it, and would
leave it running if we were killed."""

SYNC_DBOS: Final = "Postgres: fsync on, synchronous_commit on (defaults)"
SYNC_RESTATE: Final = "log server: rocksdb-disable-wal-fsync = false (default)"

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
    load: Program

    async def run(self, request: Request) -> Run:
        """Run a case once: each part is durable when it ends, and there is nothing to wait for."""
        return (await self.load.ask(request)).run()


@asynccontextmanager
async def dbos(place: Path) -> AsyncIterator[Peer]:
    """Start DBOS and the Postgres that it keeps its workflows in, below `place`."""
    with EmbeddedPostgres(place / "postgres") as postgres:
        database = postgres.dsn.removesuffix("/postgres") + "/dbos"
        async with Program([str(DBOS_PYTHON), "-m", "bench.peers.dbos_load", database]) as load:
            yield Peer("dbos", SYNC_DBOS, load)


@asynccontextmanager
async def restate(place: Path) -> AsyncIterator[Peer]:
    """Start a Restate server below `place`, a process of handlers, and a client."""
    node, admin, ingress, handlers = _free_ports(4)
    with ExitStack() as running:
        server, python = str(next(PLACE.glob(RESTATE_SERVER))), str(RESTATE_PYTHON)
        environ = _server_environ(place, node, admin, ingress)
        running.enter_context(_process([server], environ))
        serving = [python, "-m", "bench.peers.restate_handlers", str(handlers)]
        running.enter_context(_process(serving, {}))
        _wait_listening(handlers)
        _wait_answered(f"http://127.0.0.1:{admin}/health")
        _wait_answered(f"http://127.0.0.1:{ingress}/restate/health")
        _register(admin, handlers)
        url = f"http://127.0.0.1:{ingress}"
        async with Program([python, "-m", "bench.peers.restate_load", url]) as load:
            yield Peer("restate", SYNC_RESTATE, load)


def _server_environ(place: Path, node: int, admin: int, ingress: int) -> Mapping[str, str]:
    """Return where the server listens and stores, everything else as it is by default."""
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
    }


@contextmanager
def _process(command: list[str], environ: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.DEVNULL,
        preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
    )
    try:
        yield
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

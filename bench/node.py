"""`vigil node` as operators run it: a process of its own, for as long as a measurement takes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bench.program import ROOT
from streams.child import die_with


@contextmanager
def node(
    url: str,
    dsn: str,
    *,
    app: str,
    stack: str,
    settings: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[int]:
    """Run a node process until the end of the context; yield its process id once it is connected.

    Args:
        url: of NATS.
        dsn: of Postgres.
        app: what it runs, as `module:attribute`.
        stack: the stack's name.
        settings: further `VIGIL_*` variables.
        options: of `vigil node`.
    """
    said = {
        "VIGIL_NATS_URL": url,
        "VIGIL_POSTGRES_DSN": dsn,
        "VIGIL_STACK": stack,
        "VIGIL_LOG_LEVEL": "error",
        **(settings or {}),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "vigil", "node", "--app", app, *options],
        cwd=ROOT,
        env={**os.environ, **said},
        stdout=subprocess.PIPE,
        preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - one system call, no locks
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()  # It greets once it is connected.
        yield process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

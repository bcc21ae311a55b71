"""Serves models in a process of its own, until SIGTERM or SIGINT: see the package."""

from __future__ import annotations

import asyncio
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module

from vigil.asking.connect import run
from vigil.testing.model_server.server import ModelScript, ModelServer


def main(arguments: Sequence[str]) -> None:
    """Serve, and print the address as one line."""
    parser = ArgumentParser(prog="python -m vigil.testing.model_server")
    parser.add_argument("--script", required=True, metavar="MODULE:NAME", help="a function or list")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--models", nargs="*", default=["test-model"], help="what is listed")
    said = parser.parse_args(arguments)
    sys.path.insert(0, "")
    module, colon, name = said.script.partition(":")
    if not colon:
        parser.error(f"--script {said.script!r}: write module:name")
    script: ModelScript = getattr(import_module(module), name)
    run(_serve(ModelServer(script, models=said.models), said.port))


async def _serve(server: ModelServer, port: int) -> None:
    stopped = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    await server.start(port=port)
    print(server.url, flush=True)
    await stopped.wait()
    await server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])

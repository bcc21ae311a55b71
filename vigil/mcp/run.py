"""`vigil mcp serve`: the server as a program, over stdin and stdout or over HTTP."""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from typing import Final

import uvicorn
from mcp.server.stdio import stdio_server

from engine.app.app import App
from engine.people.identity import Identity
from vigil.client.client import Client
from vigil.errors import Mistake
from vigil.mcp.http import PATH, asgi_app, is_loopback
from vigil.mcp.local import LocalCaller
from vigil.mcp.server import Serving, server_of
from vigil.serving.exit import EXIT_S
from vigil.serving.http_program import HttpProgram
from vigil.serving.signals import stopping
from vigil.settings import Config

BACKLOG: Final = 128
"""Most connections that wait to be accepted."""

CONNECTIONS_MAX: Final = 256
"""Most connections over HTTP at a time."""

STOP_S: Final = 5.0
"""How long open requests may go on when the server is told to stop, in seconds."""


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    """What to serve, and to whom."""

    config: Config
    identity: Identity
    """Who calls: whoever has started the server."""
    typed: str | None = None
    """What was given as `--by`."""
    app: App | None = None
    console_url: str = ""

    def caller(self, client: Client) -> LocalCaller:
        """Return whoever has started the server, for each call."""
        return LocalCaller(client, self.config, self.identity, typed=self.typed)


async def serve_stdio(plan: ServerPlan) -> None:
    """Serve who has started the program, over stdin and stdout, until stdin ends."""
    # The thread that reads stdin cannot be ended, and there is nothing to put in order.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    async with Client.of(plan.config, by=plan.identity.name) as client:
        local = plan.caller(client)
        serving = Serving(
            client=client,
            identity_of=lambda _: local.identity,
            before_acting=local.before_acting,
            app=plan.app,
            console_url=plan.console_url,
        )
        server = server_of(serving)
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())


async def serve_http(plan: ServerPlan, host: str, port: int) -> None:
    """Serve over HTTP until SIGINT or SIGTERM; 0: any port. The address is printed first.

    Raises:
        Mistake: `host` is not on loopback, or somebody listens there already.
    """
    if not is_loopback(host):
        raise Mistake(
            f"--http {host}: without tokens the server listens on loopback only",
            remedy="use 127.0.0.1, or the console, whose tokens it takes",
        )
    listening = _listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"
    async with Client.of(plan.config, by=plan.identity.name) as client:
        app = asgi_app(
            client,
            url=url,
            identify=None,
            local=plan.identity,
            caller=plan.caller(client),
            app=plan.app,
            console_url=plan.console_url,
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=int(STOP_S),
        )
        server = HttpProgram(config)
        with stopping(server.stop, within_s=STOP_S + EXIT_S):
            # Who reads it may tell the program to stop at once.
            print(f"{url}{PATH}", flush=True)
            await server.serve(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise Mistake(f"--http {host}:{port}: {error.strerror or error}") from error

"""Serves the console until a signal, and says first where it is."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from errno import EADDRINUSE
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import uvicorn

from streams.clock import SystemClock
from vigil.client import Client
from vigil.errors import Mistake, Trouble
from vigil.serving import telemetry
from vigil.serving.http_program import HttpProgram
from vigil.serving.signals import run_program, stopping
from vigil.settings import CONSOLE_PORT, FILE, OIDC, Config, table_in
from vigil.web.app import console
from vigil.web.screen import address

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from vigil.web.oidc.provider import Provider
    from vigil.web.webhooks.file import Webhooks

GRACE_S: Final = 2
"""How long a stopping console waits for answers, in seconds; what is watched ends at once."""

LINK_S: Final = 30.0
"""Longest wait for the servers before a link is printed, in seconds."""

LOOK_S: Final = 0.25

BACKLOG: Final = 512
"""Connections that wait to be taken."""

log = structlog.get_logger("vigil.console")


def serve(
    config: Config,
    *,
    host: str,
    port: int | None,
    origin: str = "",
    webhooks: Webhooks | None = None,
    prints_link: bool = True,
    creates_stack: bool = False,
) -> None:
    """Serve the console until SIGINT or SIGTERM.

    Args:
        port: 0: a free one; None: the usual one, or a free one if something else is there.
        origin: where people find it, if a proxy stands before it.
        prints_link: whether to print a link that signs in once.
        creates_stack: whether to make the stack if there is none, as a node does.

    Raises:
        Mistake: nobody could sign in at that address, so it would be open to whoever finds a link.
        Trouble: something else listens there.
    """
    telemetry.log_to(
        sys.stderr, form=config.settings.log, level=config.settings.log_level, node=config.node
    )
    telemetry.export(os.environ, node=config.node)
    run_program(
        _serve(
            Client.of(config, create_stack=creates_stack),
            host,
            port,
            origin,
            webhooks,
            prints_link=prints_link,
        )
    )


async def _serve(
    client: Client,
    host: str,
    port: int | None,
    origin: str,
    webhooks: Webhooks | None,
    *,
    prints_link: bool,
) -> None:
    async with client:
        oidc = _oidc()
        if not is_loopback(host) and oidc is None:
            await require_people(client, host)
        listening = listen(host, port)
        here = origin or f"http://{_named(host)}:{listening.getsockname()[1]}"
        settings = uvicorn.Config(
            console(client, origin=origin, webhooks=webhooks, mcp=_mcp(client, here), oidc=oidc),
            host=host,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            lifespan="on",
        )
        server = HttpProgram(settings)
        with stopping(server.stop, within_s=GRACE_S + 5.0):
            serving = asyncio.create_task(server.serve([listening]))
            print(f"Console   {await _link(client, here) if prints_link else here}", flush=True)
            await serving


def _oidc() -> Provider | None:
    """Return who else vouches for people, by `vigil.toml`; None: nobody does.

    Raises `Mistake` if that cannot be, or the extra `oidc` is not installed.
    """
    file = Path(FILE)
    if table_in(file, OIDC) is None:
        return None
    if find_spec("joserfc") is None:  # guard: missing-oidc-extra-told
        needs = 'pip install "vigil-engine[oidc]"'
        raise Mistake(f"{file}: [{OIDC}] needs the package joserfc", remedy=needs)
    from vigil.web.oidc.provider import provider_in

    return provider_in(file, SystemClock())


def _mcp(client: Client, here: str) -> Starlette | None:
    """Return the MCP server of the stack; None: the extra `mcp` is not installed."""
    if find_spec("mcp") is None:
        return None
    from vigil.mcp.http import asgi_app

    return asgi_app(client, url=here, identify=client.people.identify, console_url=here)


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens; see `serve` for `port`.

    Raises `Trouble` if something else listens there, or there is no such address here.
    """
    wanted = CONSOLE_PORT if port is None else port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, wanted), family=family, backlog=BACKLOG)
    except OSError as error:
        if port is None and error.errno == EADDRINUSE:
            return listen(host, 0)
        says = error.strerror or str(error)
        raise Trouble(f"--host {host} --port {wanted}: {says}") from error


def is_loopback(host: str) -> bool:
    """Return whether only this machine finds `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def require_people(client: Client, host: str) -> None:
    """Raise `Mistake` if nobody has a password, and so nobody could sign in but by a link."""
    if not await client.people.list():  # guard: elsewhere-needs-people
        raise Mistake(
            f"--host {host}: others find it there, and nobody could sign in",
            remedy="add people first: vigil users add NAME --role admin",
        )


async def _link(client: Client, here: str) -> str:
    """Return a link that signs in once; if the servers do not come up, the address alone."""
    clock = client.connections.clock
    until_s = clock.monotonic_s() + LINK_S
    while True:
        try:
            return here + address("/link", secret=await client.people.one_time_link())
        except Trouble:
            if clock.monotonic_s() > until_s:
                return here
            await clock.sleep(LOOK_S)


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host

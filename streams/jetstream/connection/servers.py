"""Server addresses as an operator writes them.

nats-py 2.16 finds an invalid one only while it connects, and is then left half made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from streams.errors import BadName

SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})
"""What nats-py can speak; `ws` and `wss` need a package of their own."""


def parse_servers(url: str) -> list[str]:
    """Return the servers in `url`: one, or several of a cluster, separated by commas.

    Raises:
        BadName: one of them is no address. The message shows none of it: it may have a password.
    """
    servers = [server.strip() for server in url.split(",")]
    for server in servers:
        _check(server)
    return servers


def neighbours(server: str, named: Sequence[str]) -> list[str]:
    """Return the servers that a cluster has `named`, with the scheme and the user of `server`."""
    scheme, rest = server.split("://", 1) if "://" in server else ("nats", server)
    user, at, _ = rest.rpartition("@")
    return [f"{scheme}://{user}{at}{each}" for each in named]


def _check(server: str) -> None:
    fault = "it is empty" if not server else _fault(server)
    if fault:
        raise BadName(f"not the address of a NATS server: {fault}; use nats://host:port")


def _fault(server: str) -> str:
    """Return what is wrong with an address; empty if nothing is."""
    try:
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        _ = parts.port
    except ValueError:  # Not chained: its text shows the address, and with it a password.
        return "its port is no number from 0 to 65535, or its host is no name"
    if parts.scheme not in SCHEMES:
        return f"it does not begin with one of {', '.join(sorted(SCHEMES))}"
    return "" if parts.hostname else "it names no host"

"""Which servers there are: which version of nats-server each is, and which run of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from streams.jetstream.connection.link import Link, wait_set
from streams.jetstream.connection.protocol import Received

PING: Final = "$SYS.REQ.ACCOUNT.PING.STATZ"
"""Answered by each server of a cluster, to every account."""

EVERYONE: Final = b'{"include_unused":true}'
"""Also by those to which nobody of this account is connected."""

ANSWERS_S: Final = 2.0
"""Longest wait for the answers, in seconds. Measured: 1 to 5 ms on one idle machine."""

NOBODY: Final = ""
"""In the place of the names of servers, if none may be asked."""

Version: TypeAlias = tuple[int, int]
"""Major and minor."""


class Server(msgspec.Struct, frozen=True):
    """One server, as it says itself."""

    name: str
    ver: str
    id: str = ""
    """Another one after each start."""

    @property
    def version(self) -> Version:
        """Its version, by which features come."""
        return version_in(self.ver)


class _Answer(msgspec.Struct, frozen=True):
    server: Server


_decoder: msgspec.json.Decoder[_Answer] = msgspec.json.Decoder(_Answer)


async def servers_of(link: Link, *, expected: int) -> Mapping[str, Server]:
    """Return each server that answers, by its name.

    It waits for `expected` answers, at most `ANSWERS_S`. Without any, which this user may not be
    allowed to get, it is the server that we are connected to, as `NOBODY`.
    """
    found: dict[str, Server] = {}
    are_there = asyncio.Event()

    def on_message(message: Received) -> None:
        try:
            server = _decoder.decode(message.data).server
        except msgspec.DecodeError:
            return  # Not allowed, or nobody there: an answer without a server.
        found[server.name] = server
        if len(found) >= expected:
            are_there.set()

    session = link.session
    inbox = session.open_inbox(on_message)
    try:
        session.post(PING, EVERYONE, reply=inbox.subject)  # guard: unconnected-servers-asked
        await wait_set(are_there, timeout_s=ANSWERS_S)
    finally:
        inbox.close()
    return found or {NOBODY: Server(NOBODY, session.server_version)}


def version_in(written: str) -> Version:
    """Return the version in `2.15.1`, or in `2.15.0-RC.1`."""
    major, minor, *_ = written.split(".")
    return int(major), int(minor)

"""Compressed streams, of which servers since 2.15 lose copies: ours are changed, or refused.

Such a server that was killed cuts each of its replicas back to the last Raft snapshot and repeats
the log from there; it cannot cut into a compressed block, and throws the replica away. And a server
that runs goes on compressing after the change, whatever it says, until it is started again
(docs/adr/0053-no-compression.md).

| copies | servers | a node |
| --- | --- | --- |
| one | any | changes the stream and starts: there is no Raft log |
| more | all before 2.15 | changes the stream and starts: nothing is cut back |
| more | one since 2.15, or one that does not answer | refuses to start |

A changed stream with more than one copy names the servers that ran then, each by an id that is
another one after each start. Until none of them runs any more, it counts as compressed, and
`uncompress` waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from streams.errors import Incompatible, Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import api
from streams.jetstream.ports.configs import UNCOMPRESSED, UNCOMPRESSING, needs_change, shapes
from streams.jetstream.setup import setup
from streams.jetstream.setup.cluster import NOBODY, PING, Server, Version, servers_of
from streams.json import JsonObject
from streams.subjects import Stack

LOSING_SINCE: Final[Version] = (2, 15)
"""The first version that cuts replicas back when it starts (nats-server's #8447)."""

WAIT_S_MAX: Final = 3_600
"""Longest that `uncompress` waits for somebody to restart the servers, in seconds."""

LOOK_S: Final = 1.0
"""Between two looks at them."""

OF_THE_SERVER: Final = "_nats."
"""Begins the metadata that a server adds, which nobody may set."""

Tell: TypeAlias = Callable[[str, int, int], None]
"""Called with the stage, how much is done, and of how much."""


@dataclass(frozen=True)
class Copies:
    """One stream, where it is stored, and what those servers say of themselves."""

    config: JsonObject
    peers: Sequence[str]
    """The servers that have it, by name; none: one server by itself."""
    servers: Mapping[str, Server]
    behind: Sequence[str]

    @property
    def is_cut_back(self) -> bool:
        """Whether a server may cut a replica of it back when it starts."""
        known = all(
            # guard: silent-server-may-lose-copies
            peer in self.servers and self.servers[peer].version < LOSING_SINCE
            for peer in self.peers
        )
        return int(self.config.get("num_replicas", 1)) > 1 and not (self.peers and known)

    @property
    def old(self) -> Sequence[str]:
        """The peers that still run since before it was changed, or that do not answer."""
        ids = str((self.config.get("metadata") or {}).get(UNCOMPRESSING, "")).split()
        # guard: silent-server-may-compress
        return [
            peer for peer in self.peers if peer not in self.servers or self.servers[peer].id in ids
        ]


async def require_uncompressed(link: Link, configs: Sequence[JsonObject]) -> None:
    """Change the streams of `configs` that are compressed, where that is safe.

    Raises:
        Incompatible: it is not, or the server made something else of it.
        Unavailable: the server refuses, or this user has no right to.
    """
    for config in configs:
        if needs_change(config):
            await _require_uncompressed(link, str(config["name"]))


async def _require_uncompressed(link: Link, name: str) -> None:
    copies = await _copies(link, name)
    if UNCOMPRESSING not in (copies.config.get("metadata") or {}):
        if copies.is_cut_back:  # guard: cut-back-copies-refused
            raise Incompatible(
                f"stream {name} is compressed, and has copies on servers since 2.15, which lose "
                "acknowledged messages of such streams when they are killed",
                remedy="Stop every node and run `vigil uncompress` once.",
            )
        await _change(link, copies)
    elif not copies.old:
        await _unmark(link, copies)
    elif copies.is_cut_back:  # guard: compressing-server-refused
        raise Incompatible(
            f"stream {name} was compressed, and {', '.join(copies.old)} has not been restarted "
            "since, which goes on compressing it",
            remedy="Run `vigil uncompress`, and do what it says.",
        )


async def uncompress(link: Link, stack: Stack, tell: Tell) -> Sequence[str]:
    """Change every compressed stream of `stack` and return their names; see the module.

    Raises:
        Incompatible: the server made something else of it, or this user lacks a right.
        Unavailable: the server refuses, or not all servers were restarted in `WAIT_S_MAX`.
    """
    ours = [str(each["name"]) for each in shapes(stack, link.settings)]
    found = {name: await setup.config_of(link, name) for name in ours}
    names = [name for name, config in found.items() if config and needs_change(config)]
    for name in names:
        copies = await _copies(link, name)
        if NOBODY in copies.servers:
            raise Incompatible(
                "this user may not ask which servers there are",
                remedy=f"Allow it to publish to {PING}, or run this as another user.",
            )
        if UNCOMPRESSING not in (copies.config.get("metadata") or {}):
            await _change(link, copies)
    await _wait_restarted(link, names, tell)
    return names


async def _wait_restarted(link: Link, names: Sequence[str], tell: Tell) -> None:
    """Wait until every server that has one of `names` was restarted, and has all of it."""
    until_s = link.clock.monotonic_s() + WAIT_S_MAX
    left = list(names)
    while left:
        every = [await _tried(link, name) for name in left]
        for copies in every:
            if copies is not None and not copies.old and not copies.behind:
                with suppress(Unavailable):  # It is tried again.
                    await _unmark(link, copies)
                    left.remove(str(copies.config["name"]))
        seen = [each for each in every if each is not None]
        old = sorted({peer for copies in seen for peer in copies.old})
        peers = {peer for copies in seen for peer in copies.peers}
        if peers:
            left_to_do = f" (still to restart in order, one at a time: {', '.join(old)})"
            stage = f"servers restarted{left_to_do if old else ''}"
            tell(stage, len(peers) - len(old), len(peers))
        if left and link.clock.monotonic_s() > until_s:
            raise Unavailable("waiting for the servers to be restarted", detail=", ".join(old))
        if left:
            await link.clock.sleep(LOOK_S)


async def _tried(link: Link, name: str) -> Copies | None:
    """Return what the servers say of a stream; None: they do not, as while one is restarted."""
    try:
        return await _copies(link, name)
    except Unavailable:
        return None


async def _copies(link: Link, name: str) -> Copies:
    info = await setup.info_of(link, name)
    if info is None:
        raise Unavailable(f"stream {name}", detail="it is gone")
    if int(info["config"].get("num_replicas", 1)) == 1:
        return Copies(info["config"], (), {}, ())
    cluster = info.get("cluster", {})
    peers = [str(each["name"]) for each in cluster.get("replicas") or ()]
    peers += [str(cluster["leader"])] if cluster.get("leader") else []
    servers = await servers_of(link, expected=len(peers))
    return Copies(info["config"], sorted(peers), servers, setup.behind(info))


async def _change(link: Link, copies: Copies) -> None:
    """Ask for no compression, and note who has to be restarted before there is none."""
    if not copies.peers:
        return await _update(link, copies.config, mark=None)
    running = (copies.servers[peer].id for peer in copies.peers if peer in copies.servers)
    return await _update(link, copies.config, mark=" ".join(running))


async def _unmark(link: Link, copies: Copies) -> None:
    if UNCOMPRESSING in (copies.config.get("metadata") or {}):
        await _update(link, copies.config, mark=None)


async def _update(link: Link, config: JsonObject, *, mark: str | None) -> None:
    name = str(config["name"])
    metadata = {
        key: value
        for key, value in (config.get("metadata") or {}).items()
        if key != UNCOMPRESSING and not key.startswith(OF_THE_SERVER)
    }
    if mark is not None:
        metadata[UNCOMPRESSING] = mark
    asked = {**config, "compression": UNCOMPRESSED, "metadata": metadata}
    try:
        await api.call(link, f"STREAM.UPDATE.{name}", asked)
    except api.RequestRefused as error:
        raise Unavailable(f"changing {name}", detail=str(error)) from error
    await setup.read_back(link, asked)

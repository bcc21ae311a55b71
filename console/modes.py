"""Modes of nodes, from the command line: who is up and what they do, and what they are to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from console.errors import Mistake, Trouble
from console.settings import Reading
from console.tables import Row
from console.who import who
from console.work import connected
from engine import modes
from engine.modes import ModeOrder, NodeMode, Orders
from engine.nodes import NodeInfo
from engine.runtime.presence import live_nodes
from streams.bucket import Bucket
from streams.clock import SystemClock
from streams.errors import RevisionConflict
from streams.keys import mode_key
from streams.ports import Ports

TRIES_MAX: Final = 16
"""Most tries to change what somebody else is changing, too."""

UP: Final = "up"
DOWN: Final = "not up"

_CLOCK: Final = SystemClock()


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Who is up, and what people said."""

    nodes: Sequence[NodeInfo]
    orders: Orders

    def actors(self) -> list[str]:
        """Return every actor of the nodes that are up."""
        return sorted({actor for node in self.nodes for actor in node.actors})


def look(reading: Reading) -> Look:
    """Return who is up, and what people said.

    Raises:
        Unavailable, Incompatible: the server cannot be asked.
    """

    async def asked() -> Look:
        async with connected(reading) as ports:
            return await look_at(ports)

    return asyncio.run(asked())


async def look_at(ports: Ports) -> Look:
    """Return who is up, and what people said."""
    nodes = await live_nodes(ports.gates)
    entries = await ports.registry.entries()
    return Look(nodes=nodes, orders=modes.orders_of(entries.values()))


def node_rows(seen: Look, *, node: str | None = None) -> list[Row]:
    """Return a row for each node that is up or that something is said about; or for one of them.

    Raises:
        Trouble: the one that is asked for is neither.
    """
    up = {info.name: info for info in seen.nodes}
    names = sorted({*up, *seen.orders.modes})
    if node is not None and node not in names:
        raise Trouble(f"no node {node!r} is up, and nothing is said about it; {_named(names)}")
    wanted = names if node is None else [node]
    return [_node_row(name, up.get(name), seen.orders.modes.get(name)) for name in wanted]


def pause_rows(orders: Orders) -> list[Row]:
    """Return a row for each actor that is paused."""
    return [
        {"actor_id": actor, "paused_by": each.by, "paused_at": each.at, "reason": each.reason}
        for actor, each in sorted(orders.pauses.items())
    ]


def parse_mode(text: str) -> NodeMode:
    """Return the mode that `text` says.

    Raises:
        Mistake: it says none.
    """
    try:
        return NodeMode(text)
    except ValueError as error:
        raise Mistake(f"{text!r} is no mode; use {', '.join(NodeMode)}") from error


def set_mode(
    reading: Reading, node: str, mode: NodeMode | None, *, actor: str | None, by: str | None
) -> str:
    """Say what a node is to do, up or not, and return one line about it.

    Args:
        reading: the settings.
        node: its name.
        mode: what it is to do; None: what it would do if nothing was said.
        actor: only as to this actor; None: as to all that nothing else is said about.
        by: who says so; None is whoever runs this program.

    Raises:
        BadName: `node` cannot name a node.
        Trouble: no node that is up has such an actor, or somebody else keeps changing it.
        Unavailable, Incompatible: the server cannot be asked.
    """
    name, at = who(reading, by), _CLOCK.now()

    def change(said: ModeOrder | None) -> ModeOrder | None:
        if mode is None:
            return modes.without_mode(said, actor=actor, by=name, at=at)
        return modes.with_mode(said, mode, actor=actor, by=name, at=at)

    async def done() -> str:
        async with connected(reading) as ports:
            seen = await look_at(ports)
            require_actor(seen, actor)
            await _change(ports.registry, node, change)
            return _said(seen, node, mode, actor)

    return asyncio.run(done())


def require_actor(seen: Look, actor: str | None) -> None:
    """Refuse an actor that none of the nodes that are up has; without any, nobody can tell.

    Raises:
        Trouble: says which there are.
    """
    known = seen.actors()
    if actor is not None and seen.nodes and actor not in known:
        raise Trouble(f"no node has an actor {actor!r}; {_named(known)}")


async def _change(
    registry: Bucket, node: str, change: Callable[[ModeOrder | None], ModeOrder | None]
) -> None:
    key = mode_key(node)
    for _ in range(TRIES_MAX):
        entry = await registry.get(key)
        before = None if entry is None else modes.orders_of([entry]).modes.get(node)
        wanted = change(before)
        if wanted is None:
            return await registry.delete(key)
        try:
            after = entry.revision if entry else 0
            await registry.put(key, msgspec.json.encode(wanted), after=after)
        except RevisionConflict:
            continue
        return None
    raise Trouble(f"somebody else keeps changing {key}; try again")


def _said(seen: Look, node: str, mode: NodeMode | None, actor: str | None) -> str:
    what = "as it was started" if mode is None else mode.value
    about = f"{node}, actor {actor}" if actor else node
    is_up = node in {info.name for info in seen.nodes}
    return f"{about}: {what}" + ("" if is_up else "; it is not up, and does so when it comes")


def _node_row(name: str, info: NodeInfo | None, said: ModeOrder | None) -> Row:
    order = said or ModeOrder()
    is_said = order.mode is not None
    return {
        "node": name,
        "state": UP if info else DOWN,
        "mode": (order.mode or (info.mode if info else None)),
        "said": "registry" if is_said else "its setting",
        "actors": dict(order.actors) or None,
        "by": order.by or None,
        "at": order.at,
        "host": info.host if info else None,
        "pid": info.pid if info else None,
        "version": info.version if info else None,
        "since": info.since if info else None,
        "lease_s": info.lease_s if info else None,
        "runs": _able(info, "runs"),
        "wakes": _able(info, "wakes"),
    }


def _able(info: NodeInfo | None, what: str) -> list[str] | None:
    """Return the actors that a node runs, or wakes, now."""
    if info is None:
        return None
    return sorted(actor for actor, each in info.actors.items() if getattr(each, what))


def _named(names: Sequence[str]) -> str:
    return f"known: {', '.join(names)}" if names else "none is known"

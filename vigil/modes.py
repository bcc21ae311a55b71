"""Modes of nodes, from the command line: who is up and what they do, and what they are to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from engine.cluster import modes
from engine.cluster.modes import ModeOrder, NodeMode, Orders
from engine.cluster.nodes import NodeInfo
from streams.clock import SystemClock
from streams.errors import RevisionConflict
from streams.keys import mode_key
from streams.ports.bucket import Bucket, Entry
from vigil.errors import Mistake, Trouble
from vigil.looking import Look, hint, look_at, near_hint, require_known, require_plausible
from vigil.settings import Reading
from vigil.tables import Row
from vigil.who import who
from vigil.work import connected

TRIES_MAX: Final = 16
"""Most tries to change what somebody else is changing, too."""

UP: Final = "up"
DOWN: Final = "not up"

_CLOCK: Final = SystemClock()


def look(reading: Reading) -> Look:
    """Return who is up, and what people said.

    Raises:
        Unavailable, Incompatible: the server cannot be asked.
    """

    async def asked() -> Look:
        async with connected(reading, creates=False) as ports:
            return await look_at(ports)

    return asyncio.run(asked())


def node_rows(seen: Look, *, node: str | None = None) -> list[Row]:
    """Return a row for each node that is up or that something is said about; or for one of them.

    Raises:
        Trouble: the one that is asked for is neither.
    """
    up = {info.name: info for info in seen.nodes}
    names = sorted({*up, *seen.orders.modes})
    if node is not None and node not in names:
        raise _nobody(seen, node)
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
    reading: Reading, node: str, mode: NodeMode, *, actor: str | None, by: str | None
) -> str:
    """Say what a node is to do, up or not, and return one line about it.

    Args:
        reading: the settings.
        node: its name.
        mode: what it is to do.
        actor: only as to this actor; None: as to all that nothing else is said about.
        by: who says so; None is whoever runs this program.

    Raises:
        BadName: `node` or `actor` is no name.
        Mistake: `by` is empty.
        Trouble: a node is up, and nobody knows the actor; or somebody else keeps changing it.
        Unavailable, Incompatible: the server cannot be asked.
    """
    name, at, key = who(reading, by), _CLOCK.now(), mode_key(node)

    def change(said: ModeOrder) -> ModeOrder | None:
        return modes.with_mode(said, mode, actor=actor, by=name, at=at)

    async def done() -> str:
        async with connected(reading, creates=False) as ports:
            seen = await look_at(ports)
            if actor is not None:
                await require_plausible(reading, ports, seen, actor)
            await _change(ports.registry, key, change)
            return f"{_about(node, actor)}: {mode.value}{_caveat(seen, node, actor)}"

    return asyncio.run(done())


def reset_mode(reading: Reading, node: str, *, actor: str | None, by: str | None) -> str:
    """Take back what was said of a node, or of one actor there, and return one line about it.

    Args:
        reading: the settings.
        node: its name.
        actor: only as to this actor; None: all that was said.
        by: who says so; None is whoever runs this program.

    Raises:
        BadName: `node` is no name.
        Mistake: `by` is empty.
        Trouble: nothing was said, and the node is not up, or nobody knows the actor; or somebody
            else keeps changing it.
        Unavailable, Incompatible: the server cannot be asked.
    """
    name, at, key = who(reading, by), _CLOCK.now(), mode_key(node)

    def change(said: ModeOrder) -> ModeOrder | None:
        return modes.without_mode(said, actor=actor, by=name, at=at)

    async def done() -> str:
        async with connected(reading, creates=False) as ports:
            seen, entry = await look_at(ports), await ports.registry.get(key)
            if entry is None and node not in _up(seen):
                raise _nobody(seen, node)
            if entry is None or (actor is not None and actor not in _order(entry).actors):
                if actor is not None:
                    await require_known(reading, ports, seen, actor)
                return f"{_about(node, actor)}: nothing was said"
            await _change(ports.registry, key, change)
            return f"{_about(node, actor)}: as it was started{_caveat(seen, node, actor)}"

    return asyncio.run(done())


async def _change(
    registry: Bucket, key: str, change: Callable[[ModeOrder], ModeOrder | None]
) -> None:
    for _ in range(TRIES_MAX):
        entry = await registry.get(key)
        wanted = change(_order(entry))
        if wanted is None:
            return await registry.delete(key)
        try:
            after = entry.revision if entry else 0
            await registry.put(key, msgspec.json.encode(wanted), after=after)
        except RevisionConflict:
            continue
        return None
    raise Trouble(f"somebody else keeps changing {key}; try again")


def _order(entry: Entry | None) -> ModeOrder:
    """Return what `entry` says of its node; nothing if there is none, or nobody can read it."""
    orders = modes.orders_of([] if entry is None else [entry]).modes.values()
    return next(iter(orders), ModeOrder())


def _about(node: str, actor: str | None) -> str:
    return f"{node}, actor {actor}" if actor else node


def _caveat(seen: Look, node: str, actor: str | None) -> str:
    """Return why what was said has no effect yet, in words; empty: it has."""
    if node not in _up(seen):
        # What something was said about before is no typo.
        near = "" if node in seen.orders.modes else near_hint(node, _up(seen))
        return f"; it is not up, and does so when it comes{near and f'; {near}'}"
    if actor is not None and actor not in seen.actors():
        return "; no node that is up has it"
    return ""


def _nobody(seen: Look, node: str) -> Trouble:
    near = hint(node, {*_up(seen), *seen.orders.modes})
    return Trouble(f"no node {node!r} is up, and nothing is said about it; {near}")


def _up(seen: Look) -> set[str]:
    """Return the names of the nodes that are up."""
    return {info.name for info in seen.nodes}


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

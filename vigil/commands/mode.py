"""`vigil mode`: the modes of nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import msgspec
import typer
from typer import Argument, Option

from engine.cluster.modes import ModeOrder, NodeMode, orders_of, with_mode, without_mode
from engine.cluster.nodes import NodeInfo
from streams.clock import SystemClock
from streams.key_changes import Change, change_key
from streams.keys import mode_key
from streams.ports.all import Ports
from streams.ports.bucket import Bucket, BucketEntry
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.stack import StackView, read_stack, require_known, require_plausible
from vigil.errors import Mistake, Trouble, hint, near_hint
from vigil.options import By, IsJson, who
from vigil.printing import tables
from vigil.printing.output import show_rows
from vigil.printing.tables import Row
from vigil.settings import Config

COLUMNS: Final = ("node", "state", "mode", "said", "actors", "by", "at", "host", "version", "since")
SPARE: Final = ("version", "host", "since", "at", "by")
PAUSE_COLUMNS: Final = ("actor_id", "paused_by", "paused_at", "reason")

SELF_TOLD: Final = ("host", "pid", "version", "since", "lease_s")
"""What a node that is up publishes of itself, as columns."""

UP: Final = "up"
DOWN: Final = "not up"

_CLOCK: Final = SystemClock()


def mode(
    ctx: typer.Context,
    *,
    node: Annotated[
        str | None, Argument(metavar="NODE", help="A node's name; by default all.")
    ] = None,
    wanted: Annotated[
        str | None,
        Argument(metavar="MODE", help="full, trigger_only or disabled; by default show the mode."),
    ] = None,
    actor: Annotated[str | None, Option(help="Only for this actor.")] = None,
    is_reset: Annotated[
        bool, Option("--reset", help="Remove the order: the node's own setting counts again.")
    ] = False,
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Show the modes of nodes, or set the mode of one. It counts at once, and after restarts.

    full: the node opens and runs episodes. trigger_only: it opens episodes and leaves them to other
    nodes. disabled: neither. Episodes that run there leave at their next barrier.
    """
    config = options.config(ctx)
    if wanted is None and not is_reset:
        if actor is not None:
            raise Mistake("mode: --actor needs a node and a mode, or --reset")
        return _show(with_ports(config, read_stack, is_reading=True), node, is_json=is_json)
    if node is None or (wanted is not None and is_reset):
        raise Mistake("mode: name a node, and give either a mode or --reset")
    name, at = who(config, by), _CLOCK.now()
    chosen = None if wanted is None else parse_mode(wanted)

    def change(order: ModeOrder) -> ModeOrder | None:
        if chosen is None:
            return without_mode(order, actor=actor, by=name, at=at)
        return with_mode(order, chosen, actor=actor, by=name, at=at)

    ordering = partial(_order, config, node=node, actor=actor, chosen=chosen, change=change)
    done = with_ports(config, ordering)
    print(f"{node}, actor {actor}: {done}" if actor else f"{node}: {done}")
    return None


def parse_mode(text: str) -> NodeMode:
    """Return the mode called `text`; raise `Mistake` if there is none."""
    try:
        return NodeMode(text)
    except ValueError as error:
        raise Mistake(f"{text!r} is no mode; use {', '.join(NodeMode)}") from error


def _show(seen: StackView, node: str | None, *, is_json: bool) -> None:
    rows = _node_rows(seen, node=node)
    paused = [
        {"actor_id": actor, "paused_by": each.by, "paused_at": each.at, "reason": each.reason}
        for actor, each in sorted(seen.orders.pauses.items())
    ]
    problems = seen.orders.problems
    if is_json:
        print(tables.as_json({"nodes": rows, "paused": paused, "ignored": problems}))
        return
    show_rows([tables.in_words(row) for row in rows], COLUMNS, is_json=False, spare=SPARE)
    if paused:
        tables.terminal().print(tables.table(paused, PAUSE_COLUMNS, title="\nPaused"))
    for key, why in problems.items():
        tables.terminal(stderr=True).print(f"{key} is ignored: {why}", markup=False)


def _node_rows(seen: StackView, *, node: str | None = None) -> list[Row]:
    up = {info.name: info for info in seen.nodes}
    names = sorted({*up, *seen.orders.modes})
    if node is not None and node not in names:
        raise _unknown(seen, node)
    wanted = names if node is None else [node]
    return [_node_row(name, up.get(name), seen.orders.modes.get(name)) for name in wanted]


async def _order(
    config: Config,
    ports: Ports,
    node: str,
    actor: str | None,
    *,
    chosen: NodeMode | None,
    change: Callable[[ModeOrder], ModeOrder | None],
) -> str:
    """Change the order for a node, and return in words what counts now."""
    seen = await read_stack(ports)
    if chosen is not None:
        if actor is not None:
            await require_plausible(config, ports, seen, actor)
    else:
        entry = await ports.registry.get(mode_key(node))
        if entry is None and node not in _up(seen):
            raise _unknown(seen, node)
        if entry is None or (actor is not None and actor not in _order_in(entry).actors):
            if actor is not None:
                await require_known(config, ports, seen, actor)
            return "there was no order"
    await _change(ports.registry, mode_key(node), change)
    counts = "as it was started" if chosen is None else chosen.value
    return f"{counts}{_caveat(seen, node, actor)}"


async def _change(
    registry: Bucket, key: str, change: Callable[[ModeOrder], ModeOrder | None]
) -> None:
    async def decide(entry: BucketEntry | None) -> Change[None]:
        wanted = change(_order_in(entry))
        return None, msgspec.json.encode(wanted) if wanted is not None else None

    await change_key(registry, key, decide)


def _order_in(entry: BucketEntry | None) -> ModeOrder:
    """Return the order in `entry`; an empty one if none can be read."""
    orders = orders_of([] if entry is None else [entry]).modes.values()
    return next(iter(orders), ModeOrder())


def _caveat(seen: StackView, node: str, actor: str | None) -> str:
    """Return why an order has no effect yet, in words; empty: it has."""
    if node not in _up(seen):
        # A name that had an order before is no typo.
        near = "" if node in seen.orders.modes else near_hint(node, _up(seen))
        return f"; it is not up, and does so when it comes{near and f'; {near}'}"
    if actor is not None and actor not in seen.actors():
        return "; no node that is up has it"
    return ""


def _unknown(seen: StackView, node: str) -> Trouble:
    near = hint(node, {*_up(seen), *seen.orders.modes})
    return Trouble(f"no node {node!r} is up, and there is no order for it; {near}")


def _up(seen: StackView) -> set[str]:
    return {info.name for info in seen.nodes}


def _node_row(name: str, info: NodeInfo | None, ordered: ModeOrder | None) -> Row:
    order = ordered or ModeOrder()
    return {
        "node": name,
        "state": UP if info else DOWN,
        "mode": (order.mode or (info.mode if info else None)),
        "said": "registry" if order.mode is not None else "its setting",
        "actors": dict(order.actors) or None,
        "by": order.by or None,
        "at": order.at,
        **{each: getattr(info, each, None) for each in SELF_TOLD},
        "runs": _able(info, "runs"),
        "wakes": _able(info, "wakes"),
    }


def _able(info: NodeInfo | None, what: str) -> list[str] | None:
    if info is None:
        return None
    return sorted(actor for actor, each in info.actors.items() if getattr(each, what))

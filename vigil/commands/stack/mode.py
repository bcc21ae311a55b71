"""`vigil mode`: the modes of nodes; `vigil orders`: all that people have ordered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from vigil.asking.stack import MODES_MEAN
from vigil.client.client import Client
from vigil.commands.call import call
from vigil.errors import Mistake
from vigil.options import By, IsJson, IsWide, Limit, PastTime, Reason, read_past
from vigil.printing import columns, tables
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.orders import order_in_words
from vigil.printing.output import DRY, rows_of, show_section, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from projections.records import OrderSummary
    from vigil.client.page import Page
    from vigil.client.stack.nodes import NodesView
    from vigil.client.stack.orders import OrderOutcome

NODES: Final = Listing(
    (
        Column("node", "node"),
        Column("state", "state"),
        Column("mode", "mode"),
        Column("set by", "said"),
        Column("other modes for", "actors"),
        Column("order", "order"),
        Column("reason", "reason"),
        Column("up for", "since", Form.AGE, wide="up since"),
        Column("host", "host"),
        Column("version", "version"),
    ),
    spare=("version", "host", "up for", "reason", "order"),
)
MEANT: Final = Listing((Column("mode", "mode"), Column("the node", "means", room=SENTENCE)))
PAUSES: Final = Listing(
    (
        Column("actor", "actor_id"),
        Column("paused by", "paused_by"),
        Column("age", "paused_at", Form.AGE, wide="paused"),
        Column("reason", "reason"),
    )
)
ORDERS: Final = Listing(
    (
        Column("age", "at", Form.AGE, wide="ordered"),
        Column("order", "order"),
        Column("node", "node"),
        Column("actor", "actor_id"),
        Column("expectation", "expectation_id"),
        Column("mode", "mode"),
        Column("partitions", "partitions"),
        Column("by", "person"),
        Column("reason", "reason"),
    ),
    spare=("partitions", "expectation", "reason"),
)
DRIFTS: Final = Listing((Column("order", "order_key"), Column("what was wrong", "problem")))
DRIFTS_DRY: Final = Listing((Column("order", "order_key"), Column("what is wrong", "problem")))

_CLOCK: Final = SystemClock()

app = typer.Typer(no_args_is_help=True)
"""`vigil orders`."""


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    node: Annotated[str | None, Option(help="Only about this node.")] = None,
    actor: Annotated[str | None, Option(help="Only about this actor.")] = None,
    at: PastTime = None,
    limit: Limit = 50,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List what people ordered of the running stack, the latest first.

    Modes of nodes, pauses of actors, resets of circuit breakers, and moves to other partitions.
    """
    then = read_past(at, what="--at", now=_CLOCK.now())

    async def listed(client: Client) -> Page[OrderSummary]:
        return await client.orders.list(node=node, actor=actor, at=then, limit=limit)

    page = call(ctx, listed)
    print_orders(page.rows, is_json=is_json, is_wide=is_wide, why_none=page.why_none, now=then)


def print_orders(
    rows: Sequence[Row],
    *,
    is_json: bool = False,
    is_wide: bool = False,
    why_none: str = "",
    now: datetime | None = None,
) -> None:
    """Print a list of orders."""
    shown = [{**row, "order": order_in_words(row)} for row in rows]
    given = rows if is_json else shown
    show_table(given, ORDERS, is_json=is_json, is_wide=is_wide, why_none=why_none, now=now)


@app.command()
def rebuild(
    ctx: typer.Context,
    *,
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Change nothing; show what would be done.")
    ] = False,
    is_json: IsJson = False,
) -> None:
    """Make the modes and pauses that nodes see what people have ordered.

    Nodes follow copies of the orders. Only a hand in the bucket, or its loss, makes them differ.
    """
    drifts = call(ctx, lambda client: client.orders.rebuild(dry_run=is_dry))
    rows = [{"order_key": each.key, "problem": each.says} for each in drifts]
    print_drifts(rows, is_dry=is_dry, is_json=is_json)


def print_drifts(rows: Sequence[Row], *, is_dry: bool, is_json: bool = False) -> None:
    """Print which orders nodes saw otherwise than they were given, or see so still."""
    why_none = "" if rows else "nothing to do: nodes see what was ordered"
    show_table(rows, DRIFTS_DRY if is_dry else DRIFTS, is_json=is_json, why_none=why_none)
    if is_dry and rows and not is_json:
        print(DRY)


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
    reason: Reason = "",
    by: By = None,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """Show the modes of nodes, or set the mode of one. It counts at once, and after restarts.

    full: the node opens and runs episodes. trigger_only: it opens episodes and leaves them to other
    nodes. disabled: neither. Episodes that run there leave at their next barrier.
    """
    if wanted is None and not is_reset:
        if actor is not None:
            raise Mistake("mode: --actor needs a node and a mode, or --reset")
        _show(
            call(ctx, lambda client: client.nodes.read(node=node), is_order=False),
            is_json=is_json,
            is_wide=is_wide,
        )
        return
    if node is None or (wanted is not None and is_reset):
        raise Mistake("mode: name a node, and give either a mode or --reset")
    which, only = node, actor or ""

    async def given(client: Client) -> OrderOutcome:
        if wanted is None:
            return await client.nodes.unset_mode(which, actor=only, reason=reason)
        return await client.nodes.set_mode(which, wanted, actor=only, reason=reason)

    done = call(ctx, given, by=by).says
    print(f"{node}, actor {actor}: {done}" if actor else f"{node}: {done}")


def _show(seen: NodesView, *, is_json: bool, is_wide: bool) -> None:
    rows, paused = rows_of(seen.nodes), rows_of(seen.paused)
    if is_json:
        print(tables.as_json({"nodes": rows, "paused": paused, "ignored": seen.ignored}))
        return
    print_nodes(rows, paused, is_wide=is_wide, now=_CLOCK.now())
    for key, why in seen.ignored.items():
        tables.terminal(stderr=True).print(f"{key} is ignored: {why}", markup=False)


def print_nodes(
    rows: Sequence[Row], paused: Sequence[Row], *, now: datetime, is_wide: bool = False
) -> None:
    """Print the modes of nodes, and the actors that are paused."""
    shown = [
        {**row, "actors": tables.in_words(row)["actors"], "order": _order(row, now)} for row in rows
    ]
    show_table(shown, NODES, is_wide=is_wide, now=now)
    used = {mode for each in rows for mode in _modes(each)}
    meant = [{"mode": each, "means": means} for each, means in MODES_MEAN.items() if each in used]
    show_section("Modes", meant, MEANT, now=now)
    show_section("Paused actors", paused, PAUSES, now=now)


def _order(row: Row, now: datetime) -> str:
    """Return who has ordered modes of a node, and how long ago."""
    ago = f"{columns.age(row['at'], now)} ago" if isinstance(row["at"], datetime) else ""
    return tables.SEPARATOR.join(filter(None, (f"by {row['by']}" if row["by"] else "", ago)))


def _modes(row: Row) -> list[object]:
    """Return the modes of a node, those for single actors included."""
    of_actors = row["actors"]
    return [row["mode"], *(of_actors.values() if isinstance(of_actors, Mapping) else ())]

"""`vigil mode`: what nodes do, and what they are to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from vigil.cli import context
from vigil.cli.output import IsJson, show_rows

if TYPE_CHECKING:
    from vigil.looking import Look

COLUMNS: Final = ("node", "state", "mode", "said", "actors", "by", "at", "host", "version", "since")
SPARE: Final = ("version", "host", "since", "at", "by")
PAUSE_COLUMNS: Final = ("actor_id", "paused_by", "paused_at", "reason")


def mode(
    ctx: typer.Context,
    *,
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="A node's name; by default all nodes.")
    ] = None,
    wanted: Annotated[
        str | None,
        typer.Argument(
            metavar="MODE", help="full, trigger_only or disabled; by default show the mode."
        ),
    ] = None,
    actor: Annotated[str | None, typer.Option(help="Only for this actor.")] = None,
    is_reset: Annotated[
        bool, typer.Option("--reset", help="Remove the stored mode: back to the setting.")
    ] = False,
    by: Annotated[str | None, typer.Option(help="The person; by default the current user.")] = None,
    is_json: IsJson = False,
) -> None:
    """Show the modes of nodes, or set one. A mode takes effect at once, and survives restarts.

    full: the node opens episodes and runs them. trigger_only: it opens episodes and leaves them
    to other nodes. disabled: neither. Running episodes are handed over at their next barrier.
    """
    from vigil import modes
    from vigil.errors import Mistake

    reading = context.reading(ctx)
    if wanted is None and not is_reset:
        if actor is not None:
            raise Mistake("mode: --actor goes with a node and a mode, or with --reset")
        return _show(modes.look(reading), node, is_json=is_json)
    if node is None or (wanted is not None and is_reset):
        raise Mistake("mode: say a node, and either a mode or --reset")
    if wanted is None:
        print(modes.reset_mode(reading, node, actor=actor, by=by))
    else:
        print(modes.set_mode(reading, node, modes.parse_mode(wanted), actor=actor, by=by))
    return None


def _show(seen: Look, node: str | None, *, is_json: bool) -> None:
    from vigil import modes, tables

    rows, paused = modes.node_rows(seen, node=node), modes.pause_rows(seen.orders)
    problems = seen.orders.problems
    if is_json:
        print(tables.as_json({"nodes": rows, "paused": paused, "ignored": problems}))
        return
    show_rows([tables.in_words(row) for row in rows], COLUMNS, is_json=False, spare=SPARE)
    if paused:
        tables.terminal().print(tables.table(paused, PAUSE_COLUMNS, title="\nPaused"))
    for key, why in problems.items():
        tables.terminal(stderr=True).print(f"{key} is ignored: {why}", markup=False)

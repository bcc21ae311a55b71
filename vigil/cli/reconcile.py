"""`vigil reconcile`: after a deploy, end what nobody declares any more and begin what is new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from vigil.cli import context
from vigil.cli.output import IsJson, show_rows

if TYPE_CHECKING:
    from engine.operations.reconcile import Reconciled

COLUMNS: Final = ("action", "actor_id", "expectation_id", "about", "outcome")


def reconcile(
    ctx: typer.Context,
    *,
    actors: Annotated[
        list[str] | None,
        typer.Option("--actor", metavar="ACTOR", help="Only this actor; repeatable."),
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Show the actions, and change nothing.")
    ] = False,
    by: Annotated[str | None, typer.Option(help="The person; by default the current user.")] = None,
    reason: Annotated[str, typer.Option(help="The reason, for people.")] = "",
    is_json: IsJson = False,
) -> None:
    """Remove timers, blocked episodes and gate state that no running node declares.

    If no running node declares a schedule or an expectation any more, its timers, blocked episodes,
    cooldowns and circuit breakers are removed. Schedules without a timer get one. Queued and
    running episodes continue, and actors that no node has are not touched.
    """
    from vigil import reconciling, tables

    reading = context.reading(ctx)
    done = reconciling.reconciled(reading, actors=actors or [], by=by, reason=reason, is_dry=is_dry)
    if is_json:
        print(tables.as_json(reconciling.as_report(done, is_dry=is_dry)))
        return
    show_reconciled(done, is_dry=is_dry)


def show_reconciled(done: Reconciled, *, is_dry: bool) -> None:
    """Print for people what was done, or would be, and what came of it."""
    from vigil import reconciling, tables

    for actor, why in done.skipped.items():
        line = f"vigil: {actor}: {why}; nothing of it is touched"
        tables.terminal(stderr=True).print(line, markup=False)
    if done.steps:
        show_rows([reconciling.row_of(each) for each in done.steps], COLUMNS, is_json=False)
    said = reconciling.in_words(done)
    print(f"dry run: {said}" if is_dry and done.steps else said)

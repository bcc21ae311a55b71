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
        typer.Option("--actor", metavar="ACTOR", help="Only of this actor. May be given again."),
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what there is to do.")
    ] = False,
    by: Annotated[
        str | None, typer.Option(help="Who wants it; by default whoever runs this.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for people.")] = "",
    is_json: IsJson = False,
) -> None:
    """Have timers, blocked episodes and what gates remember agree with what live nodes declare.

    What belongs to a schedule or an expectation that no node that is up declares any more is ended:
    timers, blocked episodes, cooldowns and circuit breakers. Schedules that have no timer get one.
    What is queued or runs goes on, and nothing is touched of an actor that no node has.
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

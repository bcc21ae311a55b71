"""`vigil repartition`: spread a stack that is at rest over another number of streams."""

from __future__ import annotations

from typing import Annotated

import typer

from vigil.cli import context


def repartition(
    ctx: typer.Context,
    *,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="N", help="The new number of partitions: 1 to 64."),
    ] = None,
    is_dropping: Annotated[
        bool, typer.Option("--drop-old", help="Delete the streams of earlier layouts.")
    ] = False,
) -> None:
    """Distribute the journal and the work of a stopped stack over another number of streams.

    Every commit is copied in order, and compared, before the copies are used. If the command is
    interrupted, run it again to continue, or with --to and the previous number to go back. The
    tables are rebuilt afterwards, because the positions on the journal change.
    """
    from vigil import repartitioning
    from vigil.errors import Mistake

    if to is None and not is_dropping:
        raise Mistake("repartition: say --to and a number of partitions, or --drop-old")
    reading = context.reading(ctx)
    if to is not None:
        print(repartitioning.move(reading, to=to))
    if is_dropping:
        names = repartitioning.drop_old(reading)
        print("\n".join(f"deleted {name}" for name in names) or "nothing to delete")

"""`vigil projections`: how far the tables are, whether they are right, and making them anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from vigil import options
from vigil.client.stack.projections import KEEP
from vigil.commands.call import call
from vigil.options import By, IsJson, IsSure, IsWide, require_consent
from vigil.printing import tables
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import DRY, rows_of, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from projections.custom.projection import Projection
    from projections.postgres.rebuild.pace import RebuildProgress
    from projections.postgres.rebuild.rebuild import (
        RebuildReport,
        RowDifference,
        TableChange,
        VerifyReport,
    )
    from vigil.client.client import Client
    from vigil.client.stack.projections import ProjectionsView

STATUS: Final = Listing(
    (
        Column("projection", "projection"),
        Column("position", "position"),
        Column("newest", "head"),
        Column("behind by", "lag"),
        Column("moved", "updated_at", Form.AGE, wide="moved at"),
        Column("trouble", "trouble"),
    ),
    spare=("moved",),
)
REBUILDS: Final = Listing(
    (
        Column("schema", "schema"),
        Column("state", "state"),
        Column("began", "began_at", Form.AGE, wide="began at"),
        Column("dropped after", "drop_at", Form.TIME),
    )
)
CHANGES: Final = Listing(
    (
        Column("table", "table"),
        Column("missing", "missing"),
        Column("needless", "needless"),
        Column("wrong", "wrong"),
    )
)

MostPerS = Annotated[
    float | None,
    Option("--most-per-s", metavar="EVENTS", help="Read at most so many events per second."),
]
IsAnew = Annotated[
    bool, Option("--anew", help="Begin anew what an earlier call has left unfinished.")
]

Own = Annotated[
    str | None,
    Option(
        "--own", metavar="MODULE:ATTRIBUTE", help="A projection of yours, not the tables of Vigil."
    ),
]

app = typer.Typer(no_args_is_help=True)
"""`vigil projections`."""


@app.command()
def status(ctx: typer.Context, *, is_wide: IsWide = False, is_json: IsJson = False) -> None:
    """Show how far the tables have followed each stream, and what rebuilds have left."""
    view = call(ctx, lambda client: client.projections.status())
    if is_json:
        print(tables.as_json(view))
        return
    print_status(view, is_wide=is_wide)


def print_status(
    view: ProjectionsView, *, is_wide: bool = False, now: datetime | None = None
) -> None:
    """Print how far the tables are."""
    named = [
        {
            **row,
            "projection": f"{row['own']}: {row['projection']}" if row["own"] else row["projection"],
        }
        for row in rows_of(view.projections)
    ]
    show_table(named, STATUS, is_wide=is_wide, now=now)
    if view.rebuilds:
        print()
        show_table(rows_of(view.rebuilds), REBUILDS, is_wide=is_wide, now=now)


@app.command("run")
def run_(
    ctx: typer.Context,
    *,
    own: Annotated[
        str,
        Argument(metavar="MODULE:ATTRIBUTE", help="The projection, looked up in this folder."),
    ],
) -> None:
    """Keep the tables of a projection of yours up to date, until SIGINT or SIGTERM."""
    from vigil.serving.own_projection import load_projection, serve_projection

    serve_projection(options.config(ctx), load_projection(own))


@app.command()
def rebuild(
    ctx: typer.Context,
    *,
    keep: Annotated[
        str, Option(metavar="DURATION", help="How long to keep what was replaced; 0s: not at all.")
    ] = KEEP,
    most_per_s: MostPerS = None,
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Say what would change, and change nothing.")
    ] = False,
    is_anew: IsAnew = False,
    own: Own = None,
    is_sure: IsSure = False,
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Make the rows of a stack anew from its journal, and swap those that differ.

    Nodes, projector and readers go on meanwhile, and see all of the change at once. Other stacks of
    the database are not touched. After an interruption the same command goes on where it was.
    """
    if not is_sure and not is_dry:
        require_consent("Rebuild the tables?")

    async def rebuilt(client: Client) -> RebuildReport:
        return await client.projections.rebuild(
            keep=keep,
            most_per_s=most_per_s,
            dry_run=is_dry,
            anew=is_anew,
            own=_loaded(own),
            tell=_tell,
        )

    report = call(ctx, rebuilt, by=by)
    if is_json:
        print(tables.as_json(report))
        return
    print_rebuilt(report)


def print_rebuilt(report: RebuildReport) -> None:
    """Print what a rebuild has changed, or would."""
    _print_changes(report.changes)
    print(f"{report.events:,} events in {report.took_s:,.1f} s")
    if report.replaced_in is not None and report.drop_at is not None:
        until = report.drop_at.isoformat(timespec="seconds")
        print(f"until {until} what was replaced is in schema\n  {report.replaced_in}")
    if report.is_dry and report.changes:
        print(DRY)


@app.command()
def verify(
    ctx: typer.Context,
    *,
    most_per_s: MostPerS = None,
    is_anew: IsAnew = False,
    own: Own = None,
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Hold the rows against what the journal says. Exit code 1: something differs."""
    from vigil.errors import EXIT_TROUBLE

    async def verified(client: Client) -> VerifyReport:
        return await client.projections.verify(
            most_per_s=most_per_s, anew=is_anew, own=_loaded(own), tell=_tell
        )

    report = call(ctx, verified, by=by)
    if is_json:
        print(tables.as_json(report))
    else:
        print_verified(report)
    if report.difference is not None:
        raise typer.Exit(EXIT_TROUBLE)


def print_verified(report: VerifyReport) -> None:
    """Print whether the rows are right, and where they first are not."""
    _print_changes(report.changes)
    if report.difference is not None:
        print("\n".join(_difference_lines(report.difference)))
    else:
        print("every row is what the journal says")
    print(f"{report.events:,} events in {report.took_s:,.1f} s")


def _loaded(own: str | None) -> Projection | None:
    if own is None:
        return None
    from vigil.serving.own_projection import load_projection

    return load_projection(own, option="--own")


def _print_changes(changes: Sequence[TableChange]) -> None:
    if changes:
        show_table(rows_of(changes), CHANGES)
    else:
        print("no row differs")


def _difference_lines(found: RowDifference) -> list[str]:
    key = ", ".join(f"{name}={value}" for name, value in found.key.items())
    at = "" if found.seq is None else f", at sequence {found.seq:,}"
    first = f"first difference{at}: {found.table}\n  {key}"
    if found.column is None:
        what = "is missing" if found.live is None else "is there, and nothing says so"
        return [first, f"  the row {what}"]
    return [
        first,
        f"  column:  {found.column}",
        f"  table:   {tables.as_json(found.live)}",
        f"  journal: {tables.as_json(found.journal)}",
    ]


def _tell(progress: RebuildProgress) -> None:
    if not progress.total:
        return
    says = f"{progress.stage}: {progress.done:,} of {progress.total:,}"
    if progress.stage == "reading" and progress.events:
        says += f", {progress.events_per_s:,.0f} events/s"
    if progress.left_s is not None and progress.done < progress.total:
        says += f", {progress.left_s:,.0f} s left"
    print(says, file=sys.stderr, flush=True)

"""`vigil retention`: how long things are kept, what is held, and letting go what is old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from vigil.commands.call import call
from vigil.options import By, IsJson, Reason
from vigil.printing import columns, tables
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import DRY, rows_of, show_section, show_table
from vigil.settings import FILE, kept_times

if TYPE_CHECKING:
    from datetime import datetime

    from projections.postgres.prune import OldRows
    from vigil.client.stack.retention import RetentionOutcome, RetentionView
    from vigil.printing.tables import Row

KEPT: Final = Listing(
    (Column("what", "what"), Column("actor", "actor_id"), Column("is kept for", "time"))
)
OLD: Final = Listing(
    (
        Column("what", "kind"),
        Column("actor", "actor_id"),
        Column("state", "state"),
        Column("over due", "due"),
        Column("since", "since", Form.AGE, wide="ended at"),
        Column("stay", "stay", room=SENTENCE),
    )
)
HOLDS: Final = Listing(
    (
        Column("kind", "kind"),
        Column("held", "held"),
        Column("since", "since", Form.AGE, wide="held since"),
        Column("by", "by"),
        Column("reason", "reason", room=SENTENCE),
    )
)
STEPS: Final = Listing(
    (
        Column("step", "step"),
        Column("gone", "gone"),
        Column("held", "held"),
        Column("what else", "says", room=SENTENCE),
    )
)
DELETED: Final = Listing((Column("table", "table"), Column("deleted rows", "rows")))

EVER: Final = "nothing goes but domain events, after 7 days: no settings and no actor say otherwise"

_CLOCK: Final = SystemClock()

app = typer.Typer(no_args_is_help=True)
"""`vigil retention`."""

hold = typer.Typer(no_args_is_help=True, help="Hold what must not go: add, remove, list.")
app.add_typer(hold, name="hold")

Kind = Annotated[str, Argument(metavar="KIND", help="subject, actor or episode.")]
Held = Annotated[
    str, Argument(metavar="ID", help="The subject's id alone, the actor, or the episode.")
]


@app.command()
def show(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """Show how long things are kept, what is old enough to go, and what is held."""
    seen = call(ctx, lambda client: client.retention.show())
    if is_json:
        print(tables.as_json(rows_of([seen])[0]))
        return
    print_retention(seen, now=_CLOCK.now())
    noted = {each.what: each.kept_s for each in seen.kept if each.actor_id is None}
    if said := _differing(noted):
        print(f"\n{said}")


def _differing(noted: Mapping[str, int]) -> str:
    """Return that the settings here differ from what nodes have noted, if they do."""
    kept = kept_times(Path(FILE))
    if kept is None or kept == noted:  # guard: unnoted-times-told
        return ""
    times = ", ".join(f"{what} {_spelled(each)}" for what, each in kept.items())
    return f"{FILE} says {times or 'nothing'}: a node that starts here notes that"


def print_retention(seen: RetentionView, *, now: datetime) -> None:
    """Print how long a stack keeps things, and how far that is carried out."""
    kept = [
        {**row, "time": _spelled(seen.kept[at].kept_s)} for at, row in enumerate(rows_of(seen.kept))
    ]
    show_table(kept, KEPT, why_none=EVER)
    show_section("Old enough to go", _old(seen.old), OLD, now=now)
    show_section("Held", rows_of(seen.holds), HOLDS, now=now)
    if seen.last is not None:
        problems = "; ".join(seen.last.problems)
        ago = columns.age(seen.last.at, now)
        said = f"\nLast run: {ago} ago, by {seen.last.by}" + (f": {problems}" if problems else "")
        tables.terminal().print(said, markup=False)


@app.command()
def run(
    ctx: typer.Context,
    *,
    is_dry: Annotated[
        bool, Option("--dry-run/--no-dry-run", help="Change nothing; show what would be done.")
    ] = False,
    by: By = None,
    is_json: IsJson = False,
) -> None:
    """Let go what is old now, as a node does every hour."""
    done = call(ctx, lambda client: client.retention.run(dry_run=is_dry), by=by)
    if is_json:
        print(tables.as_json(rows_of([done])[0]))
        return
    print_run(done, now=_CLOCK.now())


def print_run(done: RetentionOutcome, *, now: datetime) -> None:
    """Print what a run has let go, or would."""
    show_table(_old(done.old), OLD, why_none="no row is old enough to go", now=now)
    steps = [
        {
            **row,
            "gone": _counted(each.gone),
            "held": _counted(each.held),
            "says": row["problem"] or row["says"],
        }
        for each, row in zip(done.steps, rows_of(done.steps), strict=True)
    ]
    show_section("Steps", steps, STEPS, now=now)
    deleted = [{"table": table, "rows": count} for table, count in done.deleted.items()]
    show_section("Deleted", deleted, DELETED, now=now)
    if done.is_dry:
        print(DRY)


@hold.command("add")
def add(
    ctx: typer.Context,
    *,
    kind: Kind,
    held: Held,
    reason: Reason = "",
    unseen: Annotated[
        bool, Option("--unseen", help="Hold it though the tables have nothing of it.")
    ] = False,
    by: By = None,
) -> None:
    """Hold a subject, an actor or an episode: nothing of it goes, however old it is."""
    done = call(
        ctx,
        lambda client: client.retention.hold(kind, held, reason=reason, unseen=unseen),
        by=by,
    )
    print(f"{kind} {held}: {done.says}")


@hold.command("remove")
def remove(
    ctx: typer.Context, *, kind: Kind, held: Held, reason: Reason = "", by: By = None
) -> None:
    """Let go of what is held: it is kept for as long as everything else again."""
    done = call(ctx, lambda client: client.retention.release(kind, held, reason=reason), by=by)
    print(f"{kind} {held}: {done.says}")


@hold.command("list")
def list_(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """List what is held, by whom and why."""
    holds = rows_of(call(ctx, lambda client: client.retention.holds()))
    print_holds(holds, is_json=is_json, now=_CLOCK.now())


def print_holds(holds: Sequence[Row], *, now: datetime, is_json: bool = False) -> None:
    """Print what is held."""
    show_table(holds, HOLDS, is_json=is_json, why_none="nothing is held", now=now)


def _old(rows: Sequence[OldRows]) -> list[Row]:
    return [
        {
            **row,
            "due": each.due,
            "state": each.state or None,
            "stay": ", ".join(f"{count:,} for {why}" for why, count in each.stay.items()) or None,
        }
        for each, row in zip(rows, rows_of(rows), strict=True)
    ]


def _counted(counts: Mapping[str, int]) -> str | None:
    return ", ".join(f"{what} {count:,}" for what, count in counts.items() if count) or None


def _spelled(seconds: int) -> str:
    """Return a time as it may be written, in days or in hours."""
    days, rest = divmod(seconds, 86_400)
    return f"{seconds / 3_600:g}h" if rest else f"{days}d"

"""Commands about what is defined as data: the same for actors and for workflows.

vigil actors apply disks.yaml            vigil workflows apply onboarding.yaml
vigil actors disable disk_watch          vigil workflows disable onboarding
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from console.cli import applied, context
from console.cli.consent import require_consent
from console.cli.output import IsJson, show_rows
from console.cli.verdicts import By, IsSure, Reason

if TYPE_CHECKING:
    from console.tables import Row
    from streams.events.definitions import DefinitionKind

RECEIVED_S: Final = 10.0
"""How long nodes are waited for unless it is told otherwise, in seconds."""

HISTORY: Final = ("revision", "change", "by", "at", "reason")


class FileFormat(StrEnum):
    """What files may be written in."""

    JSON = "json"
    YAML = "yaml"
    TOML = "toml"


class TextFormat(StrEnum):
    """What a definition can be printed as."""

    YAML = "yaml"
    JSON = "json"


Id: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="What is defined, as in the list.")
]
Seen: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--if-revision", min=0, help="Only if it is still at this revision; 0: if it is new."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Give a group of commands those about definitions; which kind it is for, its name says."""
    for command in (apply, disable, history, definition):
        app.command()(command)


def apply(
    ctx: typer.Context,
    *,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="What to apply; - for standard input.")
    ],
    form: Annotated[
        FileFormat | None,
        typer.Option("--format", help="Of the files; by default as their names say."),
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:ATTRIBUTE", help="Check that this app has what the files name."
        ),
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    by: By = None,
    reason: Reason = "",
    seen: Seen = None,
    timeout_s: Annotated[
        float,
        typer.Option("--timeout", min=0.0, help="Longest wait for the nodes, in seconds; 0: none."),
    ] = RECEIVED_S,
    is_reconciling: Annotated[
        bool,
        typer.Option(
            "--reconcile",
            help="Then end what is left of what is gone, as vigil reconcile does.",
        ),
    ] = False,
    is_json: IsJson = False,
) -> None:
    """Have what files define hold from now on: nodes run it within moments, without a restart.

    All files are checked before anything is applied. What runs already ends as it began. Nodes
    that cannot run it are named. Exit code 1: nodes are up and none runs it; it holds nevertheless.
    """
    from console import defining, drafts, reconciling
    from console.apps import load
    from console.errors import Mistake
    from console.who import who

    if seen is not None and len(files) > 1:
        raise Mistake("--if-revision is for one file")
    reading = context.reading(ctx)
    reconcile = None
    if is_reconciling:
        _require_nodes(is_dry=is_dry, timeout_s=timeout_s)
        reconcile = reconciling.reconciler(reading, by=by, reason=reason)
    found = drafts.drafts_of(_kind(ctx), files, None if form is None else form.value)
    checked_by = None if app is None else load(app)
    if is_dry:
        planned = defining.preview(reading, found, app=checked_by, seen=seen)
        applied.show_planned(planned, is_json=is_json)
        return
    done = defining.apply(
        reading,
        found,
        app=checked_by,
        by=who(reading, by),
        reason=reason,
        seen=seen,
        say=lambda each: None if is_json else applied.say_applied(each, "revision"),
    )
    receptions = defining.wait_received(reading, done, timeout_s=timeout_s) if timeout_s else []
    applied.show_received(
        done,
        receptions,
        timeout_s=timeout_s,
        reconcile=reconcile,
        is_json=is_json,
    )


def disable(
    ctx: typer.Context,
    *,
    id_: Id,
    by: By = None,
    reason: Reason = "",
    seen: Seen = None,
    is_sure: IsSure = False,
) -> None:
    """Have a definition hold no longer, until it is applied again. What runs ends as it began."""
    from console import defining
    from console.who import who

    reading, kind = context.reading(ctx), _kind(ctx)
    stands = defining.look(reading, kind, id_)
    if not is_sure and stands.holds:
        require_consent(f"disable {id_}, which is at revision {stands.revision}?")
        # What was asked about is what is to be disabled, and nothing newer.
        seen = stands.revision if seen is None else seen
    done = defining.disable(reading, kind, id_, by=who(reading, by), reason=reason, seen=seen)
    what = "disabled" if done.happened else "was disabled already"
    print(f"{id_}: {what}, at revision {done.revision}")


def history(
    ctx: typer.Context,
    *,
    id_: Id,
    is_diff: Annotated[
        bool, typer.Option("--diff", help="With what each of them has changed.")
    ] = False,
    is_json: IsJson = False,
) -> None:
    """List the changes of a definition, oldest first."""
    from console import defined

    rows = defined.history(context.reading(ctx), _kind(ctx), id_, with_difference=is_diff)
    if is_json or not is_diff:
        show_rows(rows, HISTORY, is_json=is_json)
        return
    for row in rows:
        _say_chapter(row)


def definition(
    ctx: typer.Context,
    *,
    id_: Id,
    revision: Annotated[
        int | None, typer.Option(min=1, help="Which; by default the one applied last.")
    ] = None,
    form: Annotated[TextFormat, typer.Option("--format", help="What to write.")] = TextFormat.YAML,
) -> None:
    """Print a definition as it can be applied again."""
    from console import defined

    reading, kind = context.reading(ctx), _kind(ctx)
    print(defined.text_of(reading, kind, id_, revision=revision, form=form.value), end="")


def _kind(ctx: typer.Context) -> DefinitionKind:
    """Return what a command is about, by the group that it stands in."""
    from streams.events.definitions import DefinitionKind

    group = None if ctx.parent is None else ctx.parent.info_name
    return {"actors": DefinitionKind.AGENT, "workflows": DefinitionKind.WORKFLOW}[group or ""]


def _require_nodes(*, is_dry: bool, timeout_s: float) -> None:
    """Refuse to reconcile where no node is asked what it declares now."""
    from console.errors import Mistake

    if is_dry:
        raise Mistake("--reconcile changes something, and --dry-run nothing; choose one of them")
    if not timeout_s:
        raise Mistake("--reconcile is done once nodes run it; give them time with --timeout")


def _say_chapter(row: Row) -> None:
    from console import tables

    words = (tables.said(row[column]) for column in HISTORY)
    print(tables.printable("  ".join(filter(None, words))))
    applied.say_lines(row["difference"])

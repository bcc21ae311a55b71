"""Commands about what is defined as data: the same for actors and for workflows.

vigil actors apply disks.yaml            vigil workflows apply onboarding.yaml
vigil actors disable disk_watch          vigil workflows disable onboarding
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from console.cli import context
from console.cli.consent import require_consent
from console.cli.output import IsJson, show_rows
from console.cli.verdicts import By, IsSure, Reason

if TYPE_CHECKING:
    from console.defining import Applied
    from console.editions import Reception
    from console.tables import Row
    from streams.definitions import Edition
    from streams.events.definitions import DefinitionKind

RECEIVED_S: Final = 10.0
"""How long nodes are waited for unless it is told otherwise, in seconds."""

HISTORY: Final = ("revision", "change", "by", "at", "reason")

INDENT: Final = "  "


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
    is_json: IsJson = False,
) -> None:
    """Have what files define hold from now on: nodes run it within moments, without a restart.

    All files are checked before anything is applied. What runs already ends as it began. Nodes
    that cannot run it are named. Exit code 1: nodes are up and none runs it; it holds nevertheless.
    """
    from console import defining, drafts
    from console.apps import load
    from console.errors import Mistake
    from console.who import who

    if seen is not None and len(files) > 1:
        raise Mistake("--if-revision is for one file")
    reading = context.reading(ctx)
    found = drafts.drafts_of(_kind(ctx), files, None if form is None else form.value)
    checked_by = None if app is None else load(app)
    if is_dry:
        planned = defining.preview(reading, found, app=checked_by, seen=seen)
        _show_planned(planned, is_json=is_json)
        return
    applied = defining.apply(
        reading,
        found,
        app=checked_by,
        by=who(reading, by),
        reason=reason,
        seen=seen,
        say=lambda each: None if is_json else _say_applied(each, "revision"),
    )
    receptions = defining.wait_received(reading, applied, timeout_s=timeout_s) if timeout_s else []
    _show_received(applied, receptions, timeout_s=timeout_s, is_json=is_json)


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


def _show_planned(planned: Sequence[Applied], *, is_json: bool) -> None:
    from console import tables

    if is_json:
        print(tables.as_json([each.as_row() for each in planned]))
        return
    for each in planned:
        _say_applied(each, "would be revision")


def _say_applied(applied: Applied, becomes: str) -> None:
    """Print what applying a definition has made of it, or would make."""
    edition = applied.edition
    what = becomes if applied.happened else "as it is already: revision"
    print(f"{edition.id}: {what} {edition.revision}")
    _say_lines(applied.difference)


def _show_received(
    applied: Sequence[Applied],
    receptions: Sequence[Reception],
    *,
    timeout_s: float,
    is_json: bool,
) -> None:
    """Print what the nodes make of what was applied; exit code 1 if none runs one."""
    from console import tables
    from console.errors import EXIT_TROUBLE

    if is_json:
        told = [each.as_row() for each in receptions] or [{} for _ in applied]
        rows = [{**each.as_row(), **said} for each, said in zip(applied, told, strict=True)]
        print(tables.as_json(rows))
    else:
        for each, reception in zip(applied, receptions, strict=bool(receptions)):
            _say_received(each.edition, reception, timeout_s=timeout_s)
    if any(each.is_in_vain for each in receptions):
        raise typer.Exit(EXIT_TROUBLE)


def _say_received(edition: Edition, said: Reception, *, timeout_s: float) -> None:
    if said.running:
        print(f"{edition.id}: runs on {', '.join(said.running)}")
    elif not said.is_in_vain:
        print(f"{edition.id}: no node is up; those that start run it")
    for node, problem in said.failing.items():
        _warn(f"{edition.id}: {node} cannot run it: {problem}")
    for node in said.silent:
        which = f"that it runs revision {edition.revision}"
        _warn(f"{edition.id}: {node} has not said within {timeout_s:g} s {which}")


def _say_chapter(row: Row) -> None:
    from console import tables

    words = (tables.said(row[column]) for column in HISTORY)
    print(tables.printable("  ".join(filter(None, words))))
    _say_lines(row["difference"])


def _say_lines(lines: object) -> None:
    from console import tables

    assert isinstance(lines, list)
    for line in lines:
        print(tables.printable(f"{INDENT}{line}"))


def _warn(line: str) -> None:
    from console import tables

    print(tables.printable(f"vigil: {line}"), file=sys.stderr)

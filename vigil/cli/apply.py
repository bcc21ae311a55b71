"""`vigil apply`: what files define holds. `vigil actors apply` and its like are for one kind.

vigil apply definitions/ --dry-run        vigil actors apply disks.yaml
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from vigil.cli import applied, context
from vigil.cli.output import IsJson
from vigil.cli.verdicts import By, Reason

if TYPE_CHECKING:
    from streams.model.events.definitions import DefinitionKind

RECEIVED_S: Final = 10.0
"""How long nodes are waited for unless it is told otherwise, in seconds."""


class FileFormat(StrEnum):
    """What files may be written in."""

    JSON = "json"
    YAML = "yaml"
    TOML = "toml"


Seen: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--if-revision",
        min=0,
        help="Apply only if this is the current revision; 0: if there never was one.",
    ),
]
ForNodes: TypeAlias = Annotated[
    float,
    typer.Option("--timeout", min=0.0, help="Longest wait for the nodes, in seconds; 0: none."),
]


def apply(
    ctx: typer.Context,
    *,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Files, or folders with .yaml, .yml, .json and .toml files; - for standard input.",
        ),
    ],
    form: Annotated[
        FileFormat | None,
        typer.Option("--format", help="Format of the files; by default by their names."),
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:ATTRIBUTE",
            help="Check that this app has all parts that the files name.",
        ),
    ] = None,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")
    ] = False,
    by: By = None,
    reason: Reason = "",
    seen: Seen = None,
    timeout_s: ForNodes = RECEIVED_S,
    is_reconciling: Annotated[
        bool,
        typer.Option(
            "--reconcile",
            help="Then remove leftovers of removed parts, as vigil reconcile does.",
        ),
    ] = False,
    is_json: IsJson = False,
) -> None:
    """Apply definition files to the running stack, without a restart.

    All files are checked before any is applied, actors before workflows. Open episodes keep their
    revision. Nodes that cannot run a definition are listed. Exit code 1: nodes are up, and none of
    them can run it; it is applied nevertheless.
    """
    from vigil import defining, drafts, receiving, reconciling
    from vigil.apps import load
    from vigil.errors import Mistake
    from vigil.fitting import unchecked
    from vigil.who import who

    reading = context.reading(ctx)
    name = who(reading, by)
    defining.check_reason(reason)
    reconcile = None
    if is_reconciling:
        _require_nodes(is_dry=is_dry, timeout_s=timeout_s)
        reconcile = reconciling.reconciler(reading, by=by, reason=reason)
    found = drafts.drafts_of(kind_of_group(ctx), paths, None if form is None else form.value)
    if seen is not None and len(found) > 1:
        raise Mistake("--if-revision is for one file")
    checked_by = None if app is None else load(app)
    if is_dry:
        planned = defining.preview(reading, found, app=checked_by, seen=seen)
        named = unchecked(found) if checked_by is None else []
        applied.show_planned(planned, named, is_json=is_json)
        return
    done = defining.apply(
        reading,
        found,
        app=checked_by,
        by=name,
        reason=reason,
        seen=seen,
        say=lambda each: None if is_json else applied.say_applied(each, "revision"),
    )
    receptions = receiving.wait_received(reading, done, timeout_s=timeout_s) if timeout_s else []
    applied.show_received(
        done,
        receptions,
        timeout_s=timeout_s,
        reconcile=reconcile,
        is_json=is_json,
    )


def kind_of_group(ctx: typer.Context) -> DefinitionKind | None:
    """Return what a command is about, by the group that it stands in; None: it is in none."""
    from vigil.editions import GROUPS

    group = None if ctx.parent is None else ctx.parent.info_name
    return next((kind for kind, each in GROUPS.items() if each == group), None)


def _require_nodes(*, is_dry: bool, timeout_s: float) -> None:
    """Refuse to reconcile where no node is asked what it declares now."""
    from vigil.errors import Mistake

    if is_dry:
        raise Mistake("--reconcile changes something, and --dry-run nothing; choose one of them")
    if not timeout_s:
        raise Mistake("--reconcile is done once nodes run it; give them time with --timeout")

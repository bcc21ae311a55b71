"""Commands about what is defined as data: the same for actors and for workflows.

vigil actors apply disks.yaml            vigil workflows apply onboarding.yaml
vigil actors disable disk_watch          vigil workflows disable onboarding
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from vigil.cli import applied, context
from vigil.cli.apply import RECEIVED_S, ForNodes, Seen, apply, kind_of_group
from vigil.cli.consent import require_consent
from vigil.cli.output import IsJson, show_rows
from vigil.cli.verdicts import By, IsSure, Reason

if TYPE_CHECKING:
    from streams.model.events.definitions import DefinitionKind
    from vigil.tables import Row

HISTORY: Final = ("revision", "change", "person", "at", "reason")


class TextFormat(StrEnum):
    """What a definition can be printed as."""

    YAML = "yaml"
    JSON = "json"


Id: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="The actor's id, or the workflow's name.")
]


def add_to(app: typer.Typer) -> None:
    """Give a group of commands those about definitions; which kind it is for, its name says."""
    for command in (apply, disable, history, definition):
        app.command()(command)


def disable(
    ctx: typer.Context,
    *,
    id_: Id,
    by: By = None,
    reason: Reason = "",
    seen: Seen = None,
    is_sure: IsSure = False,
    timeout_s: ForNodes = RECEIVED_S,
    is_json: IsJson = False,
) -> None:
    """Disable a definition until it is applied again. Open episodes continue.

    New events wait, and fire when it is applied again.
    """
    from vigil import defining, receiving
    from vigil.who import who

    reading, kind = context.reading(ctx), _kind(ctx)
    stands = defining.look(reading, kind, id_)
    revision, holds = stands.definition.revision, stands.definition.holds
    if holds and not is_json:
        applied.say_needed(id_, stands.needed_by)
    if holds and not is_sure:
        require_consent(f"disable {id_}, which is at revision {revision}?")
        # What was asked about is what is to be disabled, and nothing newer.
        seen = revision if seen is None else seen
    done = defining.disable(reading, kind, id_, by=who(reading, by), reason=reason, seen=seen)
    if not is_json:
        what = "disabled" if done.happened else "was disabled already"
        print(f"{id_}: {what}, at revision {done.edition.revision}", flush=True)
    release = receiving.wait_released(reading, kind, id_, timeout_s=timeout_s)
    applied.show_released(done, stands.needed_by, release, timeout_s=timeout_s, is_json=is_json)


def history(
    ctx: typer.Context,
    *,
    id_: Id,
    is_diff: Annotated[
        bool, typer.Option("--diff", help="Show what each revision changed.")
    ] = False,
    is_json: IsJson = False,
) -> None:
    """List the changes of a definition, oldest first."""
    from vigil import defined

    rows = defined.history(context.reading(ctx), _kind(ctx), id_, with_difference=is_diff)
    shown = rows if is_json else list(map(defined.in_words, rows))
    if is_json or not is_diff:
        show_rows(shown, HISTORY, is_json=is_json)
        return
    for row in shown:
        _say_chapter(row)


def definition(
    ctx: typer.Context,
    *,
    id_: Id,
    revision: Annotated[
        int | None, typer.Option(min=1, help="The revision; by default the latest.")
    ] = None,
    form: Annotated[TextFormat, typer.Option("--format", help="Output format.")] = TextFormat.YAML,
) -> None:
    """Print a definition as it can be applied again."""
    from vigil import defined

    reading, kind = context.reading(ctx), _kind(ctx)
    print(defined.text_of(reading, kind, id_, revision=revision, form=form.value), end="")


def _kind(ctx: typer.Context) -> DefinitionKind:
    """Return what a command is about, by the group that it stands in."""
    kind = kind_of_group(ctx)
    assert kind is not None, "these commands stand in the groups of the kinds"
    return kind


def _say_chapter(row: Row) -> None:
    from vigil import tables

    words = (tables.said(row[column]) for column in HISTORY)
    print(tables.printable("  ".join(filter(None, words))))
    applied.say_lines(row["difference"])

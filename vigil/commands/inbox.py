"""`vigil inbox`: everything that waits for a person."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final

import typer
from rich.text import Text
from typer import Option

from vigil.commands.call import call
from vigil.options import IsJson, Limit
from vigil.printing.output import show_rows
from vigil.printing.tables import Row, in_words, printable, said, terminal

INDENT: Final = "  "
WHO: Final = "who may decide"
CHANGE: Final = "add --changes '{…}' to approve it with changes"


def inbox(
    ctx: typer.Context,
    *,
    actor: Annotated[str | None, Option(help="Only of this actor.")] = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List what waits for a person, with the command to type, oldest first."""
    page = call(ctx, lambda client: client.inbox(actor=actor, limit=limit))
    if is_json:
        show_rows(page.rows, (), is_json=True, why_none=page.why_none)
        return
    for line in lines(page.rows):
        terminal().print(line, soft_wrap=True)
    if not page.rows:
        why = page.why_none or "nothing waits for anybody"
        terminal(stderr=True).print(why, markup=False)


def lines(rows: Iterable[Row]) -> Iterator[Text]:
    """Yield a few lines for each row of `list_inbox`; commands on lines of their own, to copy."""
    for row in rows:
        yield Text(_headline(row), style="bold")
        yield Text(f"{INDENT}{_one_line(row['summary'])}")
        if row["approvers"]:
            yield Text(f"{INDENT}{WHO}: {_one_line(in_words(row)['approvers'])}")
        yield Text(f"{INDENT}{printable(said(row['what_to_do']))}", style="cyan")
        if row["editable"]:
            yield Text(f"{INDENT}{CHANGE}")


def _what(row: Row) -> str:
    """Return what waits, in words: what can be approved is called an approval."""
    match row["kind"]:
        case "workflow_step":
            return "approval of step" if row["editable"] else "failed step"
        case "output":
            return "approval of an output of"
        case "nondeterministic_replay":
            return "parked episode of"
        case kind:
            return f"{str(kind).replace('_', ' ')}{' of' if row['actor_id'] else ''}"


def _headline(row: Row) -> str:
    whose = [said(row[each]) for each in ("actor_id", "expectation_id") if row[each]]
    names = [".".join(whose)] if whose else []
    thing = _one_line(f"{said(row['subject_kind'])} {said(row['subject_id'])}")
    about = f" about {thing}" if row["subject_id"] else ""
    until = f", until {said(row['expires_at'])} UTC" if row["expires_at"] else " UTC"
    many = row["episodes"] if row["episodes"] != 1 else None
    among = f", for {many} episodes" if many else ""
    return f"{' '.join([_what(row), *names])}{about} since {said(row['since'])}{until}{among}"


def _one_line(text: object) -> str:
    return printable(" ".join(said(text).split()))

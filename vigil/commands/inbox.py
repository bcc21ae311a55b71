"""`vigil inbox`: everything that waits for a person."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.text import Text
from typer import Option

from streams.clock import SystemClock
from streams.model.events import BlockReason
from streams.model.waits import progress
from vigil.commands.call import call
from vigil.options import IsJson, Limit, PastTime, read_past
from vigil.printing import columns
from vigil.printing.output import show_rows
from vigil.printing.tables import Row, in_words, printable, said, terminal

INDENT: Final = "  "
WHO: Final = "who may decide"
CHANGE: Final = "add --changes '{…}' to approve it with changes"
ANSWER: Final = "add --result '{…}' to give it an answer"
REASON: Final = "--reason '…'"

WAIT: Final = "wait"

_CLOCK: Final = SystemClock()


def inbox(
    ctx: typer.Context,
    *,
    actor: Annotated[str | None, Option(help="Only of this actor.")] = None,
    at: PastTime = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List what waits for a person, with the command to type, oldest first."""
    then = read_past(at, what="--at", now=_CLOCK.now())
    page = call(ctx, lambda client: client.inbox(actor=actor, at=then, limit=limit))
    if is_json:
        show_rows(page.rows, (), is_json=True, why_none=page.why_none)
        return
    print_inbox(page.rows, limit=limit, why_none=page.why_none, now=then or _CLOCK.now())


def print_inbox(rows: Sequence[Row], *, limit: int, why_none: str, now: datetime) -> None:
    """Print how much waits for a person, and each of it."""
    if rows:
        terminal().print(_counted(len(rows), limit=limit), end="\n\n")
    for line in lines(rows, now=now):
        terminal().print(line, soft_wrap=True)
    if not rows:
        why = why_none or "nothing waits for anybody"
        terminal(stderr=True).print(why, markup=False)


def _counted(count: int, *, limit: int) -> str:
    if count == limit:
        return f"the oldest {count:,} things that wait for somebody; --limit shows more"
    return f"{count:,} {'thing waits' if count == 1 else 'things wait'} for somebody"


def lines(rows: Iterable[Row], *, now: datetime) -> Iterator[Text]:
    """Yield lines for each row of `list_inbox`; each command has one of its own, to copy."""
    for number, row in enumerate(rows):
        if number:
            yield Text("")
        yield Text(_headline(row, now), style="bold")
        yield Text(f"{INDENT}{_one_line(row['summary'])}")
        if row["approvers"]:
            yield Text(f"{INDENT}{WHO}: {_one_line(in_words(row)['approvers'])}")
        if so_far := progress_in(row):
            yield Text(f"{INDENT}{_one_line(so_far)}")
        for command in commands(row):
            yield Text(f"{INDENT}{printable(command)}", style="cyan")
        if row["editable"]:
            yield Text(f"{INDENT}{CHANGE}")
        if row["kind"] == WAIT:
            yield Text(f"{INDENT}{ANSWER}")


def progress_in(row: Row) -> str:
    """Return how many have approved what takes several, and who; empty: one is enough."""
    quorum, given = row.get("quorum"), row.get("approved_by")
    names = [str(each) for each in given] if isinstance(given, list) else []
    return progress(quorum, names) if isinstance(quorum, int) else ""


def commands(row: Row) -> Sequence[str]:
    """Return what can be typed about a row of `list_inbox`: `what_to_do` first, then what else."""
    first = said(row["what_to_do"])
    vigil, group, act, rest = first.split(maxsplit=3)
    group = f"{vigil} {group}"
    match row["kind"], act:
        case _, "approve":
            other = "reject" if row["kind"] == "output" else "deny"
            return first, f"{group} {other} {REASON} {rest}"
        case "workflow_step", "resume":
            instance_id, _ = rest.split(maxsplit=1)
            skip = f"{first.removesuffix('--retry')}--skip"
            return first, skip, f"{group} cancel {instance_id}"
        case BlockReason.NONDETERMINISTIC_REPLAY, "show":
            return first, f"{group} fork {rest} --at N", f"{group} cancel {rest}"
        case "dead_letter", "show" | "retry":
            from engine.errors import OUTCOME_UNKNOWN  # Most of what waits needs no engine.

            key = shlex.quote(said(row["id"]))
            # What nobody knows the outcome of, a person settles: `show` has the command.
            is_known = not said(row["summary"]).startswith(f"{OUTCOME_UNKNOWN}:")
            again = [f"{group} requeue {key}"] if act == "show" and is_known else []
            return first, *again, f"vigil dead discard {REASON} {key}"
        case _:
            return (first,)


def _what(row: Row) -> str:
    """Return what waits, in words: what can be approved is called an approval."""
    match row["kind"]:
        case "workflow_step":
            return "approval of step" if row["editable"] else "failed step"
        case "output":
            return "approval of output"
        case BlockReason.NONDETERMINISTIC_REPLAY:
            return "parked episode"
        case kind:
            return said(kind).replace("_", " ")


def _headline(row: Row, now: datetime) -> str:
    whose = ".".join(said(row[each]) for each in ("actor_id", "expectation_id") if row[each])
    about = " ".join(said(row[each]) for each in ("subject_kind", "subject_id") if row[each])
    return "  ".join(filter(None, (_what(row), whose, _one_line(about), _times(row, now))))


def _times(row: Row, now: datetime) -> str:
    """Return for how long it waits, until when, and for how many episodes."""
    since, ends = row["since"], row["expires_at"]
    words = [columns.age(since, now)] if isinstance(since, datetime) else []
    if isinstance(ends, datetime):
        far = columns.age(ends, now)
        words.append(f"ends {far}" if ends > now else f"ended {far} ago")
    if row["episodes"] not in (None, 1):
        words.append(f"for {row['episodes']} episodes")
    return ", ".join(words)


def _one_line(text: object) -> str:
    return printable(" ".join(said(text).split()))

"""`vigil dead`: dead letters, and what people decide about them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, TypeAlias

import typer
from typer import Argument, Option

from streams.clock import SystemClock
from vigil.client.page import LIMIT_MAX
from vigil.commands.call import call
from vigil.errors import Mistake
from vigil.options import By, IsJson, IsWide, Limit, require_consent
from vigil.printing import columns
from vigil.printing.columns import SENTENCE, Column, Form, Listing
from vigil.printing.output import report, show_record, show_sheet, show_table
from vigil.printing.tables import Row

app = typer.Typer(no_args_is_help=True)

LISTING: Final = Listing(
    (
        Column("key", "letter_key", Form.KEY),
        Column("status", "status"),
        Column("reason", "reason"),
        Column("age", "lettered_at", Form.AGE, wide="set aside"),
        Column("detail", "detail", room=SENTENCE),
        Column("actor", "actor_id"),
        Column("settled by", "settled_by"),
        Column("note", "settled_note"),
        Column("subject of the message", "source_subject"),
    ),
    spare=("subject of the message", "note", "settled by", "actor", "detail", "age"),
)
TOLD: Final = frozenset({
    "stack", "journal_seq", "letter_key", "status", "reason", "detail", "lettered_at", "settled_at",
    "source_stream", "source_seq", "source_subject", "output_status",
})  # fmt: skip
"""The columns of a dead letter that the first lines tell, or that are for programs."""

_CLOCK: Final = SystemClock()

WAITING: Final = "waiting"

Keys: TypeAlias = Annotated[
    list[str] | None, Argument(metavar="KEY", help="Keys of dead letters, as the list shows them.")
]
IsAllWaiting: TypeAlias = Annotated[
    bool, Option("--all-waiting", help="Every dead letter that waits.")
]
IsSureOfAll: TypeAlias = Annotated[
    bool, Option("--yes", help="With --all-waiting: do not ask for confirmation.")
]


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    is_all: Annotated[bool, Option("--all", help="Also those that are settled.")] = False,
    limit: Limit = 50,
    is_wide: IsWide = False,
    is_json: IsJson = False,
) -> None:
    """List dead letters that wait for a decision, the latest first."""
    status = None if is_all else WAITING
    page = call(ctx, lambda client: client.dead_letters.list(status=status, limit=limit))
    show_table(page.rows, LISTING, is_json=is_json, is_wide=is_wide, why_none=page.why_none)


@app.command()
def show(
    ctx: typer.Context,
    *,
    key: Annotated[
        str, Argument(metavar="KEY", help="The dead letter's key, as the list shows it.")
    ],
    is_json: IsJson = False,
) -> None:
    """Show one dead letter, its message, and the command that settles it."""
    row = call(ctx, lambda client: client.dead_letters.describe(key))
    payload, todo = row["payload"], row.pop("what_to_do")
    assert isinstance(payload, bytes)
    words = {"payload": payload.decode(errors="replace"), "what_to_do": todo}
    if is_json:
        show_record(row | words, is_json=True)
    else:
        print_letter(row | words, now=_CLOCK.now())


def print_letter(row: Row, *, now: datetime) -> None:
    """Print one dead letter."""
    first = {
        "status": row["status"],
        "reason": row["reason"],
        "detail": row["detail"],
        "set aside": columns.moment(row["lettered_at"], now),
        "settled": columns.moment(row["settled_at"], now),
        "message": f"{row['source_seq']} of stream {row['source_stream']}",
        "subject of the message": row["source_subject"],
    }
    show_sheet(
        f"dead letter {row['letter_key']}", columns.sheet(row, usual={}, hidden=TOLD, first=first)
    )


@app.command()
def requeue(
    ctx: typer.Context,
    *,
    keys: Keys = None,
    is_all_waiting: IsAllWaiting = False,
    is_sure: IsSureOfAll = False,
    by: By = None,
) -> None:
    """Try again: publish the event, open another episode, or send the command again."""
    chosen = _chosen(ctx, "requeue", keys, is_all_waiting=is_all_waiting, is_sure=is_sure)
    report(call(ctx, lambda client: client.dead_letters.requeue(*chosen), by=by))


@app.command()
def discard(
    ctx: typer.Context,
    *,
    keys: Keys = None,
    is_all_waiting: IsAllWaiting = False,
    is_sure: IsSureOfAll = False,
    reason: Annotated[str, Option(help="Why they are discarded; kept with them.")],
    by: By = None,
) -> None:
    """Discard dead letters. They stay in the table, and no longer wait."""
    chosen = _chosen(ctx, "discard", keys, is_all_waiting=is_all_waiting, is_sure=is_sure)
    report(call(ctx, lambda client: client.dead_letters.discard(*chosen, reason=reason), by=by))


def _chosen(
    ctx: typer.Context, what: str, keys: list[str] | None, *, is_all_waiting: bool, is_sure: bool
) -> list[str]:
    if bool(keys) is is_all_waiting:
        raise Mistake("name the dead letters, or give --all-waiting")
    if keys:
        return keys
    page = call(ctx, lambda client: client.dead_letters.list(limit=LIMIT_MAX))
    if page.items and not is_sure:
        require_consent(f"{what} {len(page.items):,} dead letters?")
    return [each.letter_key for each in page.items]

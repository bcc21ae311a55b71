"""`vigil dead`: what could not be done, and what a person decides about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from vigil.cli import context
from vigil.cli.consent import require_consent
from vigil.cli.output import IsJson, Limit, show_record, show_rows

if TYPE_CHECKING:
    from vigil.letters import Settled
    from vigil.settings import Reading

app = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, requeue, discard.")

COLUMNS: Final = (
    "letter_key", "status", "reason", "actor_id", "source_subject", "lettered_at", "settled_by",
    "settled_note", "detail",
)  # fmt: skip
SPARE: Final = (
    "source_subject", "settled_note", "settled_by", "lettered_at", "actor_id", "detail",
)  # fmt: skip
WAITING: Final = "waiting"

Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY", help="Keys of dead letters, from the list."),
]
IsAllWaiting: TypeAlias = Annotated[
    bool, typer.Option("--all-waiting", help="All dead letters that wait.")
]
IsSure: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="With --all-waiting: do not ask first.")
]
By: TypeAlias = Annotated[str | None, typer.Option(help="The person; by default the current user.")]


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Include settled ones.")] = False,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List dead letters that wait for a decision: the latest first."""
    from projections.postgres.reader import list_dead_letters
    from vigil.reading import ask

    reading, status = context.reading(ctx), None if is_all else WAITING
    rows = ask(
        reading,
        lambda pool: list_dead_letters(pool, reading.stack, status=status, limit=limit),
    )
    show_rows(rows, COLUMNS, is_json=is_json, spare=SPARE, reading=reading)


@app.command()
def show(
    ctx: typer.Context,
    *,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Key of the dead letter, from the list.")
    ],
    is_json: IsJson = False,
) -> None:
    """Show one dead letter, the original message, and the command to type."""
    from projections.postgres.reader import show_dead_letter
    from vigil import letters
    from vigil.errors import Trouble
    from vigil.reading import ask

    reading = context.reading(ctx)
    row = ask(reading, lambda pool: show_dead_letter(pool, reading.stack, key))
    if row is None:
        raise Trouble(f"no dead letter {key!r} in stack {reading.stack.name}")
    payload = row["payload"]
    assert isinstance(payload, bytes)
    words = {"payload": payload.decode(errors="replace"), "what_to_do": letters.what_to_do(row)}
    show_record(row | words, is_json=is_json)


@app.command()
def requeue(
    ctx: typer.Context,
    *,
    keys: Keys = None,
    is_all_waiting: IsAllWaiting = False,
    is_sure: IsSure = False,
    by: By = None,
) -> None:
    """Retry dead letters: publish the event, open another episode, or send the command again."""
    from vigil import letters

    reading = context.reading(ctx)
    chosen = _chosen(reading, "requeue", keys, is_all_waiting=is_all_waiting, is_sure=is_sure)
    _say(letters.requeue(reading, chosen, by=by))


@app.command()
def discard(
    ctx: typer.Context,
    *,
    keys: Keys = None,
    is_all_waiting: IsAllWaiting = False,
    is_sure: IsSure = False,
    reason: Annotated[str, typer.Option(help="The reason, kept with them.")],
    by: By = None,
) -> None:
    """Mark dead letters as useless. They are kept, and no longer wait."""
    from vigil import letters

    reading = context.reading(ctx)
    chosen = _chosen(reading, "discard", keys, is_all_waiting=is_all_waiting, is_sure=is_sure)
    _say(letters.discard(reading, chosen, by=by, reason=reason))


def _chosen(
    reading: Reading, what: str, keys: list[str] | None, *, is_all_waiting: bool, is_sure: bool
) -> list[str]:
    """Return the letters to `what`: those that were named, or, with consent, all that wait.

    Raises:
        Mistake: neither was said, or both; or nobody is there to be asked.
    """
    from vigil.errors import Mistake

    if bool(keys) is is_all_waiting:
        raise Mistake("name the letters, or say --all-waiting")
    chosen = keys or _waiting(reading)
    if is_all_waiting and chosen and not is_sure:
        require_consent(f"{what} {len(chosen):,} dead letters?")
    return chosen


def _waiting(reading: Reading) -> list[str]:
    from projections.postgres.query_result import ROWS_MAX
    from projections.postgres.reader import list_dead_letters
    from vigil.reading import ask

    rows = ask(
        reading,
        lambda pool: list_dead_letters(pool, reading.stack, status=WAITING, limit=ROWS_MAX),
    )
    return [str(row["letter_key"]) for row in rows]


def _say(settled: Sequence[Settled]) -> None:
    """Print what was done, and on stderr what is in the way, and what was not done.

    Exit code 1 if something was not done.
    """
    from vigil import letters
    from vigil.errors import EXIT_TROUBLE

    for each in settled:
        if each.done:
            print(f"{each.letter_key}: {each.done}")
    refused = list(letters.refusals(settled))
    for line in [*letters.obstacles(settled), *refused]:
        print(f"vigil: {line}", file=sys.stderr)
    if refused:
        raise typer.Exit(EXIT_TROUBLE)

"""`vigil outputs`: what actors deliver to the outside."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from streams.model.commands import Verdict
from streams.model.outputs import OutputStatus
from vigil.cli import context, verdicts
from vigil.cli.consent import require_consent
from vigil.cli.output import IsJson, Limit, show_record, show_rows
from vigil.cli.verdicts import (
    PATIENCE_S,
    By,
    Choice,
    Hash,
    IsSure,
    IsWaiting,
    Patience,
    Reason,
)

app = typer.Typer(no_args_is_help=True, help="Outputs: list, inspect, approve, retry.")

COLUMNS: Final = (
    "output_key", "adapter", "status", "actor_id", "summary", "attempts", "next_attempt_at",
    "delivered_at", "error_class",
)  # fmt: skip
SPARE: Final = (
    "attempts", "next_attempt_at", "delivered_at", "actor_id", "adapter", "summary", "error_class",
)  # fmt: skip
HISTORY_COLUMNS: Final = (
    "at", "kind", "proposal_no", "attempt", "node", "person", "reason", "error_class",
    "error_detail", "next_attempt_at",
)  # fmt: skip

Key = Annotated[str, typer.Argument(metavar="KEY", help="The output's key, from the list.")]
Actor = Annotated[str | None, typer.Option(help="Only this actor's.")]
Adapter = Annotated[str | None, typer.Option(help="Only outputs of this adapter.")]


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[OutputStatus | None, typer.Option(help="Only this value.")] = None,
    actor: Actor = None,
    adapter: Adapter = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List outputs: the latest proposed first."""
    from projections.postgres.reader import list_outputs
    from vigil.reading import ask

    reading = context.reading(ctx)
    rows = ask(
        reading,
        lambda pool: list_outputs(
            pool, reading.stack, status=status, actor=actor, adapter=adapter, limit=limit
        ),
    )
    show_rows(rows, COLUMNS, is_json=is_json, spare=SPARE, reading=reading)


@app.command()
def show(ctx: typer.Context, *, key: Key, is_json: IsJson = False) -> None:
    """Show one output and its history."""
    from projections.postgres.reader import show_output
    from vigil import tables
    from vigil.errors import Trouble
    from vigil.reading import ask

    reading = context.reading(ctx)
    found = ask(reading, lambda pool: show_output(pool, reading.stack, key))
    if found is None:
        raise Trouble(f"no output {key!r} in stack {reading.stack.name}")
    if is_json:
        show_record(found, is_json=True)
        return
    history = found.pop("history")
    assert isinstance(history, list)
    words = tables.in_words(tables.spelled_out(found, "payload"))
    show_record(words, is_json=False)
    show_rows(history, HISTORY_COLUMNS, is_json=False)


@app.command()
def approve(
    ctx: typer.Context,
    *,
    key: Key,
    hash_: Hash = None,
    is_sure: IsSure = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Approve an output. Shows it first, and asks."""
    choice = Choice(
        verdict=Verdict.APPROVE,
        hash=hash_,
        is_sure=is_sure,
        by=by,
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.settle_output(context.reading(ctx), key, choice)


@app.command()
def reject(
    ctx: typer.Context,
    *,
    key: Key,
    hash_: Hash = None,
    is_sure: IsSure = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Reject an output that needs approval. Shows it first, and asks."""
    choice = Choice(
        verdict=Verdict.DENY,
        hash=hash_,
        is_sure=is_sure,
        by=by,
        reason=reason,
        wait_s=timeout_s if is_waiting else None,
    )
    verdicts.settle_output(context.reading(ctx), key, choice)


@app.command()
def retry(
    ctx: typer.Context,
    *,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="Keys of outputs, from the list."),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="All outputs that have failed.")] = False,
    actor: Annotated[str | None, typer.Option(help="With --all: only this actor's.")] = None,
    adapter: Annotated[
        str | None, typer.Option(help="With --all: only outputs of this adapter.")
    ] = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="With --all: do not ask first.")] = False,
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Retry outputs that have failed."""
    from vigil import output_retrying
    from vigil.errors import Mistake
    from vigil.who import who

    if bool(keys) is is_all:
        raise Mistake("name the outputs, or say --all")
    if not is_all and (actor or adapter or is_sure):
        raise Mistake("--actor, --adapter and --yes go with --all")
    reading = context.reading(ctx)
    chosen = keys or output_retrying.failed(reading, actor=actor, adapter=adapter)
    if is_all and chosen and not is_sure:
        require_consent(f"retry {len(chosen):,} outputs?")
    wait_s = timeout_s if is_waiting else None
    if not chosen:
        print("nothing to retry")
    verdicts.say(
        output_retrying.retry(reading, chosen, by=who(reading, by), reason=reason, wait_s=wait_s)
    )


@app.command()
def cancel(
    ctx: typer.Context,
    *,
    keys: Annotated[
        list[str], typer.Argument(metavar="KEY", help="Keys of outputs, from the list.")
    ],
    reason: Reason = "",
    by: By = None,
    is_waiting: IsWaiting = True,
    timeout_s: Patience = PATIENCE_S,
) -> None:
    """Cancel outputs that are not delivered yet. Their episodes continue."""
    from vigil import calling_off
    from vigil.who import who

    reading, wait_s = context.reading(ctx), timeout_s if is_waiting else None
    done = calling_off.call_off(reading, keys, by=who(reading, by), reason=reason, wait_s=wait_s)
    verdicts.say(done)

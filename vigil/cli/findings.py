"""`vigil findings`: what actors found."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from streams.model.findings import FindingStatus, Severity
from vigil.cli import context
from vigil.cli.output import IsJson, Limit, show_record, show_rows

app = typer.Typer(no_args_is_help=True, help="Findings: list, inspect, clear, acknowledge.")

COLUMNS: Final = (
    "finding_key", "severity", "status", "class", "summary", "actor_id", "raised_at",
    "updated_at", "expires_at", "caused_by_key",
)  # fmt: skip
SPARE: Final = (
    "caused_by_key", "raised_at", "expires_at", "updated_at", "actor_id", "status", "class",
    "summary",
)  # fmt: skip
HISTORY_COLUMNS: Final = (
    "at", "kind", "raise_no", "severity", "summary", "episode_id", "person", "reason",
)  # fmt: skip
CHAIN_COLUMNS: Final = ("depth", "finding_key", "status", "severity", "class", "summary")

Key = Annotated[str, typer.Argument(metavar="KEY", help="The finding's key.")]
Reason = Annotated[str, typer.Option(help="The reason, for people.")]
By = Annotated[str | None, typer.Option(help="The person; by default the current user.")]


class WantedStatus(StrEnum):
    """Whether a finding holds; `all` does not ask.

    `superseded` is a status of rows alone: what is there of a key is its last raise.
    """

    ACTIVE = FindingStatus.ACTIVE
    CLEARED = FindingStatus.CLEARED
    EXPIRED = FindingStatus.EXPIRED
    SUPERSEDED = "superseded"
    ALL = "all"


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[WantedStatus, typer.Option(help="Only this value.")] = WantedStatus.ACTIVE,
    severity: Annotated[Severity | None, typer.Option(help="Only this value.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only this actor's.")] = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List findings: the worst first, then the latest changed."""
    from projections.postgres.reader import list_findings
    from vigil.reading import ask

    reading = context.reading(ctx)
    rows = ask(
        reading,
        lambda pool: list_findings(
            pool,
            reading.stack,
            status=None if status is WantedStatus.ALL else status,
            severity=severity,
            actor=actor,
            limit=limit,
        ),
    )
    show_rows(rows, COLUMNS, is_json=is_json, spare=SPARE, reading=reading)


@app.command()
def show(
    ctx: typer.Context,
    *,
    key: Key,
    is_json: IsJson = False,
) -> None:
    """Show one finding and its history."""
    from projections.postgres.reader import show_finding
    from vigil.errors import Trouble
    from vigil.reading import ask

    reading = context.reading(ctx)
    found = ask(reading, lambda pool: show_finding(pool, reading.stack, key))
    if found is None:
        raise Trouble(f"no finding {key!r} in stack {reading.stack.name}")
    if is_json:
        show_record(found, is_json=True)
        return
    history = found.pop("history")
    show_record(found, is_json=False)
    assert isinstance(history, list)
    show_rows(history, HISTORY_COLUMNS, is_json=False)


@app.command()
def clear(ctx: typer.Context, *, key: Key, reason: Reason = "", by: By = None) -> None:
    """End a finding. One that has already ended does not change."""
    from vigil import custody

    print(custody.clear(context.reading(ctx), key, by=by, reason=reason))


@app.command()
def ack(ctx: typer.Context, *, key: Key, reason: Reason = "", by: By = None) -> None:
    """Acknowledge a finding. It stays active; one that has ended is refused."""
    from vigil import custody

    print(custody.acknowledge(context.reading(ctx), key, by=by, reason=reason))


@app.command()
def note(
    ctx: typer.Context,
    *,
    key: Key,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")],
    by: By = None,
) -> None:
    """Add a note to a finding. It stays active."""
    from vigil import custody

    print(custody.note(context.reading(ctx), key, by=by, text=text))


@app.command()
def chain(
    ctx: typer.Context,
    *,
    key: Key,
    depth: Annotated[int, typer.Option(help="Maximum number of steps.", min=1, max=100)] = 10,
    is_json: IsJson = False,
) -> None:
    """Show a finding and its causes, step by step."""
    from projections.postgres.reader import list_causal_chain
    from vigil.errors import Trouble
    from vigil.reading import ask

    reading = context.reading(ctx)
    rows = ask(reading, lambda pool: list_causal_chain(pool, reading.stack, key, depth=depth))
    if not rows:
        raise Trouble(f"no finding {key!r} in stack {reading.stack.name}")
    show_rows(rows, CHAIN_COLUMNS, is_json=is_json)

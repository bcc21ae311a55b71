"""`vigil actors`: who runs them, what waits for them, and pausing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import typer

from console.cli import context
from console.cli.output import IsJson, show_record, show_rows

DRAIN_S: Final = 600.0
"""How long `--wait` waits unless it is told otherwise, in seconds."""

app = typer.Typer(no_args_is_help=True, help="Actors: who runs them, and what waits for them.")

COLUMNS: Final = (
    "actor_id", "domain", "nodes", "paused", "expectations", "queued", "running", "events",
    "commands",
)  # fmt: skip
EXPECTATION_COLUMNS: Final = (
    "expectation", "triggers", "next_ticks", "breaker", "cooling_down", "waiting_for_calm",
    "options",
)  # fmt: skip

ActorId: TypeAlias = Annotated[str, typer.Argument(metavar="ACTOR", help="Its id.")]


@app.command("list")
def list_(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """List the actors that nodes have, that are paused, or that have work left.

    Events and commands are those that wait, or are being worked on. Without Postgres, queued and
    running stay empty.
    """
    from console import actors

    rows = actors.list_actors(context.reading(ctx))
    show_rows(rows if is_json else [_in_words(row) for row in rows], COLUMNS, is_json=is_json)


@app.command()
def show(ctx: typer.Context, *, actor: ActorId, is_json: IsJson = False) -> None:
    """Show one actor, and what each of its expectations waits for."""
    from console import actors

    row, expectations = actors.show_actor(context.reading(ctx), actor)
    if is_json:
        show_record({**row, "expectations": expectations}, is_json=True)
        return
    show_record(_in_words(row), is_json=False)
    show_rows(list(map(_in_words, expectations)), EXPECTATION_COLUMNS, is_json=False)


@app.command()
def pause(
    ctx: typer.Context,
    *,
    actor: ActorId,
    reason: Annotated[str, typer.Option(help="Why, for others.")] = "",
    by: Annotated[
        str | None, typer.Option(help="Who says so; by default whoever runs this.")
    ] = None,
    is_waiting: Annotated[
        bool, typer.Option("--wait", help="Until nothing of it is queued or runs.")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Longest such wait, in seconds.")
    ] = DRAIN_S,
) -> None:
    """Have no node wake an actor. What is queued or runs goes on; what comes waits."""
    from console import actors

    reading = context.reading(ctx)
    print(actors.pause(reading, actor, reason=reason, by=by), flush=True)
    if is_waiting:
        actors.wait_drained(
            reading, actor, say=lambda left: print(left, flush=True), timeout_s=timeout_s
        )
        print(f"{actor}: drained")


@app.command()
def resume(ctx: typer.Context, *, actor: ActorId) -> None:
    """Have nodes wake an actor again: first what has waited."""
    from console import actors

    print(actors.resume(context.reading(ctx), actor))


def _in_words(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return `row` with its lists as people write them, and nothing for what is empty."""
    return {
        column: (", ".join(map(str, value)) if isinstance(value, list) else value) or _zero(value)
        for column, value in row.items()
    }


def _zero(value: object) -> object:
    return value if value == 0 else None

"""`vigil actors`: who runs them, what waits for them, pausing them, closing breakers, defining."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from vigil.cli import context, definitions
from vigil.cli.output import IsJson, Timeout, show_record, show_rows, waiting

DRAIN_S: Final = 600.0
"""How long `--wait` waits unless it is told otherwise, in seconds."""

app = typer.Typer(no_args_is_help=True, help="Actors: who runs them, and what waits for them.")

COLUMNS: Final = (
    "actor_id", "domain", "source", "nodes", "waking", "paused", "expectations",
    "queued", "running", "blocked", "events", "due", "commands",
)  # fmt: skip
SPARE: Final = ("expectations", "domain", "source", "waking", "commands", "due", "events")

ActorId: TypeAlias = Annotated[str, typer.Argument(metavar="ACTOR", help="Its id.")]


@app.command("list")
def list_(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """List the actors that nodes have, that were defined, that are paused, or have open episodes.

    Events, what is due (fires by hand, ticks, what has calmed down) and commands to episodes are
    those that wait, or are being worked on. Without Postgres, queued, running and blocked stay
    empty.
    """
    from vigil import actors, tables
    from vigil.editions import in_short

    rows = actors.list_actors(context.reading(ctx))
    shown = rows if is_json else [tables.in_words(in_short(row)) for row in rows]
    show_rows(shown, COLUMNS, is_json=is_json, spare=SPARE)


@app.command()
def show(ctx: typer.Context, *, actor: ActorId, is_json: IsJson = False) -> None:
    """Show one actor, and what each of its expectations waits for."""
    from vigil import actors

    row, expectations = actors.show_actor(context.reading(ctx), actor)
    if is_json:
        show_record({**row, "expectations": expectations}, is_json=True)
        return
    for each in (row, *expectations):
        show_record(actors.in_words(each), is_json=False)
        print()


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
    timeout_s: Timeout = DRAIN_S,
) -> None:
    """Have no node wake an actor. What is queued or runs goes on; what comes waits."""
    from vigil import actors

    reading = context.reading(ctx)
    paused = actors.pause(reading, actor, reason=reason, by=by)
    with waiting(f"{actor} stays paused; `vigil actors resume {actor}` ends that"):
        print(paused, flush=True)
        if is_waiting:
            actors.wait_drained(
                reading, actor, say=lambda left: print(left, flush=True), timeout_s=timeout_s
            )
            print(f"{actor}: drained")


@app.command()
def resume(ctx: typer.Context, *, actor: ActorId) -> None:
    """Have nodes wake an actor again: first what has waited."""
    from vigil import actors

    print(actors.resume(context.reading(ctx), actor))


@app.command()
def reset(
    ctx: typer.Context,
    *,
    actor: ActorId,
    expectation: Annotated[str, typer.Argument(metavar="EXPECTATION", help="Its name.")],
) -> None:
    """Close the circuit breaker of an expectation, whatever the probe would say."""
    from vigil import breakers

    print(breakers.reset(context.reading(ctx), actor, expectation))


definitions.add_to(app)

"""`vigil actors`: who runs them, what waits for them, pausing them, closing breakers, defining."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from vigil.cli import context, definitions
from vigil.cli.output import IsJson, Timeout, show_record, show_rows, waiting

DRAIN_S: Final = 600.0
"""How long `--wait` waits unless it is told otherwise, in seconds."""

app = typer.Typer(no_args_is_help=True, help="Actors: list, inspect, pause, define.")

COLUMNS: Final = (
    "actor_id", "domain", "source", "nodes", "waking", "paused", "expectations",
    "queued", "running", "blocked", "events", "due", "commands",
)  # fmt: skip
SPARE: Final = ("expectations", "domain", "source", "waking", "commands", "due", "events")

ActorId: TypeAlias = Annotated[str, typer.Argument(metavar="ACTOR", help="Its id.")]


@app.command("list")
def list_(ctx: typer.Context, *, is_json: IsJson = False) -> None:
    """List actors: those of nodes, defined ones, paused ones, and those with open episodes.

    The columns events, due (manual fires, ticks, debounced events) and commands count messages that
    wait or are in progress. Without Postgres, queued, running and blocked are empty.
    """
    from vigil import actors, tables
    from vigil.editions import in_short

    rows = actors.list_actors(context.reading(ctx))
    shown = rows if is_json else [tables.in_words(in_short(row)) for row in rows]
    show_rows(shown, COLUMNS, is_json=is_json, spare=SPARE)


@app.command()
def show(ctx: typer.Context, *, actor: ActorId, is_json: IsJson = False) -> None:
    """Show one actor and its expectations: triggers, next ticks, breakers, cooldowns."""
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
    reason: Annotated[str, typer.Option(help="The reason, for people.")] = "",
    by: Annotated[str | None, typer.Option(help="The person; by default the current user.")] = None,
    is_waiting: Annotated[
        bool, typer.Option("--wait", help="Wait until none of its episodes is queued or running.")
    ] = False,
    timeout_s: Timeout = DRAIN_S,
) -> None:
    """Pause an actor on all nodes. Open episodes continue; new events wait."""
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
    """Resume a paused actor. The events that have waited come first."""
    from vigil import actors

    print(actors.resume(context.reading(ctx), actor))


@app.command()
def reset(
    ctx: typer.Context,
    *,
    actor: ActorId,
    expectation: Annotated[str, typer.Argument(metavar="EXPECTATION", help="Its name.")],
) -> None:
    """Close the circuit breaker of an expectation by hand."""
    from vigil import breakers

    print(breakers.reset(context.reading(ctx), actor, expectation))


definitions.add_to(app)

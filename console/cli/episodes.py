"""`vigil episodes`: what actors do and did."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

from console.cli import context
from console.cli.output import IsJson, Limit, show_record, show_rows
from streams.events import EndStatus

app = typer.Typer(no_args_is_help=True, help="What actors do and did.")

COLUMNS: Final = (
    "episode_id", "actor_id", "expectation_id", "subject_id", "status", "position", "turns_used",
    "started_at", "finished_at", "summary", "error_class",
)  # fmt: skip
STEP_COLUMNS: Final = (
    "step_no", "kind", "tool_name", "state", "cost_ms", "cost_tokens", "error_class",
    "args_redacted", "result",
)  # fmt: skip

REPLAY_COLUMNS: Final = (
    "number", "seq", "at", "event", "status", "node", "attempts", "crashes", "steps_recorded",
    "checkpoints_saved", "tokens_used", "wall_used_s",
)  # fmt: skip


class EpisodeStatus(StrEnum):
    """What the rows call the states of an episode: the open ones, and how it may have ended."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"
    DONE = EndStatus.DONE
    FAILED = EndStatus.FAILED
    PARTIALLY_FAILED = EndStatus.PARTIALLY_FAILED
    CANCELED = EndStatus.CANCELED


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[EpisodeStatus | None, typer.Option(help="Only these.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only this actor's.")] = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List episodes: queued ones first, then the latest started."""
    from console.reading import ask
    from projections.postgres.reader import list_episodes

    reading = context.reading(ctx)
    rows = ask(
        reading,
        lambda pool: list_episodes(pool, reading.stack, status=status, actor=actor, limit=limit),
    )
    show_rows(rows, COLUMNS, is_json=is_json)


@app.command()
def show(
    ctx: typer.Context,
    *,
    episode_id: Annotated[str, typer.Argument(metavar="ID")],
    is_json: IsJson = False,
) -> None:
    """Show all there is to know about one episode."""
    from console.errors import Trouble
    from console.reading import ask, parse_id
    from projections.postgres.reader import show_episode

    reading, wanted = context.reading(ctx), parse_id(episode_id)
    row = ask(reading, lambda pool: show_episode(pool, reading.stack, wanted))
    if row is None:
        raise Trouble(f"no episode {wanted} in stack {reading.stack.name}")
    show_record(row, is_json=is_json)


@app.command()
def steps(
    ctx: typer.Context,
    *,
    episode_id: Annotated[str, typer.Argument(metavar="ID")],
    is_json: IsJson = False,
) -> None:
    """List what one episode did, in order."""
    from console.errors import Trouble
    from console.reading import ask, parse_id
    from projections.postgres.pool import Pool
    from projections.postgres.reader import Row, list_steps, show_episode

    reading, wanted = context.reading(ctx), parse_id(episode_id)

    async def question(pool: Pool) -> list[Row]:
        if await show_episode(pool, reading.stack, wanted) is None:
            raise Trouble(f"no episode {wanted} in stack {reading.stack.name}")
        return await list_steps(pool, reading.stack, wanted)

    show_rows(ask(reading, question), STEP_COLUMNS, is_json=is_json)


@app.command()
def replay(
    ctx: typer.Context,
    *,
    episode_id: Annotated[str, typer.Argument(metavar="ID")],
    at: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many events; show the whole state.")
    ] = None,
    is_json: Annotated[bool, typer.Option("--json", help="For programs: a line each.")] = False,
) -> None:
    """Fold one episode's journal event by event, and show the state after each of them."""
    from console import replaying, tables
    from console.errors import Trouble
    from console.reading import parse_id

    frames = replaying.frames_of(context.reading(ctx), parse_id(episode_id))
    if at is not None and at > len(frames):
        raise Trouble(f"its journal holds {len(frames):,} events, not {at:,}")
    if at is not None:
        show_record(replaying.whole(frames[at - 1]), is_json=is_json)
    elif is_json:
        for frame in frames:
            print(tables.as_json_line(replaying.line(frame)))
    else:
        show_rows([replaying.line(frame) for frame in frames], REPLAY_COLUMNS, is_json=False)

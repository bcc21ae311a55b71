"""`vigil episodes list`, `show` and `steps`: what the tables have of episodes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Final
from uuid import UUID

import msgspec
import typer
from typer import Option

from projections.postgres.pool import Pool
from projections.postgres.query_result import ROWS_MAX, Row
from projections.postgres.reader import (
    list_episodes,
    list_outputs,
    list_steps,
    show_block,
    show_episode,
)
from streams.clock import SystemClock
from streams.model.events import BlockReason, EndStatus
from streams.model.outputs import OutputOutcome
from streams.subjects import Stack
from vigil import options
from vigil.asking.episode_ids import find_episode
from vigil.asking.rows import ask, ask_one, require, show_found
from vigil.printing import tables
from vigil.printing.output import say_aside, show_record, show_rows

app = typer.Typer()

COLUMNS: Final = (
    "episode_id", "actor_id", "expectation_id", "subject_id", "status", "position", "turns_used",
    "started_at", "finished_at", "says", "error_class",
)  # fmt: skip
SPARE: Final = (
    "turns_used", "finished_at", "expectation_id", "started_at", "subject_id", "actor_id",
    "error_class",
)  # fmt: skip
STEP_COLUMNS: Final = (
    "step_no", "kind", "tool_name", "state", "cost_ms", "cost_tokens", "error_class",
    "args_redacted", "result",
)  # fmt: skip
OUTPUT_COLUMNS: Final = (
    "output_key", "outcome", "adapter", "status", "attempts", "next_attempt_at", "delivered_ref",
    "error_class", "error_detail",
)  # fmt: skip

ANYBODY: Final = "anybody"

_CLOCK: Final = SystemClock()


class EpisodeStatus(StrEnum):
    """Statuses of episodes in the rows: the open ones, and how it may have ended."""

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
    status: Annotated[EpisodeStatus | None, Option(help="Only with this status.")] = None,
    actor: Annotated[str | None, Option(help="Only of this actor.")] = None,
    expectation: Annotated[str | None, Option(help="Only of the expectation of this name.")] = None,
    subject: Annotated[
        str | None, Option(help="Only about the thing with this id, such as web-1.")
    ] = None,
    since: Annotated[
        str | None,
        Option(metavar="TIME", help="Only opened then or later: 2030-01-31T09:00:00Z, or 2h ago."),
    ] = None,
    until: Annotated[
        str | None, Option(metavar="TIME", help="Only opened before; written as for --since.")
    ] = None,
    after: Annotated[
        str | None,
        Option(metavar="ID", help="The next page: only what the list has after this episode."),
    ] = None,
    limit: options.Limit = 50,
    is_json: options.IsJson = False,
) -> None:
    """List episodes: queued ones first, then the latest started."""
    now = _CLOCK.now()
    config, narrowed = (
        options.config(ctx),
        {
            "status": status,
            "actor": actor,
            "expectation": expectation,
            "subject": subject,
        },
    )
    past = None if after is None else find_episode(config, after)
    begins = options.read_past(since, what="--since", now=now)
    ends = options.read_past(until, what="--until", now=now)

    async def question(pool: Pool) -> list[Row]:
        last = None if past is None else await show_episode(pool, config.stack, past)
        if past is not None:
            require(last, f"episode {past}", config.stack)
        return await list_episodes(
            pool, config.stack, **narrowed, since=begins, until=ends, past=last, limit=limit
        )

    rows = ask(config, question)
    shown = rows if is_json else [{**row, "says": says(row)} for row in rows]
    show_found(config, shown, COLUMNS, is_json=is_json, spare=SPARE)
    if len(rows) == limit and not is_json:
        say_aside(f"there may be more: add --after {rows[-1]['episode_id']}")


@app.command()
def show(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    is_json: options.IsJson = False,
) -> None:
    """Show everything about one episode."""
    config = options.config(ctx)
    wanted = find_episode(config, episode_id, is_latest=is_latest)
    question = partial(_record, stack=config.stack, episode_id=wanted)
    row = ask_one(config, question, f"episode {wanted}")
    if is_json:
        show_record(row, is_json=True)
        return
    block, outputs = row.pop("waits_for"), row.pop("outputs")
    show_record(row, is_json=False)
    if isinstance(block, dict):
        show_record(tables.in_words(tables.spelled_out(_asked(block), "plan")), is_json=False)
    if isinstance(outputs, list) and outputs:
        show_rows(outputs, OUTPUT_COLUMNS, is_json=False)


@app.command()
def steps(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    is_json: options.IsJson = False,
) -> None:
    """List the steps of one episode, in order."""
    config = options.config(ctx)
    wanted = find_episode(config, episode_id, is_latest=is_latest)

    async def question(pool: Pool) -> list[Row]:
        episode = await show_episode(pool, config.stack, wanted)
        require(episode, f"episode {wanted}", config.stack)
        return [*await list_steps(pool, config.stack, wanted)]

    rows = ask(config, question)
    shown = rows if is_json else [{**row, "result": shown_as(row)} for row in rows]
    show_rows(shown, STEP_COLUMNS, is_json=is_json)


def shown_as(row: Row) -> object:
    """Return a step's result, or how large it is where the rows do not have it."""
    size_bytes, found = row["result_size_bytes"], row["result"]
    return f"{size_bytes:,} bytes" if found is None and size_bytes is not None else found


def says(row: Row) -> str:
    """Return an episode's summary, else what went wrong; of a traceback, its last line."""
    return str(row["summary"] or tables.last_line(row["error_detail"]))


def came_to(outcomes: Iterable[OutputOutcome], own: Iterable[Row]) -> list[Row]:
    """Return a row for each output of an episode, with its `outcome` once that is settled.

    `own` are rows of what it proposed itself: of another's, only the outcome is known here.
    """
    settled = {each.output_key: each for each in outcomes}
    rows: list[Row] = []
    for each in own:
        outcome = settled.pop(str(each["output_key"]), None)
        rows.append({**each, "outcome": outcome and outcome.outcome})
    for left in settled.values():
        said = {"output_key": left.output_key, "outcome": left.outcome}
        rows.append({**said, "error_class": left.error_class or None})
    return rows


async def _record(pool: Pool, stack: Stack, episode_id: UUID) -> dict[str, object] | None:
    """Return an episode's row, with `waits_for` (a row or None) and `outputs` (see `came_to`)."""
    row = await show_episode(pool, stack, episode_id)
    if row is None:
        return None
    block = await show_block(pool, stack, episode_id) if row["blocked_by"] else None
    is_open = block is not None and block["resolution"] is None
    own = await list_outputs(pool, stack, episode_id=episode_id, limit=ROWS_MAX)
    outcomes = msgspec.convert(row["outputs"] or (), tuple[OutputOutcome, ...])
    return row | {"waits_for": block if is_open else None, "outputs": came_to(outcomes, own)}


def _asked(block: Mapping[str, object]) -> Row:
    if block["reason"] == BlockReason.WAIT:
        asks: Row = {"ref": block["ref"]}
        todo = f"resolve {shlex.quote(str(block['ref']))}"
    else:
        asks = {
            "summary": block["summary"],
            "approvers": block["approvers"] or ANYBODY,
            "plan_hash": block["plan_hash"],
            "plan": block["plan"],
        }
        todo = f"approve {block['episode_id']}"
    return {
        "waits_for": block["reason"],
        "since": block["blocked_at"],
        "expires_at": block["expires_at"],
        "on_expiry": block["on_expiry"] if block["expires_at"] else None,
        **asks,
        "what_to_do": f"vigil episodes {todo}",
    }

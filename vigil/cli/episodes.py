"""`vigil episodes`: what actors do and did."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streams.model.events import EndStatus
from vigil.cli import answers, context
from vigil.cli.answers import EpisodeId
from vigil.cli.consent import require_consent
from vigil.cli.output import WAIT_S, IsJson, Limit, Timeout, show_record, show_rows

if TYPE_CHECKING:
    from vigil.canceling import Episode
    from vigil.settings import Reading

app = typer.Typer(no_args_is_help=True, help="Episodes: list, inspect, cancel, approve.")

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
REPLAY_COLUMNS: Final = (
    "number", "seq", "at", "event", "status", "node", "attempts", "crashes", "steps_recorded",
    "checkpoints_saved", "tokens_used", "wall_used_s",
)  # fmt: skip
REPLAY_SPARE: Final = (
    "checkpoints_saved", "crashes", "attempts", "wall_used_s", "tokens_used", "node", "seq",
    "steps_recorded",
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


class Unended(StrEnum):
    """Statuses of episodes that can be canceled."""

    QUEUED = "queued"
    RUNNING = "running"
    BLOCKED = "blocked"


@app.command("list")
def list_(
    ctx: typer.Context,
    *,
    status: Annotated[EpisodeStatus | None, typer.Option(help="Only this value.")] = None,
    actor: Annotated[str | None, typer.Option(help="Only this actor's.")] = None,
    limit: Limit = 50,
    is_json: IsJson = False,
) -> None:
    """List episodes: queued ones first, then the latest started."""
    from projections.postgres.reader import list_episodes
    from vigil import episodes
    from vigil.reading import ask

    reading = context.reading(ctx)
    rows = ask(
        reading,
        lambda pool: list_episodes(pool, reading.stack, status=status, actor=actor, limit=limit),
    )
    shown = rows if is_json else [{**row, "says": episodes.says(row)} for row in rows]
    show_rows(shown, COLUMNS, is_json=is_json, spare=SPARE, reading=reading)


@app.command()
def show(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    is_json: IsJson = False,
) -> None:
    """Show everything about one episode."""
    from vigil import episodes, tables
    from vigil.errors import Trouble
    from vigil.reading import ask, parse_id

    reading, wanted = context.reading(ctx), parse_id(episode_id)
    row = ask(reading, lambda pool: episodes.whole(pool, reading.stack, wanted))
    if row is None:
        raise Trouble(f"no episode {wanted} in stack {reading.stack.name}")
    if is_json:
        show_record(row, is_json=True)
        return
    block, outputs = row.pop("waits_for"), row.pop("outputs")
    show_record(row, is_json=False)
    if isinstance(block, dict):
        words = tables.in_words(tables.spelled_out(episodes.asked(block), "plan"))
        show_record(words, is_json=False)
    if isinstance(outputs, list) and outputs:
        show_rows(outputs, OUTPUT_COLUMNS, is_json=False)


@app.command()
def steps(
    ctx: typer.Context,
    *,
    episode_id: EpisodeId,
    is_json: IsJson = False,
) -> None:
    """List the steps of one episode, in order."""
    from projections.postgres.pool import Pool
    from projections.postgres.query_result import Row
    from projections.postgres.reader import list_steps, show_episode
    from vigil.errors import Trouble
    from vigil.reading import ask, parse_id

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
    episode_id: EpisodeId,
    at: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after this many events, and show the whole record."),
    ] = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="For programs: one JSON object per line.")
    ] = False,
) -> None:
    """Fold one episode's journal, and show the engine's view of it after each event."""
    from vigil import replaying, tables
    from vigil.errors import Trouble
    from vigil.reading import parse_id

    frames = replaying.frames_of(context.reading(ctx), parse_id(episode_id))
    if at is not None and at > len(frames):
        raise Trouble(f"its journal holds {len(frames):,} events, not {at:,}")
    if at is not None:
        show_record(replaying.whole(frames[at - 1]), is_json=is_json)
    elif is_json:
        for frame in frames:
            print(tables.as_json_line(replaying.line(frame)))
    else:
        lines = [replaying.line(frame) for frame in frames]
        show_rows(lines, REPLAY_COLUMNS, is_json=False, spare=REPLAY_SPARE)


@app.command()
def cancel(
    ctx: typer.Context,
    *,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of episodes.")] = None,
    actor: Annotated[
        str | None, typer.Option(help="All open episodes of this actor, instead of ids.")
    ] = None,
    expectation: Annotated[
        str | None, typer.Option(help="With --actor: only this expectation.")
    ] = None,
    status: Annotated[Unended | None, typer.Option(help="With --actor: only these.")] = None,
    is_sure: Annotated[bool, typer.Option("--yes", help="With --actor: do not ask first.")] = False,
    reason: Annotated[str, typer.Option(help="The reason, for people.")] = "",
    by: Annotated[str | None, typer.Option(help="The person; by default the current user.")] = None,
    is_waiting: Annotated[
        bool,
        typer.Option("--wait", help="Wait until they end; exit code 1 unless all are canceled."),
    ] = False,
    timeout_s: Timeout = WAIT_S,
    is_json: IsJson = False,
) -> None:
    """Cancel episodes, whether they are queued, running or blocked."""
    from vigil import canceling
    from vigil.errors import EXIT_TROUBLE, Mistake
    from vigil.reading import parse_id
    from vigil.who import who

    if bool(ids) is (actor is not None):
        raise Mistake("name the episodes, or say --actor")
    if actor is None and (expectation or status or is_sure):
        raise Mistake("--expectation, --status and --yes go with --actor")
    reading = context.reading(ctx)
    if actor is None:
        found = canceling.named(reading, [parse_id(each) for each in ids or ()])
    else:
        found = canceling.unended(reading, actor=actor, expectation=expectation, status=status)
    if actor is not None and found and not is_sure:
        require_consent(f"cancel {len(found):,} episodes of {actor}?")
    canceling.ask_for_end(reading, found, by=who(reading, by), reason=reason)
    after = canceling.wait_ends(reading, found, timeout_s=timeout_s) if is_waiting else found
    if is_json:
        show_rows([each.as_row() for each in after], (), is_json=True)
    elif actor is None:
        _say_each(after, reading)
    else:
        _say_all(after)
    if not all(each.is_known and (each.is_canceled or not is_waiting) for each in after):
        raise typer.Exit(EXIT_TROUBLE)


app.command()(answers.approve)
app.command()(answers.deny)
app.command()(answers.resolve)


def _say_each(episodes: Sequence[Episode], reading: Reading) -> None:
    """Print what becomes of each, and on stderr which of them nobody knows."""
    for each in episodes:
        if each.is_known:
            print(f"{each.episode_id}: {each.outlook}")
        else:
            hint = "`vigil episodes list` shows those that there are"
            line = f"no episode {each.episode_id} in stack {reading.stack.name}; {hint}"
            print(f"vigil: {line}", file=sys.stderr)


def _say_all(episodes: Sequence[Episode]) -> None:
    """Print how many there are of each outlook."""
    counts = Counter(each.outlook for each in episodes)
    said = (f"{count:,} {outlook}" for outlook, count in counts.items())
    print(", ".join(said) or "nothing to cancel")

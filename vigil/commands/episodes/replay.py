"""`vigil episodes replay`: the state of an episode after each event of its journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer import Option

from streams.json import raw, unraw
from streams.model.events import EpisodeBlocked, EpisodeEvent, StepAnnounced, StepRecorded
from vigil import options
from vigil.client.client import Client
from vigil.commands.call import call, named
from vigil.errors import Trouble
from vigil.printing import tables
from vigil.printing.columns import Column, Form, Listing
from vigil.printing.output import show_record, show_table
from vigil.printing.tables import Row

if TYPE_CHECKING:
    from engine.operations.replay import Frame

app = typer.Typer()

FRAMES: Final = Listing(
    (
        Column("number", "number"),
        Column("at", "at", Form.TIME),
        Column("event", "event"),
        Column("call", "path"),
        Column("what", "what"),
        Column("status", "status"),
        Column("steps", "steps_recorded"),
        Column("node", "node"),
        Column("starts", "attempts"),
        Column("crashes", "crashes"),
        Column("checkpoints", "checkpoints_saved"),
        Column("tokens", "tokens_used"),
        Column("running (s)", "wall_used_s"),
        Column("in the stream", "seq"),
    ),
    spare=(
        "in the stream", "checkpoints", "crashes", "starts", "running (s)", "tokens", "node",
        "steps", "at", "call", "what",
    ),
)  # fmt: skip


TITLE: Final = "The journal, event by event; nothing is run"


@app.command()
def replay(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    at: Annotated[
        int | None, Option(min=1, help="Stop after this many events, and show the whole state.")
    ] = None,
    is_wide: options.IsWide = False,
    is_json: Annotated[bool, Option("--json", help="Print JSON: a line each.")] = False,
) -> None:
    """Fold one episode's journal event by event, and show the state after each of them."""

    async def read(client: Client) -> Sequence[Frame]:
        wanted = await named(client, episode_id, is_latest=is_latest)
        return await client.episodes.replay(wanted)

    frames = call(ctx, read)
    if at is not None and at > len(frames):
        raise Trouble(f"its journal holds {len(frames):,} events, not {at:,}")
    if at is not None:
        chosen = frames[at - 1]
        state: Row = unraw(raw(chosen.episode))
        shown = {**_frame_row(chosen), "said": unraw(raw(chosen.event)), **state}
        show_record(shown, is_json=is_json)
    elif is_json:
        for frame in frames:
            print(tables.as_json_line(_frame_row(frame)))
    else:
        print_frames([_frame_row(frame) for frame in frames], is_wide=is_wide)


def print_frames(rows: Sequence[Row], *, is_wide: bool = False) -> None:
    """Print the state of an episode after each event."""
    shown = [{**row, **parts_of(str(row["call"]))} for row in rows]
    show_table(shown, FRAMES, is_wide=is_wide, title=TITLE)


def parts_of(call: str) -> Row:
    """Return the path of a call, if it has one, and what was called."""
    path, _, what = call.rpartition(" ")
    return {"path": path, "what": what}


def _frame_row(frame: Frame) -> Row:
    episode = frame.episode
    return {
        "number": frame.number,
        "seq": frame.seq,
        "at": frame.at,
        "event": frame.event.__struct_config__.tag,
        "call": _call_of(frame.event),
        "status": episode.status.value,
        "node": episode.node,
        "attempts": episode.attempts,
        "crashes": episode.crashes,
        "steps_recorded": episode.steps_recorded,
        "checkpoints_saved": episode.checkpoints_saved,
        "tokens_used": episode.tokens_used,
        "wall_used_s": round(episode.wall_used_s, 3),
    }


def _call_of(event: EpisodeEvent) -> str:
    """Return the path of a function's call, if it is one, and what was called."""
    match event:
        case StepRecorded():
            said = (event.path, event.tool_name or event.kind.value)
        case StepAnnounced():
            said = (event.path, event.tool_name)
        case EpisodeBlocked():
            said = (event.path, event.reason.value)
        case _:
            return ""
    return " ".join(filter(None, said))

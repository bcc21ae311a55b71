"""`vigil episodes replay`: the state of an episode after each event of its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from typer import Option

from projections.episodes import is_whole, shown_result
from projections.postgres.query_result import Row
from streams.json import raw, unraw
from streams.model.events import EpisodeBlocked, EpisodeEvent, StepAnnounced, StepRecorded
from vigil import options
from vigil.asking.connect import with_ports
from vigil.asking.episode_ids import find_episode
from vigil.errors import Trouble
from vigil.printing import tables
from vigil.printing.output import show_record, show_rows

if TYPE_CHECKING:
    from engine.operations.replay import Frame
    from streams.ports.all import Ports

app = typer.Typer()

COLUMNS: Final = (
    "number", "seq", "at", "event", "call", "status", "node", "attempts", "crashes",
    "steps_recorded", "checkpoints_saved", "tokens_used", "wall_used_s",
)  # fmt: skip
SPARE: Final = (
    "checkpoints_saved", "crashes", "attempts", "wall_used_s", "tokens_used", "node", "seq",
    "steps_recorded", "call",
)  # fmt: skip


@app.command()
def replay(
    ctx: typer.Context,
    *,
    episode_id: options.EpisodeIdOrLatest = None,
    is_latest: options.IsLatest = False,
    at: Annotated[
        int | None, Option(min=1, help="Stop after this many events, and show the whole state.")
    ] = None,
    is_json: Annotated[bool, Option("--json", help="Print JSON: a line each.")] = False,
) -> None:
    """Fold one episode's journal event by event, and show the state after each of them."""
    from engine.operations.replay import frames as frames_of

    config = options.config(ctx)
    wanted = find_episode(config, episode_id, is_latest=is_latest)

    async def read(ports: Ports) -> list[Frame]:
        return list(frames_of(await ports.log.read(ports.stack.episode(str(wanted)))))

    frames = with_ports(config, read, creates=True, is_reading=True)
    if not frames:
        raise Trouble(f"no episode {wanted} on the journal of stack {config.stack.name}")
    if at is not None and at > len(frames):
        raise Trouble(f"its journal holds {len(frames):,} events, not {at:,}")
    if at is not None:
        chosen = frames[at - 1]
        state: Row = unraw(raw(chosen.episode))
        shown = {**_frame_row(chosen), "said": unraw(raw(as_shown(chosen.event))), **state}
        show_record(shown, is_json=is_json)
    elif is_json:
        for frame in frames:
            print(tables.as_json_line(_frame_row(frame)))
    else:
        rows = [_frame_row(frame) for frame in frames]
        show_rows(rows, COLUMNS, is_json=False, spare=SPARE)


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


def as_shown(event: EpisodeEvent) -> EpisodeEvent:
    """Return `event` as people may see it: a step's result may be for the replay alone."""
    if not isinstance(event, StepRecorded):  # guard: replay-keeps-hidden
        return event
    stored = event.stored
    if stored is not None and not is_whole(event):
        stored = msgspec.structs.replace(stored, digest="")
    return msgspec.structs.replace(event, result=shown_result(event), stored=stored)

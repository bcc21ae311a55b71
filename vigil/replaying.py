"""An episode's journal, folded event by event, as rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import msgspec

from engine.operations import replay
from engine.operations.replay import Frame
from projections.postgres.query_result import Row
from streams.json import NOTHING, raw, unraw
from streams.model.events import EpisodeEvent, StepRecorded
from streams.ports.log import Recorded
from vigil.errors import Trouble
from vigil.settings import Reading
from vigil.work import connected


def frames_of(reading: Reading, episode_id: UUID) -> Sequence[Frame]:
    """Return the episode's frames, oldest first; at least one.

    Raises:
        Trouble: the journal holds no such episode.
        UnreadableEvent: a newer version has written it.
        Unavailable: the log is away.
    """
    frames = list(replay.frames(asyncio.run(_read(reading, str(episode_id)))))
    if not frames:
        raise Trouble(f"no episode {episode_id} on the journal of stack {reading.stack.name}")
    return frames


def line(frame: Frame) -> Row:
    """Return what a list shows of `frame`."""
    episode = frame.episode
    return {
        "number": frame.number,
        "seq": frame.seq,
        "at": frame.at,
        "event": frame.event.__struct_config__.tag,
        "status": episode.status.value,
        "node": episode.node,
        "attempts": episode.attempts,
        "crashes": episode.crashes,
        "steps_recorded": episode.steps_recorded,
        "checkpoints_saved": episode.checkpoints_saved,
        "tokens_used": episode.tokens_used,
        "wall_used_s": round(episode.wall_used_s, 3),
    }


def whole(frame: Frame) -> Row:
    """Return everything that `frame` says: the event, and the state after it."""
    state: Row = unraw(raw(frame.episode))
    return line(frame) | {"said": unraw(raw(_as_shown(frame.event)))} | state


def _as_shown(event: EpisodeEvent) -> EpisodeEvent:
    """Return `event` as people may see it: what a step brought back may be for the replay alone."""
    if isinstance(event, StepRecorded) and event.result_shown != NOTHING:
        return msgspec.structs.replace(event, result=event.result_shown)
    return event


async def _read(reading: Reading, episode_id: str) -> Sequence[Recorded]:
    async with connected(reading) as ports:
        return await ports.log.read(ports.stack.episode(episode_id))

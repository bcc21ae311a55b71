"""Where an actor begins to read a stream of others, and waiting for one that is not there.

Nobody but its owner makes such a stream, so a node waits for it however long that takes, and says
once what it waits for. Whatever else wakes the actor goes on meanwhile.
"""

from __future__ import annotations

from typing import Final

import structlog

from engine.runtime.crew import Crew
from streams.errors import NoSuchStream
from streams.feeds import Feed

LOOK_S: Final = 5.0
"""Between two looks for a stream that is not there, in seconds."""

BEGINNING: Final = 0
"""Just before the first message of a stream."""

log = structlog.get_logger("vigil.feeds")


def missing(actor: str, stream: str) -> str:
    """Return what people are told of a stream that is not there."""
    return (
        f"stream {stream} does not exist; actor {actor} listens to it; "
        "create it or correct the name"
    )


def position_unseen(feed: Feed) -> int | None:
    """Return where to begin with `feed` while there is no such stream; None: nobody can tell yet.

    All that it will hold is new.
    """
    return BEGINNING if feed.start in ("new", "all") else None


async def find_position(crew: Crew, feed: Feed) -> int | None:
    """Return the sequence past which the actor begins with `feed`; None: there is no such stream.

    Raises:
        Unavailable: the log is away.
    """
    try:
        return await crew.ports.world.feed_position(crew.actor.id, feed)
    except NoSuchStream:
        return None


async def wait_position(crew: Crew, feed: Feed) -> int:
    """Return the sequence past which the actor begins with `feed`, as soon as its stream is there.

    Raises:
        Unavailable: the log is away.
    """
    position = await find_position(crew, feed)
    if position is not None:
        return position
    actor, stream = crew.actor.id, feed.stream
    log.warning(missing(actor, stream), actor=actor, stream=stream, looks_every_s=LOOK_S)
    while position is None:
        await crew.clock.sleep(LOOK_S)
        position = await find_position(crew, feed)
    log.info("the stream is there now", actor=actor, stream=stream)
    unseen = position_unseen(feed)
    return position if unseen is None else unseen

"""Finds the episodes of an expectation that have not ended, on the journal itself.

Nobody keeps a list of them but the read models, which the engine does not read. So the whole
journal is read: a matter of seconds per million commits, for what people ask for now and then.
"""

from __future__ import annotations

from typing import Final

from streams.events import EpisodeFinished, EpisodeOpened
from streams.layout import Stream
from streams.log import START, Recorded
from streams.ports import Ports

BATCH_MAX: Final = 1_000
"""Commits looked at in one go."""

WAIT_S: Final = 5.0
"""Longest silent wait for commits that the journal is known to hold."""


async def open_episodes(ports: Ports, actor: str, expectation: str) -> list[str]:
    """Return the ids of the expectation's episodes that had not ended when this was asked.

    Raises:
        UnreadableEvent: a newer version of the engine has written to the journal.
        Unavailable: the log is away.
    """
    found: dict[str, str] = {}
    for partition in ports.stack.partitions_of(Stream.JOURNAL):
        head, at = await ports.log.head(partition=partition), START
        async with ports.log.follow(partition=partition) as follower:
            while at < head:
                for record in await follower.receive(most=BATCH_MAX, wait_s=WAIT_S):
                    _note(found, record, (actor, expectation))
                    at = record.seq
    return list(found.values())


def _note(found: dict[str, str], record: Recorded, wanted: tuple[str, str]) -> None:
    """Take note in `found`, by subject, of what `record` opens or ends."""
    for event in record.commit.events:
        match event:
            case EpisodeOpened(actor_id=actor, expectation_id=expectation, episode_id=id_):
                if (actor, expectation) == wanted:
                    found[record.subject] = id_
            case EpisodeFinished():
                found.pop(record.subject, None)
            case _:
                pass

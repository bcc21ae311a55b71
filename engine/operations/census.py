"""Finds the episodes that have not ended: reads the whole journal, seconds per million commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.episodes.cancel import cancel
from engine.validation import check_name
from engine.waits.wait import block_in
from streams.layout import Stream
from streams.model.events import EpisodeFinished, EpisodeOpened
from streams.ports.all import Ports
from streams.ports.log import START, Recorded

BATCH_MAX: Final = 1_000

WAIT_S: Final = 5.0
"""Longest wait for commits that the journal is known to have."""


class OpenWait(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that waits for people or for a signal."""

    actor_id: str
    expectation_id: str
    episode_id: str


async def open_episodes(ports: Ports, actor: str, expectation: str) -> list[str]:
    """Return the ids of the expectation's episodes that had not ended when this was asked."""
    census = await _taken(ports, {actor})
    unended = census.unended.values()
    return [each.episode_id for each in unended if each.expectation_id == expectation]


async def blocked_episodes(ports: Ports, actors: Collection[str]) -> list[OpenWait]:
    """Return the episodes of `actors` that were blocked when this was asked, oldest first."""
    census = await _taken(ports, actors)
    return [each for subject, each in census.unended.items() if subject in census.blocked]


@dataclass
class _Census:
    actors: Collection[str]
    unended: dict[str, OpenWait] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)

    def add(self, record: Recorded) -> None:
        """Update the state with one commit."""
        subject = record.subject
        for event in record.commit.events:
            match event:
                case EpisodeOpened() if event.actor_id in self.actors:
                    self.unended[subject] = OpenWait(
                        actor_id=event.actor_id,
                        expectation_id=event.expectation_id,
                        episode_id=event.episode_id,
                    )
                case EpisodeFinished():
                    self.unended.pop(subject, None)
                case _:
                    pass
        self._add_wait(record)

    def _add_wait(self, record: Recorded) -> None:
        # The newest commit alone says whether an episode waits.
        # guard: only-blocked-waits
        if record.subject in self.unended and block_in(record) is not None:
            self.blocked.add(record.subject)
        else:
            self.blocked.discard(record.subject)


async def _taken(ports: Ports, actors: Collection[str]) -> _Census:
    census = _Census(actors)
    async for record in _commits(ports):
        census.add(record)
    return census


async def _commits(ports: Ports) -> AsyncIterator[Recorded]:
    """Yield every commit that the journal had at the time of the call."""
    for partition in ports.stack.partitions_of(Stream.JOURNAL):
        head, at = await ports.log.head(partition=partition), START
        async with ports.log.follow(partition=partition) as follower:
            while at < head:
                for record in await follower.receive(most=BATCH_MAX, wait_s=WAIT_S):
                    yield record
                    at = record.seq


async def cancel_related(
    ports: Ports, actor: str, expectation: str, *, by: str, reason: str = ""
) -> list[str]:
    """Ask for every open episode of an expectation to be canceled; return their ids.

    Episodes that wait for people or signals are included. The whole journal is read: seconds per
    million commits. An episode that is opened meanwhile is not canceled.

    Args:
        by: who asks, for people: 1 to 200 characters.
        reason: why, for people: up to 4,000 characters.

    Raises:
        BadRequest: a value is impossible; the error names the field.
    """
    check_name("actor", actor)
    check_name("expectation", expectation)
    found = await open_episodes(ports, actor, expectation)
    for episode_id in found:
        await cancel(ports, actor, episode_id, by=by, reason=reason)
    return found

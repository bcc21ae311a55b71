"""Fills a journal with episodes that ended long ago, as fast as a server takes them.

Each is a life of three commits, with an id as random as an episode's: ids that count up would share
most of the server's index of subjects. They go in atomic batches (ADR-50), which store without a
sync for every message; readers see no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final
from uuid import UUID

import nats
from nats.aio.client import Client
from nats.js.api import Header

from streams.json import raw
from streams.model.events import (
    EndStatus,
    EpisodeConverged,
    EpisodeFinished,
    EpisodeOpened,
    EpisodeStarted,
    LogEvent,
)
from streams.model.triggers import Budget, EventTrigger
from streams.ports.log import Commit
from streams.subjects import Stack
from streams.wire.codec import encode_commit
from streams.wire.messages import COMMIT_HEADER

BATCH: Final = 1_000
"""Messages in one batch: as many as the server takes, since each batch costs some syncs."""

COMMITS: Final = 3
"""Those of an episode."""

BATCH_S_MAX: Final = 30.0
"""Longest wait for a batch to be stored, in seconds. Measured: 40 ms."""

AT: Final = datetime(2030, 1, 1, tzinfo=UTC)


async def fill(url: str, stack: Stack, *, episodes: int) -> None:
    """Write so many episodes to the journal of `stack`.

    Raises:
        AssertionError: the server did not store a batch; what it said is the message.
    """
    client = await nats.connect(url)
    try:
        messages = _messages(stack, episodes)
        number = 0
        while batch := list(islice(messages, BATCH)):
            number += 1
            await _store(client, batch, id=f"fill-{number}")
    finally:
        await client.close()


def episode_id(number: int) -> str:
    """Return the id of the episode with this number: always the same, and like no other's."""
    digest = hashlib.blake2b(str(number).encode(), digest_size=16).digest()
    return str(UUID(bytes=digest))


def life(number: int) -> Iterator[tuple[LogEvent, ...]]:
    """Yield the events of each commit."""
    yield (
        EpisodeOpened(
            episode_id=episode_id(number),
            actor_id="converge_only",
            expectation_id="measure",
            trigger=EventTrigger(
                event_id=f"fill-{number}",
                event_type="bench.converge_only",
                payload={"key": f"fill-{number}"},
            ),
            dedupe_key=f"event:fill-{number}",
            budget=Budget(),
        ),
    )
    yield (EpisodeStarted(node="n1", attempt=1, claim_revision=number),)
    yield (
        EpisodeConverged(classification=raw({}), confidence=1.0, summary=f"fill-{number}"),
        EpisodeFinished(status=EndStatus.DONE, turns_used=1),
    )


def _messages(stack: Stack, episodes: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield subject, commit id and body of everything there is to write."""
    for number in range(1, episodes + 1):
        subject = stack.episode(episode_id(number))
        for place, events in enumerate(life(number)):
            commit = Commit(id=f"{number}.{place}", at=AT, events=events)
            yield subject, commit.id, encode_commit(commit)


async def _store(client: Client, batch: list[tuple[str, str, bytes]], *, id: str) -> None:
    *before, last = batch
    for place, (subject, commit_id, body) in enumerate(before, start=1):
        await client.publish(subject, body, headers=_headers(commit_id, id, place))
    subject, commit_id, body = last
    ending = {**_headers(commit_id, id, len(batch)), Header.BATCH_COMMIT: "1"}
    answer = await client.request(subject, body, headers=ending, timeout=BATCH_S_MAX)
    assert b'"error"' not in answer.data, answer.data


def _headers(commit_id: str, batch_id: str, place: int) -> dict[str, str]:
    return {
        COMMIT_HEADER: commit_id,
        Header.BATCH_ID: batch_id,
        Header.BATCH_SEQUENCE: str(place),
    }

"""What the world must have been told, by a journal; and what of that is wrong in a stream."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from engine.reactor import follow_up
from engine.reactor.follow_up import EpisodeState, OutputState
from engine.reactor.position import published
from engine.reactor.reactor import followed
from engine.runtime.publish import PublicEvent
from engine.workflows.instance import UNSTARTED
from streams.jetstream.connection import headers
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import stored
from streams.json import JsonObject
from streams.layout import Kind, Stream
from streams.model.events import DeadLettered
from streams.ports.all import Ports
from streams.ports.log import Recorded
from streams.subjects import Stack
from streams.wire.messages import MESSAGE_ID_HEADER, StreamMessage

Told = Mapping[str, Sequence[StreamMessage]]
"""Messages by the id of their event, in order."""

FOLLOWED_S_MAX: Final = 30.0
"""Longest wait for the reactors: many times as long as one takes to be replaced."""

LOOK_S: Final = 0.1
"""Between two looks at them."""

EARLIER: Final = 0
"""A sequence before that of every message."""


def expected(records: Iterable[Recorded], stack: Stack) -> dict[str, list[PublicEvent]]:
    """Return the public events of each aggregate in `records`, in order, by its subject."""
    lives: dict[str, list[Recorded]] = defaultdict(list)
    for record in records:
        lives[record.subject].append(record)
    states: dict[str, EpisodeState] = {}
    found: dict[str, list[PublicEvent]] = {}
    for subject, life in lives.items():
        kind, key = stack.aggregate_of(subject)
        if kind is Kind.EPISODE:
            state, found[subject] = _of_episode(life)
            states[key] = state
    for subject, life in lives.items():
        kind, key = stack.aggregate_of(subject)
        if kind is not Kind.EPISODE:
            found[subject] = list(_of_other(kind, key, life, states))
    return found


def by_id(messages: Iterable[StreamMessage]) -> Told:
    """Return the messages that have an id, by that."""
    found: dict[str, list[StreamMessage]] = defaultdict(list)
    for message in messages:
        if MESSAGE_ID_HEADER in message.headers:
            found[message.headers[MESSAGE_ID_HEADER]].append(message)
    return found


async def told_on(url: str, ports: Ports) -> Told:
    """Return the events on a server by their ids, once its reactors have followed everything.

    Or once `FOLLOWED_S_MAX` are over: then some are missing.
    """
    until_s = time.monotonic() + FOLLOWED_S_MAX
    while time.monotonic() < until_s:
        if await _are_followed(ports):
            break
        await asyncio.sleep(LOOK_S)
    stack = ports.stack
    async with Link(url, LinkSettings()) as link:
        subject, stream = f"{stack.name}.event.>", stack.stream(Stream.EVENTS)
        kept = stored.every_after(link, stream, subject, seq=EARLIER)
        return by_id([_message(each) async for each in kept])


def _message(kept: stored.Stored) -> StreamMessage:
    at = datetime.fromisoformat(kept.headers[headers.STORED_AT])
    return StreamMessage(
        seq=kept.seq, subject=kept.subject, headers=kept.headers, data=kept.data, at=at
    )


async def _are_followed(ports: Ports) -> bool:
    for stream, partition in followed(ports.stack):
        progress = await published(ports, ports.stack.part(stream, partition))
        if progress.seq < await ports.log.head(stream, partition=partition):
            return False
    return True


def wrong(wanted: Mapping[str, Sequence[PublicEvent]], told: Told) -> Iterator[str]:
    """Yield which events are missing, not as they should be, or out of the order of their kind."""
    for subject, events in wanted.items():
        first_at = EARLIER
        for event in events:
            messages = told.get(event.id, [])
            if not messages:
                yield f"{subject}: nobody was told {event.name} {event.id}"
                continue
            for message in messages:
                payload = msgspec.json.decode(msgspec.json.encode(event.payload))
                if _payload(message) != payload:
                    yield f"{event.id}: told {_payload(message)} instead of {payload}"
            if messages[0].seq < first_at:
                yield f"{subject}: {event.id} was told before what came before it"
            first_at = messages[0].seq


def _of_episode(life: Sequence[Recorded]) -> tuple[EpisodeState, list[PublicEvent]]:
    state: EpisodeState | None = None
    told: list[PublicEvent] = []
    for record in life:
        state, effects = follow_up.of_episode(state, record)
        told += [each for each in effects if isinstance(each, PublicEvent)]
    assert state is not None, f"{life[0].subject} was never opened"
    return state, told


def _of_other(
    kind: Kind, key: str, life: Sequence[Recorded], states: Mapping[str, EpisodeState]
) -> Iterator[PublicEvent]:
    output: OutputState | None = None
    letter: DeadLettered | None = None
    instance = UNSTARTED
    for record in life:
        match kind:
            case Kind.FINDING:
                cause = follow_up.cause_of(record)
                yield from follow_up.of_finding(states[cause].opened if cause else None, record)
            case Kind.OUTPUT:
                proposer = follow_up.proposer_of(output, record)
                opened = states[proposer].opened if proposer else None
                output, told = follow_up.of_output(output, record, opened)
                yield from told
            case Kind.WORKFLOW:
                instance, events = follow_up.of_instance(instance, record)
                yield from events
            case Kind.DEFINITION:
                yield from follow_up.of_definition(record)
            case Kind.ORDER:
                told_of_order = follow_up.of_order(record, key=key)
                yield from (each for each in told_of_order if isinstance(each, PublicEvent))
            case Kind.DEAD:
                letter, told = follow_up.of_dead_letter(letter, record, key=key)
                yield from told
            case _:
                pass


def _payload(message: StreamMessage) -> JsonObject:
    payload: JsonObject = msgspec.json.decode(message.data)
    return payload

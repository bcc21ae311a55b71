"""What a stack has lost, and going on without it once a person has accepted that.

    find    what is noted, marked, and known to reactors and rows, against how each stream is now
    accept  streams that are gone are made; positions are set to what streams have; it is noted who
            accepted it, when and why, and where each stream begins from now on
    unmark  the marks go, and nodes may start

Each step may be repeated. Meanwhile nothing of the stack runs: a node that starts is refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from streams.errors import Unavailable
from streams.jetstream.connection.link import Link
from streams.jetstream.connection.settings import LinkSettings
from streams.jetstream.messages import api
from streams.jetstream.ports.bucket import JetStreamBucket
from streams.jetstream.ports.configs import (
    GATES_MARKER_S,
    bucket_stream,
    key_subject,
    registry,
    shapes,
)
from streams.jetstream.setup import setup
from streams.jetstream.setup.past import lacks_positions, marks_of, notes_of, positions_of
from streams.jetstream.setup.states import JetStreamStates
from streams.keys import LOST, STREAMS, lost_key, published_key
from streams.layout import PARTITIONED
from streams.model.followed import Followed, decode_followed, encode_followed
from streams.model.losses import (
    GATES,
    Consent,
    KnownPast,
    Lack,
    Loss,
    LossMark,
    Notes,
    StreamState,
    accepted,
    begun,
    may_catch_up,
    restored,
    what_is_lost,
)
from streams.subjects import Stack

_SPREAD: Final = frozenset(each.value for each in PARTITIONED)

_PARTITION: Final = re.compile(r"-\d{1,2}of(\d{1,2})")


@dataclass(frozen=True)
class FoundLosses:
    """What a look at a stack found; nothing was changed."""

    stack: Stack
    """With the partitions that it has, or had."""
    losses: Sequence[Loss]
    marks: Sequence[LossMark]
    notes: Notes
    """Of each stream that a node has seen; also who has accepted its last loss."""


async def find_losses(
    url: str, *, stack: Stack, known: Mapping[str, int], settings: LinkSettings | None = None
) -> FoundLosses:
    """Return what `stack` has lost of what was known of it.

    `known` has positions that rows know, by stream within the stack. Raises as `connect` does.
    """
    async with Link(url, settings or LinkSettings()) as link:
        await setup.check_server(link)
        return await _find(link, stack, known)


async def accept_losses(
    url: str,
    *,
    found: FoundLosses,
    consent: Consent,
    resume_rows: Callable[[Sequence[Loss]], Awaitable[None]],
    settings: LinkSettings | None = None,
) -> None:
    """Make what is missing of a stack, and set positions and notes to what its streams have.

    `resume_rows` is called with the losses that were `found`, as they are then, before anything is
    noted: `Loss.resumed` says where rows go on. The marks stay; see `remove_marks`.
    """
    async with Link(url, settings or LinkSettings()) as link:
        stack, losses = found.stack, {each.part: each for each in found.losses}
        positions = await positions_of(link, stack)
        await setup.ensure(link, registry(stack, link.settings))
        await _mark(link, stack, found, consent)
        for ours in shapes(stack, link.settings):
            await setup.ensure(link, ours)
        states = await _states(link, stack)
        now = {
            part: msgspec.structs.replace(
                loss, first_seq=states[part].first_seq, last_seq=states[part].last_seq
            )
            for part, loss in losses.items()
        }
        await resume_rows([*now.values()])
        await _set_positions(link, stack, positions, now)
        notes = found.notes
        agreed = {
            part: accepted(loss, states[part], consent, before=notes.get(part))
            for part, loss in now.items()
        }
        await _write(link, stack, {**begun(states), **found.notes, **agreed})


async def remove_marks(url: str, *, stack: Stack, settings: LinkSettings | None = None) -> None:
    """Let nodes of `stack` start again."""
    async with Link(url, settings or LinkSettings()) as link:
        bucket = stack.registry_bucket()
        which = {"filter": key_subject(bucket, f"{LOST}.>")}
        stream = bucket_stream(bucket)
        await api.ask(link, f"STREAM.PURGE.{stream}", which, about=stream)


async def note_restored(link: Link, stack: Stack, earlier: Mapping[str, str]) -> None:
    """Note the streams of `stack` as they are, since they were restored.

    `earlier` has when each was made that was backed up. What was noted of that stays.
    """
    states, before = await _states(link, stack), await notes_of(link, stack)
    notes = {
        part: restored(before.get(part, KnownPast()), each, part=part, earlier=earlier[part])
        for part, each in states.items()
    }
    await _write(link, stack, notes)


async def forget_streams(link: Link, stack: Stack) -> None:
    """Note nothing any more of the streams of `stack`, which are being replaced by others."""
    notes = await notes_of(link, stack)
    kept = {part: each for part, each in notes.items() if part.partition("-")[0] not in _SPREAD}
    await _write(link, stack, kept)


async def _find(link: Link, stack: Stack, known: Mapping[str, int]) -> FoundLosses:
    notes, marks = await notes_of(link, stack), await marks_of(link, stack)
    stack = Stack(stack.name, await _partitions(link, stack, [*notes, *known]))
    positions = await positions_of(link, stack)
    marked = {each.loss.part: each.loss.known_seq for each in marks}
    states = JetStreamStates(link, stack)
    losses: list[Loss] = []
    for part in states.parts:
        noted = notes.get(part, KnownPast())
        seq = max(noted.seq, *(each.get(part, 0) for each in (known, positions, marked)))
        state = await states.of(part)
        known_of = msgspec.structs.replace(noted, seq=seq)
        loss = what_is_lost(part, known_of, state)
        if loss is not None and loss.lack is Lack.BEGINS_LATE:
            # Asked after the stream: whoever purges it on purpose notes that before.
            floor = (await notes_of(link, stack)).get(part, noted).floor
            loss = what_is_lost(part, msgspec.structs.replace(known_of, floor=floor), state)
        # A mark says that somebody has given the stream its time to catch up.
        # guard: loss-catch-up-not-asked
        if loss is not None and (part in marked or not may_catch_up(loss, state)):
            losses.append(loss)
    # guard: loss-missing-position-found
    if GATES not in {each.part for each in losses} and await lacks_positions(link, stack):
        losses.append(Loss(part=GATES, lack=Lack.FORGOTTEN))
    return FoundLosses(stack, losses, marks, notes)


async def _partitions(link: Link, stack: Stack, parts: Sequence[str]) -> int:
    """Return over how many partitions a stack is spread, by its registry, or by what is known."""
    config = await setup.config_of(link, bucket_stream(stack.registry_bucket()))
    if config is not None:
        return setup.layout_of(stack, config).partitions
    said = [match[1] for part in parts if (match := _PARTITION.search(part))]
    return int(said[0]) if said else link.settings.partitions or 1


async def _states(link: Link, stack: Stack) -> Mapping[str, StreamState]:
    states = JetStreamStates(link, stack)
    found = {part: await states.of(part) for part in states.parts}
    missing = [part for part, state in found.items() if state is None]
    if missing:
        raise Unavailable(
            f"stream {stack.name}-{missing[0]}", detail="it was just made, and is gone"
        )
    return {part: state for part, state in found.items() if state is not None}


async def _set_positions(
    link: Link,
    stack: Stack,
    positions: Mapping[str, int],
    losses: Mapping[str, Loss],
) -> None:
    """Set the positions of the reactors; without the gates, those follow from what is published."""
    if GATES in losses:  # guard: loss-gates-publish-nothing
        return
    gates = JetStreamBucket(link, stack.gates_bucket(), marker_s=GATES_MARKER_S)
    for part in positions:
        loss = losses.get(part)
        if loss is not None:
            key, seq = published_key(part), loss.resumed(positions[part])
            entry = await gates.get(key)
            covered_from = decode_followed(entry.value if entry else None).covered_from
            resumed = Followed(seq, covered_from if covered_from <= seq else 0)
            await gates.put(key, encode_followed(resumed))


async def _mark(link: Link, stack: Stack, found: FoundLosses, consent: Consent) -> None:
    """Mark what nobody has marked, so that an interruption leaves nothing forgotten."""
    marked = {each.loss.part for each in found.marks}
    registry_ = JetStreamBucket(link, stack.registry_bucket(), marker_s=None)
    for loss in found.losses:
        if loss.part not in marked:  # guard: loss-marked-until-accepted
            mark = LossMark(loss=loss, by=consent.by, at=consent.at)
            await registry_.put(lost_key(loss.part), msgspec.json.encode(mark))


async def _write(link: Link, stack: Stack, notes: Notes) -> None:
    data = msgspec.json.encode(notes)
    for bucket in (stack.registry_bucket(), stack.gates_bucket()):
        await JetStreamBucket(link, bucket, marker_s=None).put(STREAMS, data)

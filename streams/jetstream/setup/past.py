"""Whether a stack has lost its past, before anything of it is made: marks, and missing streams.

Who notices a loss puts the key `lost.<stream>` into the registry. Whoever may ask how the registry
is sees that with the same request, also a program that may only publish. What a node has seen of a
stack is noted in the registry and in the gates, so neither can be lost together with its notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from streams.errors import Incompatible, NoSuchStream, UnreadableEvent
from streams.jetstream.connection.link import Link
from streams.jetstream.messages import stored
from streams.jetstream.ports.configs import bucket_stream, key_subject, names_of
from streams.keys import LOST, STREAMS, published_key, started_event
from streams.layout import FOLLOWED, Stream
from streams.model.followed import decode_followed
from streams.model.losses import REGISTRY, Lack, LogLost, Loss, LossMark, Notes, read_notes
from streams.subjects import Stack

LOOKS_MAX: Final = 5
"""Looks for a stream that is noted before it counts as gone. Of several servers, one may know a new
one before another does."""

LOOK_S: Final = 0.2
"""Between two of them, in seconds."""

_marks: Final = msgspec.json.Decoder(LossMark)


async def require_unmarked(link: Link, stack: Stack) -> None:
    """Raise `LogLost` if the registry has marks of losses."""
    marks = await marks_of(link, stack)
    if marks:
        raise LogLost(stack.name, [each.loss for each in marks])


async def require_registry(link: Link, stack: Stack, known: Mapping[str, int]) -> None:
    """Raise `LogLost` if there is no registry, and there was one.

    It is the first of a stack that is made. `known`: positions that rows know, by stream.
    """
    name = bucket_stream(stack.registry_bucket())
    if await _exists(link, name):
        return
    losses = [
        Loss(part=part, lack=Lack.MISSING, known_seq=seq) for part, seq in known.items() if seq
    ]
    later = (stack.stream(Stream.EVENTS), stack.stream(Stream.DEAD))
    # guard: loss-rows-known-not-remade
    if not losses and not any([await _exists(link, each) for each in later]):
        return
    if await _is_gone(link, name):
        raise LogLost(stack.name, [*losses, Loss(part=REGISTRY, lack=Lack.MISSING)])


async def require_unnoted(link: Link, stack: Stack, name: str) -> None:
    """Raise `LogLost` if the missing stream called `name` is one that a node has seen."""
    part = next((part for part, each in names_of(stack).items() if each == name), "")
    known = (await notes_of(link, stack)).get(part)  # Nobody notes anything of refusals.
    if known is not None and await _is_gone(link, name):
        loss = Loss(part=part, lack=Lack.MISSING, known_seq=known.seq)
        raise LogLost(stack.name, [loss])


async def marks_of(link: Link, stack: Stack) -> Sequence[LossMark]:
    """Return the marks of losses; one that this user may not read only names its stream."""
    bucket = stack.registry_bucket()
    under = key_subject(bucket, LOST)
    try:
        subjects = await stored.counts(link, bucket_stream(bucket), f"{under}.>")
    except NoSuchStream:
        return []
    return [
        await _mark(link, bucket, each, part=each.removeprefix(f"{under}."))
        for each in sorted(subjects)
    ]


async def notes_of(link: Link, stack: Stack) -> Notes:
    """Return what nodes have noted of the streams of `stack`."""
    registry, gates = [
        await _value(link, bucket, key_subject(bucket, STREAMS))
        for bucket in (stack.registry_bucket(), stack.gates_bucket())
    ]
    try:
        return read_notes(registry, gates)
    except msgspec.DecodeError as error:
        subject = key_subject(stack.registry_bucket(), STREAMS)
        raise UnreadableEvent(subject, seq=0, detail=str(error)) from error


async def positions_of(link: Link, stack: Stack) -> Mapping[str, int]:
    """Return up to where what follows from each stream was published, by stream in the stack."""
    bucket = stack.gates_bucket()
    parts = [stack.part(each, nth) for each in FOLLOWED for nth in stack.partitions_of(each)]
    found = {
        part: await _value(link, bucket, key_subject(bucket, published_key(part))) for part in parts
    }
    return {part: decode_followed(value).seq for part, value in found.items()}


async def lacks_positions(link: Link, stack: Stack) -> bool:
    """Return whether a reactor has published events, and its position is not in the gates."""
    gates, events = stack.gates_bucket(), stack.stream(Stream.EVENTS)
    parts = [stack.part(each, nth) for each in FOLLOWED for nth in stack.partitions_of(each)]
    for part in parts:
        if await _value(link, gates, key_subject(gates, published_key(part))) is not None:
            continue
        registry, key = stack.registry_bucket(), published_key(part)
        noted = await _value(link, registry, key_subject(registry, key))
        if noted is not None:  # guard: noted-position-looked-for
            return True
        try:
            fence = await stored.last(link, events, stack.event(started_event(part)))
        except NoSuchStream:
            return False
        if fence is not None:
            return True
    return False


async def _mark(link: Link, bucket: str, subject: str, *, part: str) -> LossMark:
    unread = LossMark(loss=Loss(part=part, lack=Lack.NOTED))
    try:
        value = await _value(link, bucket, subject)
        return _marks.decode(value) if value else unread
    except (Incompatible, msgspec.DecodeError):  # guard: loss-unreadable-mark-counts
        return unread


async def _value(link: Link, bucket: str, subject: str) -> bytes | None:
    try:
        found = await stored.last(link, bucket_stream(bucket), subject)
    except NoSuchStream:
        return None
    return found.data if found is not None else None


async def _is_gone(link: Link, name: str) -> bool:
    """Return whether no look for a stream finds it."""
    for _ in range(LOOKS_MAX):
        if await _exists(link, name):
            return False
        await link.clock.sleep(LOOK_S)
    return True


async def _exists(link: Link, name: str) -> bool:
    try:
        await stored.extent(link, name)
    except NoSuchStream:
        return False
    return True

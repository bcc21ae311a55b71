"""Removes the beginning of a stream, in slices by sequence, and notes first that it will.

Measured (docs/adr/0098-archive-by-segments.md): one purge by sequence costs a fixed part, which
grows with the subjects that are left, and 1 µs for each message; the stream stands meanwhile. So a
slice has about a third as many messages as the stream has subjects, and publishers get a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from streams.clock import Clock
from streams.errors import RevisionConflict, Unavailable, UnknownOutcome
from streams.keys import STREAMS
from streams.model.losses import KnownPast, keeps_all, purged, read_notes
from streams.ports.all import Ports
from streams.ports.bucket import Bucket

SLICE_MIN: Final = 10_000
"""Fewest messages of the first slice; less costs more in fixed parts."""

SUBJECTS_PER_MESSAGE: Final = 3
"""How many subjects a stream has for each message of a slice: then both parts cost the same."""

SLICE_LEAST: Final = 500
"""What a slice is halved down to, in messages."""

SLOW_S: Final = 1.0
"""A slice that takes longer is followed by one of half the size. Requests are given 2 s, and those
of publishers wait for as long as the slice takes."""

PAUSE_S: Final = 0.4
"""Between two slices, in seconds."""

SLICES_LOST_MAX: Final = 20
"""Most slices in a row without an answer."""

NOTE_TRIES_MAX: Final = 5
"""Most tries to note a floor while processes note what they see of other streams."""


class PurgeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed of one stream."""

    messages: int = 0
    slices: int = 0
    slowest_s: float = 0.0


async def purge(
    ports: Ports, part: str, *, floor: int, clock: Clock, check: Callable[[], None]
) -> PurgeReport:
    """Remove everything before `floor`; `check` raises as soon as somebody else may do it.

    It can be interrupted anywhere, and done again.
    """
    state = await ports.states.of(part)
    if state is None or state.first_seq >= floor:
        return PurgeReport()
    if keeps_all(part):
        await note_floor(ports, part, created=state.created, floor=floor)
    done = PurgeReport()
    first_seq, size = state.first_seq, max(SLICE_MIN, state.subjects // SUBJECTS_PER_MESSAGE)
    lost = 0
    while first_seq < floor:
        check()  # guard: archive-purges-while-alone
        below = min(floor, first_seq + size)
        began_s = clock.monotonic_s()
        try:
            count = await ports.states.purge(part, below=below)
        except UnknownOutcome:
            lost += 1
            if lost == SLICES_LOST_MAX:
                raise
            count = 0
        else:
            lost, first_seq = 0, below
        took_s = clock.monotonic_s() - began_s
        done = PurgeReport(
            messages=done.messages + count,
            slices=done.slices + 1,
            slowest_s=max(done.slowest_s, took_s),
        )
        if took_s > SLOW_S:  # guard: archive-slow-slice-halved
            size = max(SLICE_LEAST, size // 2)
        if first_seq < floor:
            await clock.sleep(PAUSE_S)
    return done


async def note_floor(ports: Ports, part: str, *, created: str, floor: int) -> None:
    """Note in the registry and the gates that a stream begins at `floor` from now on.

    Everything of the stack would else take it for a stream that has lost its past, and stop.
    """
    for bucket in (ports.gates, ports.registry):
        await _note(bucket, part, created=created, floor=floor)


async def _note(bucket: Bucket, part: str, *, created: str, floor: int) -> None:
    for _ in range(NOTE_TRIES_MAX):
        entry = await bucket.get(STREAMS)
        value = entry.value if entry is not None else None
        notes = read_notes(value, value)
        known = purged(notes.get(part, KnownPast(created=created)), floor=floor)
        data = msgspec.json.encode({**notes, part: known})
        with suppress(RevisionConflict):
            await bucket.put(STREAMS, data, after=entry.revision if entry is not None else 0)
            return
    raise Unavailable(f"the floor of {part}", detail="others note something all the time")

"""Whether a stream of a stack has lost its past: what was known of it, and how it is now. Pure.

    lack            what a look at the stream finds
    missing         there is no such stream any more
    made_anew       it was made at another time than the one that was known
    ends_early      its newest message is before one that was acknowledged or delivered
    begins_late     its oldest message is past the first that it must have; only of what keeps all
    emptied         it has no message any more; only of what always has one
    forgotten       it lacks what it must have; only of the gates: positions of reactors
    noted           somebody has noted a loss, and what it is cannot be read

Streams of commits keep all that they ever had, from a first message on that is noted. Events, work,
dead letters and claims lose their beginning by and by, as they should. The registry and the gates
forget keys, but never the one that has these notes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from streams.errors import StreamError
from streams.layout import AGGREGATE_STREAMS

FIRST_SEQ: Final = 1
"""Where a stream begins that nobody has emptied."""

REGISTRY: Final = "registry"
GATES: Final = "gates"
CLAIMS: Final = "claims"
OBJECTS: Final = "blobs"
"""The buckets and the object store of a stack, beside the names of its streams within the stack."""

NEVER_EMPTY: Final = (REGISTRY, GATES)


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """How one stream or bucket is, as its leader says."""

    created: str
    """When it was made. One that is made anew has another time."""
    first_seq: int
    """Of its oldest message; without any, where the next one will be."""
    last_seq: int
    """Of the newest message that it ever had, or 0."""
    messages: int
    copies: int = 1
    """How many servers are to have it."""
    subjects: int = 0
    """How many subjects have a message."""


class Consent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """That a person accepts a loss."""

    by: str
    at: datetime
    reason: str = ""


class Acceptance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was lost when a person accepted it."""

    consent: Consent
    lack: Lack
    known_seq: int = 0
    last_seq: int = 0


class EarlierStream(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stream whose sequences another one goes on with, as one that was restored does."""

    created: str
    """When it was made."""
    seq: int
    """Up to where both have the same messages."""


class KnownPast(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a stream."""

    created: str = ""
    """When it was made; empty: nobody has looked yet."""
    seq: int = 0
    """The newest message of it that was acknowledged or delivered."""
    floor: int = FIRST_SEQ
    """Where a stream that keeps all begins; whoever empties one on purpose notes it here first."""
    archived: int = 0
    """Up to where its messages are in an archive, and may be gone from the stream."""
    continues: tuple[EarlierStream, ...] = ()
    """The streams that it was before it was restored, oldest first."""
    accepted: Acceptance | None = None
    """Who has accepted the last loss."""


class Lack(StrEnum):
    """How a stream has lost its past; see the module."""

    MISSING = "missing"
    MADE_ANEW = "made_anew"
    ENDS_EARLY = "ends_early"
    BEGINS_LATE = "begins_late"
    EMPTIED = "emptied"
    FORGOTTEN = "forgotten"
    NOTED = "noted"


class Loss(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one stream has lost."""

    part: str
    """The stream, or a partition of it, within the stack: `journal`, `journal-0of4`, `gates`."""
    lack: Lack
    known_seq: int = 0
    first_seq: int = 0
    last_seq: int = 0

    @property
    def words(self) -> str:
        """What it is, in words, for people who know the name of the stream."""
        known = f"; messages up to {self.known_seq:,} were known" if self.known_seq else ""
        match self.lack:
            case Lack.MISSING:
                return f"is gone{known}"
            case Lack.MADE_ANEW:
                return f"was deleted and made anew, and ends at {self.last_seq:,}{known}"
            case Lack.ENDS_EARLY:
                return f"ends at {self.last_seq:,}{known}"
            case Lack.BEGINS_LATE:
                return f"was emptied up to {self.first_seq - 1:,}"
            case Lack.EMPTIED:
                return "was emptied"
            case Lack.FORGOTTEN:
                return "lacks the positions of reactors, which have published events"
            case Lack.NOTED:
                return "is noted as one that has lost its past"

    @property
    def is_of_all(self) -> bool:
        """Whether nothing that was known is left."""
        return self.lack in {Lack.MISSING, Lack.MADE_ANEW}

    def resumed(self, position: int) -> int:
        """Return where whoever was at `position` goes on, once the loss is accepted."""
        if self.is_of_all:  # guard: loss-new-stream-new
            return 0
        return min(max(position, self.first_seq - 1), self.last_seq)


class LossMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The entry `lost.<stream>` of the registry: who has noticed a loss, and when."""

    loss: Loss
    by: str = ""
    at: datetime | None = None


class LogLost(StreamError):
    """Streams do not have what was known of them. Nothing of the stack may go on by itself."""

    def __init__(self, stack: str, losses: Sequence[Loss]) -> None:
        first, *others = losses
        more = f", and {len(others)} more" if others else ""
        super().__init__(
            f"stack {stack} has lost its past: stream {stack}-{first.part} {first.words}{more}. "
            "Everything of the stack stops. `vigil doctor` shows it; bring the stream back from a "
            "backup, or run `vigil recover --accept-loss` to go on without what is lost"
        )
        self.stack = stack
        self.losses = losses


Notes = dict[str, KnownPast]
"""By stream within the stack: the entry `streams`, which the registry and the gates both have."""

_notes: Final = msgspec.json.Decoder(Notes)


def read_notes(registry: bytes | None, gates: bytes | None) -> Notes:
    """Return what is noted in either bucket; of a bucket the other one knows better.

    Raises `msgspec.DecodeError` if that cannot be read.
    """
    in_registry = _notes.decode(registry) if registry else {}
    in_gates = _notes.decode(gates) if gates else {}
    of_registry = {part: each for part, each in in_gates.items() if part == REGISTRY}
    return {**in_gates, **in_registry, **of_registry}  # guard: loss-other-knows-better


def what_is_lost(part: str, known: KnownPast, state: StreamState | None) -> Loss | None:
    """Return what the stream `part` has lost of what was known of it; None: nothing.

    `state` is how it is now; None: there is no such stream.
    """
    if state is None:
        if not known.created and not known.seq:
            return None
        return Loss(part=part, lack=Lack.MISSING, known_seq=known.seq)
    lack = _lack(part, known, state)
    if lack is None:
        return None
    return Loss(
        part=part,
        lack=lack,
        known_seq=known.seq,
        first_seq=state.first_seq,
        last_seq=state.last_seq,
    )


def _lack(part: str, known: KnownPast, state: StreamState) -> Lack | None:
    if known.created not in {"", state.created}:  # guard: loss-remade-stream
        return Lack.MADE_ANEW
    if state.last_seq < known.seq:  # guard: loss-known-missing
        return Lack.ENDS_EARLY
    # guard: loss-floor-moved
    if keeps_all(part) and state.last_seq and state.first_seq > known.floor:
        return Lack.BEGINS_LATE
    if part in NEVER_EMPTY and state.last_seq and not state.messages:  # guard: loss-empty-bucket
        return Lack.EMPTIED
    return None


def ends_early(part: str, seq: int, state: StreamState | None) -> Loss | None:
    """Return what a stream has lost for who was at `seq` and knows nothing else of it."""
    floor = state.first_seq if state is not None else FIRST_SEQ
    return what_is_lost(part, KnownPast(seq=seq, floor=floor), state)


def may_catch_up(loss: Loss, state: StreamState | None) -> bool:
    """Return whether a stream may only seem to end early.

    A server that was started again cuts its copy back, and repeats the log of the copies from there
    on. It may lead before it is done, and then says that the stream ends where it is by now.
    """
    # guard: loss-leader-may-catch-up
    return loss.lack is Lack.ENDS_EARLY and state is not None and state.copies > 1


def keeps_all(part: str) -> bool:
    """Return whether a stream keeps all that it ever had."""
    return part.partition("-")[0] in AGGREGATE_STREAMS


def further(known: KnownPast, state: StreamState) -> KnownPast:
    """Return what is known of a stream after it was found whole."""
    return msgspec.structs.replace(known, created=state.created, seq=max(known.seq, state.last_seq))


def purged(known: KnownPast, *, floor: int) -> KnownPast:
    """Return what is to be known of a stream before what is archived is removed below `floor`."""
    floor = max(known.floor, floor)
    return msgspec.structs.replace(known, floor=floor, archived=max(known.archived, floor - 1))


def begun(states: Mapping[str, StreamState]) -> Notes:
    """Return the notes about streams of which there are none yet."""
    return {part: KnownPast(created=state.created) for part, state in states.items()}


def restored(known: KnownPast, state: StreamState, *, part: str, earlier: str) -> KnownPast:
    """Return what is to be known of a stream that was restored.

    `known` was, when it was backed up as the one that was made at `earlier`.
    """
    ended = (EarlierStream(created=earlier, seq=state.last_seq),) if keeps_all(part) else ()
    return msgspec.structs.replace(
        known,
        created=state.created,
        seq=state.last_seq,
        floor=max(FIRST_SEQ, state.first_seq),
        continues=(*known.continues, *ended),  # guard: restored-stream-continues
    )


def accepted(
    loss: Loss, state: StreamState, consent: Consent, *, before: KnownPast | None = None
) -> KnownPast:
    """Return what is known of a stream once a person has accepted what it has lost.

    `before` was known of it; None: nothing.
    """
    goes_on = before is not None and not loss.is_of_all
    return KnownPast(
        created=state.created,
        floor=max(FIRST_SEQ, state.first_seq),
        archived=before.archived if before is not None and goes_on else 0,
        continues=before.continues if before is not None and goes_on else (),
        accepted=Acceptance(
            consent=consent,
            lack=loss.lack,
            known_seq=loss.known_seq,
            last_seq=state.last_seq,
        ),
    )

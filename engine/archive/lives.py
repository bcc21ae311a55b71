"""Which aggregates of a journal are still open at a sequence, and where each began. Pure.

    (nothing) ──▶ open ──▶ ended for good      (forgotten)
                   ▲ └───▶ ended for now       kept until the journal no longer has its beginning
                   └──────────┘

Episodes and instances end for good. An output that failed or was canceled may be retried or
proposed again, so what became of it since is looked up before its beginning is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from streams.model.events import (
    EpisodeFinished,
    OutputCanceled,
    OutputDelivered,
    OutputFailed,
    OutputForgone,
    OutputProposed,
    OutputRejected,
    OutputRetried,
    WorkflowFinished,
)
from streams.ports.log import Recorded

_FOR_GOOD: Final = (EpisodeFinished, OutputDelivered, WorkflowFinished)
_FOR_NOW: Final = (OutputCanceled, OutputFailed, OutputRejected)
_AGAIN: Final = (OutputProposed, OutputRetried)


class OpenLife(msgspec.Struct, frozen=True, array_like=True):
    """An aggregate whose beginning must stay in the journal."""

    seq: int
    """Of its first commit."""
    at: datetime
    """When that was decided."""
    is_ended: bool = False
    """For now: it may go on."""


Lives = dict[str, OpenLife]
"""By subject."""

_decoder: Final = msgspec.msgpack.Decoder(Lives)


def note(lives: Lives, record: Recorded) -> None:
    """Note what a commit does to its aggregate, after all commits before it."""
    life = lives.get(record.subject) or OpenLife(record.seq, record.commit.at)
    for event in record.commit.events:
        if isinstance(event, _FOR_GOOD):
            lives.pop(record.subject, None)
            return
        if isinstance(event, _FOR_NOW):
            life = msgspec.structs.replace(life, is_ended=True)
        elif isinstance(event, _AGAIN):
            life = msgspec.structs.replace(life, is_ended=False)
        elif isinstance(event, OutputForgone) and record.subject not in lives:
            life = msgspec.structs.replace(life, is_ended=True)
    lives[record.subject] = life


def still_there(lives: Mapping[str, OpenLife], *, first_seq: int) -> Lives:
    """Return those whose beginning a journal may still have that begins at `first_seq`."""
    return {
        subject: life
        for subject, life in lives.items()
        if not life.is_ended or life.seq >= first_seq  # guard: archive-forgets-purged-outputs
    }


def encode_lives(lives: Lives) -> bytes:
    """Return them as bytes."""
    return msgspec.msgpack.encode(lives)


def decode_lives(data: bytes) -> Lives:
    """Return what `encode_lives` has made `data` of."""
    return _decoder.decode(data)

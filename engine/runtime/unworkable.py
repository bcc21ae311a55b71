"""What nobody can make an episode of, as a message that is to be buried."""

from __future__ import annotations

from streams.delivery import Unreadable
from streams.errors import TooLarge, Unwritable
from streams.events import EpisodeOpened
from streams.json import raw
from streams.layout import Stream
from streams.subjects import Stack
from streams.world import DomainEvent


def rejected(event: DomainEvent, stack: Stack, *, reason: str, detail: str) -> Unreadable:
    """Return `event` as a message that cannot be worked on, to be buried."""
    return Unreadable(
        reason=reason,
        detail=detail,
        stream=event.stream or stack.stream(Stream.EVENTS),
        seq=event.seq,
        subject=event.name if event.stream else stack.event(event.name),
        headers={},
        data=bytes(raw(event.payload)),
    )


def unopened(
    opened: EpisodeOpened, cause: object, error: TooLarge | Unwritable, *, stack: Stack, seq: int
) -> Unreadable:
    """Return what woke an actor, as a message to be buried, if its episode cannot be opened.

    Args:
        opened: what the journal cannot keep.
        cause: the event, or whatever else came due.
        error: why.
        stack: the actor's.
        seq: of the cause, in its stream.
    """
    reason = "too_large" if isinstance(error, TooLarge) else "unwritable"
    if isinstance(cause, DomainEvent):
        return rejected(cause, stack, reason=reason, detail=str(error))
    subject = stack.due(opened.actor_id)
    return Unreadable(
        reason=reason,
        detail=str(error),
        stream=stack.stream_of(subject),
        seq=seq,
        subject=subject,
        headers={},
        data=bytes(raw(opened.trigger)),
    )

"""What could not be done. Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from streams.model.struct import Event

PAYLOAD_KEPT_BYTES_MAX: Final = 256 * 1024
"""Most of a rejected message that its dead letter keeps; the whole stays in its stream."""


class DeadLettered(Event, frozen=True, kw_only=True, tag="dead.lettered@1"):
    """Something was rejected for good, and waits for a person."""

    reason: str
    """A stable class: `unreadable`, `not_an_object`, `too_large`, …"""
    detail: str
    stream: str
    """Where the rejected message is, or was."""
    seq: int
    subject: str
    actor_id: str = ""
    episode_id: str = ""
    """The episode that was given up on, where it is one."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    payload: bytes = b""
    """The message as it came, cut at `PAYLOAD_KEPT_BYTES_MAX`."""
    payload_size_bytes: int = 0


class DeadRequeued(Event, frozen=True, kw_only=True, tag="dead.requeued@1"):
    """A person had it tried again, or an actor proposed anew what had failed."""

    by: str
    """The person; or `actor` and its name."""
    episode_id: str = ""
    """The new episode, where one was opened; of an output, the episode that has it by now."""
    event_seq: int = 0
    """The domain event, published again, where it was one."""
    instance_id: str = ""
    """The instance of a workflow that a command was put to again, where it was one."""


class DeadDiscarded(Event, frozen=True, kw_only=True, tag="dead.discarded@1"):
    """A person decided that it is of no use."""

    by: str
    reason: str = ""


DeadEvent: TypeAlias = DeadLettered | DeadRequeued | DeadDiscarded

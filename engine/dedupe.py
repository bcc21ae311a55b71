"""Identity from causes: the same cause always gives the same episode. Pure."""

from __future__ import annotations

import hashlib
from uuid import UUID

import msgspec

from streams.world import DomainEvent


def event_key(event: DomainEvent) -> str:
    """Return the dedupe key of an episode that `event` fires: one per event identity."""
    return f"event:{event.id}"


def episode_id(
    *, stack: str, actor: str, expectation: str, dedupe_key: str, generation: int = 0
) -> str:
    """Return the episode's id: a UUIDv8 (RFC 9562) over BLAKE2b-128 of what caused it.

    Opening an episode twice is therefore a version conflict, not a second episode. The parts
    are hashed as a JSON list, so that no two different lists of parts look alike.
    """
    parts = msgspec.json.encode([stack, actor, expectation, dedupe_key, generation])
    digest = bytearray(hashlib.blake2b(parts, digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80  # Version 8: the bits mean what their maker says.
    digest[8] = digest[8] & 0x3F | 0x80  # The RFC 9562 variant.
    return str(UUID(bytes=bytes(digest)))

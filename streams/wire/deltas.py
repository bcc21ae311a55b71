"""A delta as a message. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from streams.json import UNDECODABLE
from streams.model.deltas import Delta

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Delta)


def encode_delta(delta: Delta) -> bytes:
    """Return the message body of `delta`."""
    return _encoder.encode(delta)


def decode_delta(data: bytes) -> Delta | None:
    """Return the delta in a message body; None if this version cannot read it."""
    try:
        return _decoder.decode(data)
    except UNDECODABLE:
        return None

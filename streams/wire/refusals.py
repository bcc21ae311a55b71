"""A refusal as a message. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from streams.json import UNDECODABLE
from streams.model.refusals import Refusal

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Refusal)


def encode_refusal(refusal: Refusal) -> bytes:
    """Return the message body of `refusal`."""
    return _encoder.encode(refusal)


def decode_refusal(data: bytes) -> Refusal | None:
    """Return the refusal in a message body; None if this version cannot read it."""
    try:
        return _decoder.decode(data)
    except UNDECODABLE:
        return None

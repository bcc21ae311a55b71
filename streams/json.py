"""JSON as a type: what users hand in, and what passes through unread."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object given by a user. `Any`, because its shape is theirs and they index into it."""

NOTHING: Final = msgspec.Raw(b"null")
"""The absent JSON value: what a `Raw` field holds when there is nothing to say."""

UNDECODABLE: Final = (ValueError, RecursionError)
"""What decoding hostile bytes raises: msgspec's errors and `UnicodeDecodeError` are both
`ValueError`s, and deep nesting is a `RecursionError` (measured, msgspec 0.22)."""

_encoder = msgspec.json.Encoder(order="deterministic")


def raw(value: object) -> msgspec.Raw:
    """Return `value` as encoded JSON, keys sorted, so that equal values are equal bytes.

    Raises:
        TypeError: `value` holds something JSON cannot say.
        ValueError: `value` refers to itself, or holds an integer over 64 bits.
    """
    try:
        return msgspec.Raw(_encoder.encode(value))
    except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def unraw(value: msgspec.Raw) -> Any:  # noqa: ANN401 - the shape is the user's
    """Return the Python value that `value` encodes."""
    return msgspec.json.decode(value)

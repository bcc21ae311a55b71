"""JSON as a type: what users pass in, and what is passed on unread."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object given by a user. `Any`, because its shape is theirs and they index into it."""

NOTHING: Final = msgspec.Raw(b"null")
"""The absent JSON value, of a `Raw` field."""

UNDECODABLE: Final = (ValueError, RecursionError)
"""What decoding hostile bytes raises: msgspec's errors and `UnicodeDecodeError` are both
`ValueError`s, and deep nesting is a `RecursionError` (measured, msgspec 0.22)."""

_encoder = msgspec.json.Encoder(order="deterministic")


def raw(value: object) -> msgspec.Raw:
    """Return `value` as encoded JSON, keys sorted, so that equal values are equal bytes.

    Raises:
        TypeError: `value` contains something JSON cannot express.
        ValueError: `value` refers to itself, or contains an integer over 64 bits.
    """
    try:
        return msgspec.Raw(_encoder.encode(value))
    except (msgspec.MsgspecError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error


def exact(value: object) -> msgspec.Raw:
    """Return `value` as `raw` does; raise `ValueError`, too, for a float that is not finite."""
    encoded = raw(value)
    # Only where there is a null may something have become one.
    if b"null" in bytes(encoded) and not _is_finite(_plain(value)):
        raise ValueError("a number that is not finite; JSON has none")
    return encoded


def unraw(value: msgspec.Raw) -> Any:  # noqa: ANN401 - the shape is the user's
    """Return the Python value that `value` encodes."""
    return msgspec.json.decode(value)


def _plain(value: object) -> object:
    return msgspec.to_builtins(value, enc_hook=_left_out)


def _left_out(_: object) -> None:
    """Replace what is JSON already: it has no float."""


def _is_finite(value: object) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, float) and not isfinite(one):
            return False
        if isinstance(one, dict):
            left.extend(one.values())
        elif isinstance(one, list | tuple | set | frozenset):
            left.extend(one)
    return True

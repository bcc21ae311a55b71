"""A strategy's state to JSON and back. Pure.

A state may be a `msgspec.Struct`, a dataclass, a pydantic model or a dict. It is kept at
checkpoints, so whatever it holds must survive the way to JSON and back.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pydantic import BaseModel, ValidationError

from engine.errors import Unencodable
from streams.json import exact

KEPT_BYTES_MAX: Final = 256 * 1024
"""Largest state, argument, result or evidence that the journal keeps."""


def encode(value: object, *, what: str) -> msgspec.Raw:
    """Return `value` as JSON for the journal.

    Args:
        value: anything JSON can say; structs, dataclasses and pydantic models count.
        what: named in the error.

    Raises:
        Unencodable: JSON cannot say it, as it cannot NaN, or it is over `KEPT_BYTES_MAX` bytes.
    """
    try:
        plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
        encoded = exact(plain)
    except (TypeError, ValueError) as error:
        raise Unencodable(f"{what}: {error}") from error
    size_bytes = len(bytes(encoded))
    if size_bytes > KEPT_BYTES_MAX:
        raise Unencodable(
            f"{what}: {size_bytes:,} bytes, the limit is {KEPT_BYTES_MAX:,};"
            " keep it elsewhere and hand on a reference"
        )
    return encoded


def decode(encoded: msgspec.Raw, *, type_: type, what: str) -> Any:  # noqa: ANN401 - the user's
    """Return the state that `encode` made `encoded` from, as a `type_`.

    Raises:
        Unencodable: it does not fit `type_`: the state's shape changed since it was kept.
    """
    try:
        if issubclass(type_, BaseModel):
            return type_.model_validate_json(bytes(encoded))
        return msgspec.json.decode(encoded, type=type_)
    except (msgspec.MsgspecError, ValidationError, TypeError) as error:
        raise Unencodable(f"{what} does not fit {type_.__name__}: {error}") from error

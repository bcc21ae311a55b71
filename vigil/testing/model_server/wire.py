"""What the protocols of models have in common, and their table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from streams.json import JsonObject
from vigil.testing.model_server.answers import (
    FailureAnswer,
    ModelReply,
    ModelRequest,
    ProtocolName,
    json_text,
)
from vigil.testing.virtual_time import DAY_ONE

CREATED_AT_S: Final = int(DAY_ONE.timestamp())
"""When every answer was made: the time of no clock, so that equal requests get equal answers."""

ID_BYTES: Final = 8
"""Length of the hash in the ids of answers and calls: long enough that two never collide."""

T = TypeVar("T")


class BadBody(ValueError):
    """A request is none of its protocol's."""


@dataclass(frozen=True)
class WireProtocol:
    """How a provider speaks."""

    name: ProtocolName
    read: Callable[[JsonObject, str], ModelRequest]
    """The body and the idempotency key of a request → the request; or raises `BadBody`."""
    whole: Callable[[ModelReply], JsonObject]
    """The body of an answer in one piece."""
    frames: Callable[[ModelReply, ModelRequest], Sequence[bytes]]
    """The server-sent events of an answer that is streamed."""
    failed: Callable[[FailureAnswer], object]
    """The body of a failure."""


def converted(body: JsonObject, kind: type[T]) -> T:
    """Return `body` as `kind`; raise `BadBody` if it is none."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise BadBody(str(error)) from error


def settings_in(body: JsonObject, *, but: Sequence[str]) -> dict[str, Any]:
    """Return what `body` says, without the fields `but`."""
    return {name: value for name, value in body.items() if name not in but}


def arguments(text: str) -> object:
    """Return the arguments of a call, which a request repeats as text."""
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return text


def frame(data: JsonObject | str, *, event: str = "") -> bytes:
    """Return one server-sent event."""
    said = data if isinstance(data, str) else json_text(data)
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {said}\n\n".encode()


def digest_of(*parts: str) -> str:
    """Return the hash that ids are made of."""
    return blake2b("\0".join(parts).encode(), digest_size=ID_BYTES).hexdigest()

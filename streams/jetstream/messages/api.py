"""The server's JSON API: one request, one response, and its errors by number.

Numbers: https://github.com/nats-io/nats-server/blob/main/server/errors.json. Texts are ignored.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streams.errors import StreamError, Unavailable
from streams.jetstream.connection.link import ASKS_MAX, Link
from streams.json import JsonObject

NOT_ENABLED: Final = 10076
NOT_ENABLED_FOR_ACCOUNT: Final = 10039
STREAM_NOT_FOUND: Final = 10059
STREAM_NAME_IN_USE: Final = 10058
CONSUMER_NOT_FOUND: Final = 10014
TOO_MANY_CONSUMERS: Final = 10026
MESSAGE_NOT_FOUND: Final = 10037
MESSAGE_TOO_LARGE: Final = 10054

WRONG_SEQUENCE: Final = 10071
"""The subject is at another sequence: someone else's write is stored."""

WRONG_SEQUENCE_IN_FLIGHT: Final = 10164
"""Another write to the subject is on its way (three replicas); maybe our own."""

LATER: Final = 503
"""The same request may work later."""

_encoder = msgspec.json.Encoder()


class ApiError(msgspec.Struct, frozen=True):
    """What the server answers when it refuses."""

    code: int
    """As in HTTP."""
    err_code: int = 0
    description: str = ""


class RequestRefused(StreamError):
    """The server understood and refused. Adapters turn it into an error of the port."""

    def __init__(self, what: str, error: ApiError) -> None:
        super().__init__(f"{what}: {error.description} ({error.err_code})")
        self.code = error.code
        self.err_code = error.err_code


class _Envelope(msgspec.Struct, frozen=True):
    error: ApiError | None = None


_envelope: msgspec.json.Decoder[_Envelope] = msgspec.json.Decoder(_Envelope)


async def call(
    link: Link, operation: str, request: JsonObject | None = None, *, asks_max: int = ASKS_MAX
) -> JsonObject:
    """Return the answer to one operation, safe to repeat, or raise `RequestRefused`."""
    data = _encoder.encode(request) if request else b""
    answer = (await link.ask(link.settings.api(operation), data, asks_max=asks_max)).data
    error = _envelope.decode(answer).error
    if error is not None:
        if error.err_code == STREAM_NOT_FOUND:
            link.misses_stream.set()
        raise RequestRefused(operation, error)
    decoded: JsonObject = msgspec.json.decode(answer)
    return decoded


async def ask(
    link: Link, operation: str, request: JsonObject | None = None, *, about: str
) -> JsonObject:
    """Return the answer as `call` does; a refusal is `Unavailable`, `about` something."""
    try:
        return await call(link, operation, request)
    except RequestRefused as error:
        raise Unavailable(about, detail=str(error)) from error

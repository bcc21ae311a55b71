"""What a request asks, from its path, its query, its headers and its body.

Whatever cannot be read or converted is refused with a problem that names the field.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request

from streams.json import UNDECODABLE, is_deeper
from vigil.web.api.operation import AnyOperation, ApiRequest
from vigil.web.api.problems import MALFORMED, MISTAKE, NOT_JSON, TOO_LARGE, ProblemRaised

BODY_BYTES_MAX: Final = 1024 * 1024
"""Longest body, in bytes."""

DEPTH_MAX: Final = 64
"""Deepest nesting of a body, as of the payload of an event."""

QUERY_CHARS_MAX: Final = 8_192
"""Longest query, in characters."""

KEY_CHARS_MAX: Final = 512
"""Longest idempotency key, in characters: the longest id of an event."""

IDEMPOTENCY_KEY: Final = "idempotency-key"
"""The header of draft-ietf-httpapi-idempotency-key-header."""

JSON: Final = "application/json"

A = TypeVar("A", bound=ApiRequest)

Fields = dict[str, msgspec.Raw]


async def read_body(request: Request) -> bytes:
    """Return the body; one that is over `BODY_BYTES_MAX` is refused before it is read."""
    said = request.headers.get("content-length", "0")
    read, parts = 0, list[bytes]()
    if said.isascii() and said.isdigit() and int(said) > BODY_BYTES_MAX:
        raise _too_large()
    async for part in request.stream():
        read += len(part)
        if read > BODY_BYTES_MAX:  # guard: unannounced-body-capped
            raise _too_large()
        parts.append(part)
    return b"".join(parts)


def _too_large() -> ProblemRaised:
    return ProblemRaised(TOO_LARGE, f"over {BODY_BYTES_MAX:,} bytes, the limit of a body")


def media_type(headers: Headers) -> str:
    """Return the type of a body, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def check_json(headers: Headers) -> None:
    """Refuse a body that does not say that it is JSON: a form of another site may send others."""
    if media_type(headers) != JSON:  # guard: body-says-json
        raise ProblemRaised(
            NOT_JSON,
            f"content-type: {headers.get('content-type', '')[:80]!r} is not {JSON}",
            remedy=f"send JSON, and the header `Content-Type: {JSON}`",
            headers={"accept-post": JSON},
        )


def decoded(body: bytes) -> object:
    """Return the value that a body is the JSON of."""
    try:
        value: object = msgspec.json.decode(body)
    except UNDECODABLE as error:
        raise ProblemRaised(MALFORMED, f"not JSON: {error}", field="") from error
    if is_deeper(value, levels=DEPTH_MAX):  # guard: deep-body-refused
        raise ProblemRaised(MALFORMED, f"nested deeper than {DEPTH_MAX} levels")
    return value


async def asked_of(
    operation: AnyOperation, request: Request, path: Mapping[str, str]
) -> ApiRequest:
    """Return what a request asks of `operation`."""
    key = idempotency_key(request.headers)
    if key is not None and not operation.key:  # guard: unheeded-key-refused
        raise ProblemRaised(
            MALFORMED,
            f"{IDEMPOTENCY_KEY}: {operation.name} does not heed it",
            remedy="leave the header out",
            field=IDEMPOTENCY_KEY,
        )
    check_names(request, operation)
    if not operation.has_body:
        return _of_query(operation, request, path)
    beside: dict[str, object] = {}
    if operation.whole:
        beside = beside_body(operation, request, {*path, operation.whole})
    body = await read_body(request)
    return of_body(operation, body, request.headers, {**beside, **path}, key=key)


def of_body(
    operation: AnyOperation,
    body: bytes,
    headers: Headers,
    beside: Mapping[str, object],
    *,
    key: str | None = None,
) -> ApiRequest:
    """Return what a body asks of `operation`, with the fields that stand beside it."""
    if body or operation.whole:
        check_json(headers)
    whole = decoded(body if operation.whole else body or b"{}")
    if not isinstance(whole, dict):
        raise ProblemRaised(MISTAKE, f"the body is a JSON {type(whole).__name__}, not an object")
    if operation.whole:
        fields: Fields = {operation.whole: msgspec.Raw(body)}
    else:
        fields = msgspec.json.decode(body or b"{}", type=Fields)
    for name, value in beside.items():
        if name in fields:  # guard: path-field-said-once
            raise ProblemRaised(
                MISTAKE, f"{name}: the path says it; leave it out of the body", field=name
            )
        fields[name] = msgspec.Raw(msgspec.json.encode(value))
    if key is not None:
        _add_key(fields, operation.key, key)
    try:
        asked: ApiRequest = msgspec.json.decode(
            msgspec.json.encode(fields), type=operation.asks, strict=not operation.whole
        )
    except msgspec.ValidationError as error:
        raise _wrong(error) from error
    return asked


def _add_key(fields: Fields, name: str, key: str) -> None:
    said: object = msgspec.json.decode(fields[name]) if name in fields else None
    if said not in (None, key):  # guard: two-keys-refused
        raise ProblemRaised(MALFORMED, f"{name}: {IDEMPOTENCY_KEY} says another one", field=name)
    fields[name] = msgspec.Raw(msgspec.json.encode(key))


def check_names(request: Request, operation: AnyOperation) -> None:
    """Refuse a query that is too long, or that is given to what takes none."""
    text = request.scope["query_string"]
    if len(text) > QUERY_CHARS_MAX:
        raise ProblemRaised(MALFORMED, f"a query of over {QUERY_CHARS_MAX:,} characters")
    if operation.has_body and not operation.whole and text:
        raise ProblemRaised(MISTAKE, f"{operation.name} takes no query; its fields are in the body")


def _of_query(operation: AnyOperation, request: Request, path: Mapping[str, str]) -> ApiRequest:
    return of_fields(operation, {**beside_body(operation, request, path), **path})


def of_fields(operation: AnyOperation, fields: Mapping[str, object]) -> ApiRequest:
    """Return what fields ask of `operation`, whose values may be texts."""
    try:
        asked: ApiRequest = msgspec.convert(fields, operation.asks, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(error) from error
    return asked


def beside_body(
    operation: AnyOperation, request: Request, elsewhere: Collection[str]
) -> dict[str, object]:
    """Return the fields that the query says, none of which may be said `elsewhere`, too."""
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    lists = operation.lists
    fields: dict[str, object] = {}
    for name, values in given.items():
        if name in elsewhere:
            says = f"{name}: the path or the body says it; leave it out of the query"
            raise ProblemRaised(MISTAKE, says, field=name)
        if name not in lists and len(values) > 1:  # guard: repeated-parameter-refused
            raise ProblemRaised(MISTAKE, f"{name}: is given {len(values)} times", field=name)
        fields[name] = values if name in lists else values[0]
    return fields


def idempotency_key(headers: Headers) -> str | None:
    """Return the idempotency key, a text in quotes or a bare one; None: there is none."""
    if (said := headers.get(IDEMPOTENCY_KEY)) is None:
        return None
    text = said.strip()
    is_quoted = len(text) > 1 and text.startswith('"') and text.endswith('"')
    key = text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if is_quoted else text
    if not 1 <= len(key) <= KEY_CHARS_MAX:
        raise ProblemRaised(
            MALFORMED,
            f"{IDEMPOTENCY_KEY}: has not 1 to {KEY_CHARS_MAX} characters",
            field=IDEMPOTENCY_KEY,
        )
    return key


def _wrong(error: msgspec.ValidationError) -> ProblemRaised:
    """Return a refusal that names the field, which the library's message ends with."""
    says, _, place = str(error).partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    if not field and "`" in says:  # What is missing or unknown is named first.
        field = says.split("`")[1]
    says = says.replace("`", "").removeprefix("Object ")
    says = says[:1].lower() + says[1:]
    return ProblemRaised(MISTAKE, f"{field}: {says}" if field else says, field=field)

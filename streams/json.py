"""JSON as a type: what users pass in, and what is passed on unread. Pure."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
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

ABSENT: Final = msgspec.UNSET
"""What stands where there is nothing; JSON's `null` is something."""

PARTS_MAX: Final = 100_000
"""Most parts of a value that are looked at for what is wrong with it."""

SHOWN_CHARS_MAX: Final = 80
"""Most of a key that is shown."""

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
    if b"null" in bytes(encoded) and not _is_finite(_plain(value)):  # guard: infinite-is-not-null
        raise ValueError("a number that is not finite; JSON has none")
    return encoded


def value_at(payload: JsonObject, path: str) -> object:
    """Return the value at `path`, or `ABSENT`."""
    level: object = payload
    rest = path
    while isinstance(level, dict):
        if rest in level:
            return level[rest]
        word, dot, rest = rest.partition(".")
        level = level.get(word) if dot else ABSENT
    return ABSENT


def text_at(payload: JsonObject, path: str) -> str:
    """Return the payload's value at `path` as text of any length; empty if there is none."""
    value = value_at(payload, path) if path else ABSENT
    if value is ABSENT or value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def is_deeper(value: object, *, levels: int) -> bool:
    """Return whether a JSON value has objects and lists more than `levels` within each other."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(levels):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return bool(level)


def place_of_problem(value: object) -> str:
    """Return what in `value` JSON cannot express, and where: `$.rows[2]: a key that is no text: 1`.

    Empty: what is wrong is no single part of it.
    """
    left: list[tuple[str, object]] = [("$", value)]
    for _ in range(PARTS_MAX):
        if not left:
            break
        place, part = left.pop()
        if isinstance(part, dict):
            strays = [key for key in part if not isinstance(key, str)]
            if strays:
                return f"{place}: a key that is no text: {strays[0]!r:.{SHOWN_CHARS_MAX}}"
            left.extend((f"{place}.{key}", each) for key, each in part.items())
        elif isinstance(part, list | tuple):
            left.extend((f"{place}[{at}]", each) for at, each in enumerate(part))
        elif isinstance(part, float):
            if not isfinite(part):
                return f"{place}: {part}, a number that is not finite"
        elif named := _fields(part):
            left.extend((f"{place}.{name}", each) for name, each in named.items())
        elif not _is_json(part):
            is_text = isinstance(part, str)
            problem = (
                "text that is no Unicode" if is_text else f"an instance of {type(part).__name__}"
            )
            return f"{place}: {problem}"
    return ""


def _fields(value: object) -> dict[str, object]:
    """Return what a struct or a dataclass consists of; nothing: it is neither."""
    if isinstance(value, msgspec.Struct):
        given = msgspec.structs.asdict(value)
        # guard: unset-field-is-no-problem
        return {name: each for name, each in given.items() if each is not msgspec.UNSET}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return {}


def _is_json(value: object) -> bool:
    try:
        raw(value)
    except (TypeError, ValueError):
        return False
    return True


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

"""JSON as it is typed: the text itself, `@file` for what a file holds, `-` for standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from streams.json import UNDECODABLE, JsonObject
from streams.ports.domain_events import EVENT_BYTES_MAX
from vigil.errors import Mistake, Trouble

TEXT_BYTES_MAX: Final = EVENT_BYTES_MAX
"""Most that is read of a file or of standard input: no payload may be longer."""


def read(text: str, *, what: str) -> bytes:
    """Return the bytes that `text` says, or those of the file or of standard input.

    Args:
        text: as it was typed.
        what: the option, for errors.

    Raises:
        Mistake: it is longer than `TEXT_BYTES_MAX`.
        Trouble: the file cannot be read.
    """
    try:
        data = _data(text)
    except OSError as error:
        raise Trouble(f"{what}: {text.removeprefix('@')}: {error.strerror or error}") from error
    if len(data) > TEXT_BYTES_MAX:
        raise Mistake(f"{what}: over {TEXT_BYTES_MAX:,} bytes")
    return data


def json_of(text: str, *, what: str) -> object:
    """Return the JSON value that `text` says; arguments and errors are as for `read`.

    Raises:
        Mistake: it says none, too.
    """
    try:
        said: object = msgspec.json.decode(read(text, what=what))
    except UNDECODABLE as error:
        raise Mistake(f"{what}: not JSON: {error}") from error
    return said


def object_of(text: str, *, what: str) -> JsonObject:
    """Return the JSON object that `text` says; otherwise as `json_of`."""
    said = json_of(text, what=what)
    if not isinstance(said, dict):
        raise Mistake(f"{what}: a {type(said).__name__}, not a JSON object")
    return said


def _data(text: str) -> bytes:
    if text == "-":
        return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    with Path(text[1:]).open("rb") as file:
        return file.read(TEXT_BYTES_MAX + 1)

"""The tokens that subjects are made of: names that people choose, and keys that data chooses.

A token stands between two dots. A name is a token as it is. A key may be any text and is encoded:
every byte outside `[A-Za-z0-9_-]` becomes `=` and two hex digits. That alphabet is legal in
subjects and in KV keys, and the encoding is reversible.
"""

from __future__ import annotations

import re
from typing import Final

from streams.errors import BadName

TOKEN_BYTES_MAX: Final = 1024
"""Longest encoded token. A subject must fit in one protocol line (4,096 bytes by default)."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EVENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,15}")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})*")


def encode_token(value: str) -> str:
    """Return `value` as one subject token; `decode_token` gives it back.

    Raises:
        BadName: `value` is empty, or over `TOKEN_BYTES_MAX` bytes when encoded.
    """
    try:
        octets = value.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"not a key: {value!r} is not valid Unicode text") from error
    token = "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in octets)
    if not 0 < len(token) <= TOKEN_BYTES_MAX:
        raise BadName(f"not a key: {value[:40]!r} needs 1 to {TOKEN_BYTES_MAX} encoded bytes")
    return token


def decode_token(token: str) -> str:
    """Return the value that `encode_token` made `token` from; raise `BadName` if there is none."""
    if not _ESCAPED.fullmatch(token):
        raise BadName(f"not an encoded token: {token!r}")
    if "=" not in token:
        return token
    octets = re.sub(rb"=([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), token.encode())
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise BadName(f"not an encoded token: {token!r}") from error


def name(value: str, *, of: str) -> str:
    """Return `value` if it may name an `of` (an actor, a node…), else raise `BadName`."""
    if _NAME.fullmatch(value):
        return value
    raise BadName(f"{of}: {value!r} is not a name; use 1 to 64 of A-Z a-z 0-9 _ -")


def event_name(value: str) -> str:
    """Return `value` if it may name a domain event, else raise `BadName`."""
    if _EVENT_NAME.fullmatch(value):
        return value
    raise BadName(
        f"event name: {value!r} is not a dotted name; use words of A-Z a-z 0-9 _ - joined by dots"
    )


def matches(pattern: str, subject: str) -> bool:
    """Return whether `subject` fits `pattern`, in which `*` is one token and a last `>` is more."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
    elif len(given) != len(wanted):
        return False
    return all(want in ("*", got) for want, got in zip(wanted, given, strict=False))

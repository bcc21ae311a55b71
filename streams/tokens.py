"""The tokens that subjects are made of: names that people choose, and keys that data chooses. Pure.

A token stands between two dots. A name is a token as it is. A key may be any text and is encoded:
every byte outside `[A-Za-z0-9_-]` becomes `=` and two hex digits. That alphabet is legal in
subjects and in KV keys, and the encoding is reversible.

A text of any length (the subject of an event, the reference of a signal) is encoded as well if it
is short, so that people can read it; of a longer one there is a hash. In an encoded text `=` is
always followed by two of `0-9A-F`: what stands for a hash, and for no text, is nobody's encoding.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from streams.errors import BadName

TOKEN_BYTES_MAX: Final = 1024
"""Longest encoded token. A subject must fit in one protocol line (4,096 bytes by default)."""

SUBJECT_BYTES_MAX: Final = 128
"""Longest encoded text of any length, in bytes. The server keeps every key in memory."""

HASH_BYTES: Final = 16
"""Of a longer text's hash."""

_NONE: Final = "="
_HASHED: Final = "=h"  # guard: hash-is-no-encoding
_HASH = re.compile(rf"{_HASHED}[0-9a-f]{{{2 * HASH_BYTES}}}")

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


def subject_token(subject: str) -> str:
    """Return one token for `subject`, never the same for two; it cannot always be decoded."""
    try:
        octets = subject.encode()
    except UnicodeEncodeError as error:
        raise BadName(f"subject: {subject!r} is not valid Unicode text") from error
    if not octets:
        return _NONE
    if (
        len(octets) <= SUBJECT_BYTES_MAX
        and len(token := encode_token(subject)) <= SUBJECT_BYTES_MAX
    ):
        return token
    return _HASHED + blake2b(octets, digest_size=HASH_BYTES).hexdigest()


def as_subject_token(token: str) -> str:
    """Return `token` if `subject_token` may have made it, else raise `BadName`."""
    if token != _NONE and not _HASH.fullmatch(token):  # guard: unknown-token-refused
        decode_token(token)
    return token


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

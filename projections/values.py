"""Event values as Postgres takes them. Pure.

Postgres text cannot hold the character NUL, and its jsonb neither that nor half a
surrogate pair; JSON on the wire can, and bytes that are no UTF-8 besides. They become
U+FFFD, always and everywhere, so that no text whatever stops a projection and every replay
makes the same rows.

Rows travel as JSON, where the first two are escapes: one look at a whole document finds
them. Only what names a row is looked at alone, so that one row has one name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole surrogate pair
    r"|(\\u0000|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"  # NUL, or half a pair
    r"|\\."  # any other escape, consumed so that an escaped backslash is not read as one
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ESCAPED_REPLACEMENT: Final = "\\ufffd"

_encoder: Final = msgspec.json.Encoder()


def document(rows: Sequence[msgspec.Struct]) -> str:
    """Return `rows` as JSON text without what Postgres refuses."""
    encoded = _encoder.encode(rows).decode(errors="replace")
    return _ESCAPE.sub(_replace, encoded) if "\\u" in encoded else encoded


def key(value: str) -> str:
    """Return `value`, which names a row, without NUL."""
    return value.replace("\0", REPLACEMENT)


def uuid_or_none(value: str) -> str | None:
    """Return `value` if it is a UUID in its usual spelling, else None.

    Text, because it is compared and hashed a lot on its way; other spellings are not taken,
    so that one UUID is one text.
    """
    return value if _UUID.fullmatch(value) else None


def _replace(escape: re.Match[str]) -> str:
    return _ESCAPED_REPLACEMENT if escape[1] else escape[0]

"""Event values as Postgres takes them. Pure.

Postgres text cannot hold the character NUL, and its jsonb neither that nor half a
surrogate pair; JSON on the wire can. They become U+FFFD, always and everywhere, so that
no text whatever stops a projection and every replay makes the same rows.
"""

from __future__ import annotations

import re
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


def text(value: str) -> str:
    """Return `value` without NUL."""
    return value.replace("\0", REPLACEMENT)


def text_or_none(value: str) -> str | None:
    """Return `value` without NUL, or None when it says nothing."""
    return value.replace("\0", REPLACEMENT) or None


def json(value: msgspec.Raw) -> str | None:
    """Return the JSON text of `value` without what jsonb refuses; None for JSON `null`."""
    encoded = str(memoryview(value), "utf-8")
    if encoded == "null":
        return None
    return _ESCAPE.sub(_replace, encoded) if "\\u" in encoded else encoded


def json_of(value: object) -> str | None:
    """Return `value` as JSON text without what jsonb refuses; None for None."""
    return json(msgspec.Raw(msgspec.json.encode(value)))


def uuid_or_none(value: str) -> str | None:
    """Return `value` if it is a UUID in its usual spelling, else None.

    Text, because it is compared and hashed a lot on its way; other spellings are not taken,
    so that one UUID is one text.
    """
    return value if _UUID.fullmatch(value) else None


def _replace(escape: re.Match[str]) -> str:
    return _ESCAPED_REPLACEMENT if escape[1] else escape[0]
